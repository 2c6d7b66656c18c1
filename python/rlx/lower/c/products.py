"""Sums of products in C: two at a time where the core has the DSP extension, one by one elsewhere.

Weights lie in rows, quads of four after one another. With the DSP extension, `SXTB16` makes two 16-bit numbers of bytes 0 and 2
of a word, or of bytes 1 and 3 if it is rotated, and `SMLAD` multiplies two pairs and adds both products. Weights of 4 and 2 bits
lie in one word with those of the next quads, each in the upper bits of its byte: `w & 0xF0F0F0F0` are four weights times 16, and
`(w << 4) & 0xF0F0F0F0` the next four. So their sums are 16 or 64 times as large, and are shifted at the end.
"""

from __future__ import annotations

from rlx.lower.c.helpers import HELPERS

# Bits of weights, and the first and last that fit.
RANGES = {2: (-2, 1), 4: (-8, 7), 8: (-128, 127)}


def quads_of(bits: int) -> int:
    """The number of quads in a word."""
    return 8 // bits


def depth_of(count: int, bits: int) -> int:
    """The length of a row of weights: whole words."""
    step = 4 * quads_of(bits)
    return -(-count // step) * step


def _unpacked(bits: int, quad: int, word: str) -> str:
    """Four weights of a word, each in the upper bits of a byte."""
    if bits == 8:
        return word
    mask = {4: "0xF0F0F0F0u", 2: "0xC0C0C0C0u"}[bits]
    shifted = f"({word} << {bits * quad})" if quad else word
    return f"{shifted} & {mask}"


def _scalar(bits: int, quad: int, byte: str) -> str:
    """One weight of a byte, times as much as in a word."""
    if bits == 8:
        return byte
    mask = {4: "0xF0", 2: "0xC0"}[bits]
    shifted = f"({byte} << {bits * quad})" if quad else byte
    return f"(int8_t)({shifted} & {mask})"


def _columns_by_rows(bits: int) -> str:
    """Two rows of weights, two columns of 16-bit inputs."""
    quads, kind = quads_of(bits), "int8_t" if bits == 8 else "uint8_t"
    step = 4 * quads
    dsp: list[str] = []
    plain: list[str] = []
    for quad in range(quads):
        at = f" + {4 * quad}" if quad else ""
        for row in "uv":
            names = [f"{row}{half}" for half in "01"]
            first = _unpacked(bits, quad, f"{row}")
            if quads > 1:
                dsp.append(f"const uint32_t {row}{quad}q = {first};")
                first = f"{row}{quad}q"
            dsp += [
                f"const int16x2_t {names[0]}{quad} = __sxtb16((int8x4_t){first});",
                f"const int16x2_t {names[1]}{quad} = __sxtb16((int8x4_t)__ror({first}, 8u));",
            ]
        for column, sums in (("x", "ac"), ("y", "bd")):
            dsp += [
                f"const int16x2_t {column}0{quad} = pair_at({column} + k{at});",
                f"const int16x2_t {column}1{quad} = pair_at({column} + k + {4 * quad + 2});",
            ]
            for total, row in zip(sums, "uv", strict=True):
                dsp += [
                    f"{total} = __smlad({row}0{quad}, {column}0{quad}, {total});",
                    f"{total} = __smlad({row}1{quad}, {column}1{quad}, {total});",
                ]
    word_step = "k" if bits == 8 else f"k / {quads}"
    for byte in range(4):
        place = {0: 0, 1: 2, 2: 1, 3: 3}[byte]
        for quad in range(quads):
            index = f"{word_step} + {byte}" if byte else word_step
            value = 4 * quad + place
            for row in ("u", "v"):
                plain.append(f"const int32_t {row}{byte}{quad} = {_scalar(bits, quad, f'rows_{row}[{index}]')};")
            for total, row, column in (("a", "u", "x"), ("b", "u", "y"), ("c", "v", "x"), ("d", "v", "y")):
                plain.append(f"{total} += {row}{byte}{quad} * {column}[k{f' + {value}' if value else ''}];")
    scale = quads_of(bits) and {8: "", 4: " / 16", 2: " / 64"}[bits]
    return f"""
/* Two rows of weights of {bits} bits times two columns of inputs. Bytes 1 and 2 of each four weights have changed places.
 * The depth is a multiple of {step}.
 */
static inline void multiply_2x2_s{bits}(const {kind} *rows_u, const {kind} *rows_v, const int16_t *x, const int16_t *y,
                                   int32_t depth, int32_t sums[4])
{{
    int32_t a = 0, b = 0, c = 0, d = 0;
    for (int32_t k = 0; k < depth; k += {step}) {{
#if defined(__ARM_FEATURE_DSP)
        const uint32_t u = word_at(rows_u + {word_step});
        const uint32_t v = word_at(rows_v + {word_step});
        {_lines(dsp)}
#else
        {_lines(plain)}
#endif
    }}
    sums[0] += a{scale};
    sums[1] += b{scale};
    sums[2] += c{scale};
    sums[3] += d{scale};
}}"""


def _lines(lines: list[str]) -> str:
    return "\n        ".join(lines)


def _rows_by_vector(bits: int) -> str:
    """Four rows of weights, one vector of 8-bit inputs."""
    quads, kind = quads_of(bits), "int8_t" if bits == 8 else "uint8_t"
    step = 4 * quads
    word_step = "k" if bits == 8 else f"k / {quads}"
    dsp: list[str] = []
    tail: list[str] = []
    for quad in range(quads):
        at = f" + {4 * quad}" if quad else ""
        dsp += [
            f"const uint32_t x{quad} = word_at(x + k{at});",
            f"const int16x2_t even{quad} = __sxtb16((int8x4_t)x{quad});",
            f"const int16x2_t odd{quad} = __sxtb16((int8x4_t)__ror(x{quad}, 8u));",
        ]
    for row, total in enumerate("abcd"):
        dsp.append(f"const uint32_t w{row} = word_at(rows + {row} * stride + {word_step});")
        for quad in range(quads):
            name = f"w{row}"
            if quads > 1:
                dsp.append(f"const uint32_t w{row}{quad} = {_unpacked(bits, quad, name)};")
                name = f"w{row}{quad}"
            dsp.append(f"{total} = __smlad(__sxtb16((int8x4_t){name}), even{quad}, {total});")
            dsp.append(f"{total} = __smlad(__sxtb16((int8x4_t)__ror({name}, 8u)), odd{quad}, {total});")
    for row, total in enumerate("abcd"):
        tail.append(f"{total} += {_one(bits, f'rows + {row} * stride')} * x[k];")
    scale = {8: "", 4: " / 16", 2: " / 64"}[bits]
    return f"""
/* Four rows of weights of {bits} bits, `stride` bytes apart, times a vector of inputs. */
static inline void multiply_4x1_s{bits}(const {kind} *rows, int32_t stride, const int8_t *x, int32_t depth, int32_t sums[4])
{{
    int32_t a = 0, b = 0, c = 0, d = 0;
    int32_t k = 0;
#if defined(__ARM_FEATURE_DSP)
    for (; k + {step} <= depth; k += {step}) {{
        {_lines(dsp)}
    }}
#endif
    for (; k < depth; k++) {{
        {_lines(tail)}
    }}
    sums[0] += a{scale};
    sums[1] += b{scale};
    sums[2] += c{scale};
    sums[3] += d{scale};
}}"""


def _one(bits: int, row: str) -> str:
    """Weight `k` of a row, times as much as in a word."""
    return f"({row})[k]" if bits == 8 else f"weight_s{bits}({row}, k)"


def _row_by_vector(bits: int) -> str:
    kind = "int8_t" if bits == 8 else "uint8_t"
    scale = {8: "", 4: " / 16", 2: " / 64"}[bits]
    return f"""
/* A row of weights of {bits} bits times a vector of inputs. */
static inline int32_t multiply_1x1_s{bits}(const {kind} *row, const int8_t *x, int32_t depth)
{{
    int32_t sum = 0;
    for (int32_t k = 0; k < depth; k++) {{
        sum += {_one(bits, "row")} * x[k];
    }}
    return sum{scale};
}}"""


HELPERS["memory"] = ((), "")
HELPERS["dsp"] = (
    ("arm_acle", "memory"),
    """
#if defined(__ARM_FEATURE_DSP)
/* One load, even where the library is said to be missing (-ffreestanding). */
#if defined(__GNUC__)
#define COPY_WORD(to, from) __builtin_memcpy(to, from, 4)
#else
#define COPY_WORD(to, from) (void)memcpy(to, from, 4)
#endif

/* Four bytes as a word. */
static inline uint32_t word_at(const void *bytes)
{
    uint32_t word;
    COPY_WORD(&word, bytes);
    return word;
}
#endif""".strip(),
)
HELPERS["dsp_pairs"] = (
    ("dsp",),
    """
#if defined(__ARM_FEATURE_DSP)
/* Two inputs as a word. */
static inline int16x2_t pair_at(const int16_t *inputs)
{
    int16x2_t pair;
    COPY_WORD(&pair, inputs);
    return pair;
}
#endif""".strip(),
)
for _bits in RANGES:
    HELPERS[f"multiply_2x2_s{_bits}"] = (("dsp_pairs",), _columns_by_rows(_bits).strip("\n"))
    _uses = ("dsp",) if _bits == 8 else ("dsp", f"weight_s{_bits}")
    HELPERS[f"multiply_4x1_s{_bits}"] = (_uses, _rows_by_vector(_bits).strip("\n"))
    HELPERS[f"multiply_1x1_s{_bits}"] = (_uses[1:], _row_by_vector(_bits).strip("\n"))
for _bits, _quads, _mask in ((4, 2, "0xF0"), (2, 4, "0xC0")):
    _step = 4 * _quads
    HELPERS[f"weight_s{_bits}"] = (
        (),
        f"""
/* Weight k of a row, times {2 ** (8 - _bits)}: {_quads} quads of four share four bytes. */
static inline int32_t weight_s{_bits}(const uint8_t *row, int32_t k)
{{
    const uint32_t byte = row[k / {_step} * 4 + k % 4];
    return (int8_t)((byte << ({_bits} * (k % {_step} / 4))) & {_mask}u);
}}""".strip("\n"),
    )

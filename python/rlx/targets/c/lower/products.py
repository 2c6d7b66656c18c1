"""Dot products in C: two products at a time with the DSP extension, one at a time without it.

With the DSP extension, `SXTB16` sign-extends bytes 0 and 2 of a word to 16 bits, or bytes 1 and 3 if the word is rotated.
`SMLAD` multiplies two pairs and adds both products. Weights of 4 and 2 bits of several rows share a byte. They are multiplied
in the upper bits of a 16-bit integer, where they have its sign: `w & 0xF000F000` has two weights of one row times 4096, as
operands of `SMLAD`, and `(w << 4) & 0xF000F000` has two weights of another row. A sum of `MOST` of these products fits in an
i32, and is then shifted down. Each half of a word of weights is used completely before the next one is unpacked, because there
are not enough registers for both.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx.targets.c.lower.helpers import HELPERS

# Bits of weights, with the least and greatest weight.
RANGES = {2: (-2, 1), 4: (-8, 7), 8: (-128, 127)}
# The number of products of raised weights whose sum always fits an i32 (each is at most 2^22); a multiple of every step.
MOST = 504


def quads_of(bits: int) -> int:
    """The number of quads of each of two rows in one word of weights for columns."""
    return 2 if bits == 2 else 1


def depth_of(count: int, bits: int) -> int:
    """The length of a column and of the rows that are multiplied with it, rounded up to whole words."""
    step = 4 * quads_of(bits)
    return -(-count // step) * step


def _columns_by_rows_dsp(bits: int) -> list[str]:
    """The body of the loop with instructions for two products at a time."""
    quads = quads_of(bits)
    if bits == 8:
        dsp = ["const uint32_t u = word_at(rows);", "const uint32_t v = word_at(rows + stride);", "rows += 4;"]
    else:
        dsp = ["const uint32_t w = word_at(rows);", "rows += 4;"]
    for quad in range(quads):
        number = str(quad) if quads > 1 else ""
        for half, name in enumerate(("first", "second")):
            for row in "uv":
                if bits == 8:
                    word = f"rotated({row})" if half else row
                    made = f"__sxtb16((int8x4_t){word})"
                else:
                    made = _raised_pair("w", bits, 2 * bits * quad + bits * "uv".index(row) + 8 * half)
                dsp.append(f"const int16x2_t {row}_{name}{number} = {made};")
            for column, sums, offset in (("x", "ac", []), ("y", "bd", ["depth"])):
                pair, place = f"{column}_{name}{number}", 4 * quad + 2 * half
                at = " + ".join(["columns", *offset, *([str(place)] if place else [])])
                dsp.append(f"const int16x2_t {pair} = pair_at({at});")
                for total, row in zip(sums, "uv", strict=True):
                    dsp.append(f"{total} = __smlad({row}_{name}{number}, {pair}, {total});")
    return [*dsp, f"columns += {4 * quads};"]


def _raised_pair(word: str, bits: int, place: int) -> str:
    """Two weights from a bit offset in both halves of a word, moved to the upper bits of each half."""
    mask, by = ((1 << bits) - 1) << (16 - bits), 16 - bits - place
    return f"(int16x2_t)({f'({word} << {by})' if by else word} & 0x{mask:04X}{mask:04X}u)"


def _raised(byte: str, bits: int, place: int) -> str:
    """A weight from a bit offset in a byte, moved to the upper bits of a 16-bit integer."""
    mask, by = ((1 << bits) - 1) << (16 - bits), 16 - bits - place
    return f"(int16_t)(((uint32_t){byte} << {by}) & 0x{mask:04X}u)"


def _columns_by_rows_plain(bits: int) -> list[str]:
    """The body of the loop for other cores."""
    quads = quads_of(bits)
    plain: list[str] = []
    for byte in range(4):
        for quad in range(quads):
            number = f"{byte}{quad}" if quads > 1 else str(byte)
            value = 4 * quad + (0, 2, 1, 3)[byte]
            for row in "uv":
                stride = ["stride"] if bits == 8 and row == "v" else []
                at = " + ".join([*stride, *([str(byte)] if byte or not stride else [])])
                made = (
                    _raised(f"rows[{at}]", bits, 2 * bits * quad + bits * "uv".index(row))
                    if bits < 8
                    else f"rows[{at}]"
                )
                plain.append(f"const int32_t {row}{number} = {made};")
            for total, row, column in (("a", "u", []), ("b", "u", ["depth"]), ("c", "v", []), ("d", "v", ["depth"])):
                at = " + ".join([*column, *([str(value)] if value or not column else [])])
                plain.append(f"{total} += {row}{number} * columns[{at}];")
    return [*plain, "rows += 4;", f"columns += {4 * quads};"]


def _columns_by_rows(bits: int) -> str:
    """Two rows of weights, two columns of 16-bit inputs."""
    step = 4 * quads_of(bits)
    if bits == 8:
        what = "Two rows of weights, `stride` bytes apart, times two columns of inputs, one behind the other."
        arguments = "const int8_t *rows, int32_t stride, const int16_t *columns"
    else:
        what = (
            f"Two rows of weights of {bits} bits, which share bytes, times two columns of inputs, one behind the other."
        )
        arguments = "const uint8_t *rows, const int16_t *columns"
    body = f"""while (columns != end) {{
#if defined(__ARM_FEATURE_DSP)
        {_lines(_columns_by_rows_dsp(bits))}
#else
        {_lines(_columns_by_rows_plain(bits))}
#endif
    }}"""
    note = "" if bits == 8 else f"\n * {_RAISED_NOTE.format(16 - bits)}"
    return f"""
/* {what}
 * Bytes 1 and 2 of each four have changed places. The depth is a multiple of {step}.{note}
 */
static inline void multiply_2x2_s{bits}({arguments}, int32_t depth,
                                   int32_t sums[4])
{{
    {_columns_loop(bits, body)}
}}"""


_RAISED_NOTE = "Weights are multiplied in the upper bits of 16: sums of some products are shifted down by {}."
_FROM_SUMS = [f"int32_t {total} = sums[{i}];" for i, total in enumerate("abcd")]
_ZEROS = [f"int32_t {total} = 0;" for total in "abcd"]
_STORED = "sums[0] = a;\n    sums[1] = b;\n    sums[2] = c;\n    sums[3] = d;"


def _columns_loop(bits: int, body: str) -> str:
    """The loop over the depth. Sums of raised weights are added to the total before they overflow."""
    if bits == 8:
        return f"""const int16_t *const end = columns + depth;
    {_lines(_FROM_SUMS, 4)}
    {body}
    {_STORED}"""
    return f"""for (int32_t left = depth; left > 0; left -= {MOST}) {{
        const int16_t *const end = columns + ((left < {MOST}) ? left : {MOST});
        {_lines(_ZEROS)}
        {_indented(body)}
        {_added(bits)}
    }}"""


def _added(bits: int) -> str:
    return _lines([f"sums[{i}] += {total} >> {16 - bits};" for i, total in enumerate("abcd")])


def _indented(text: str) -> str:
    """Indent all lines except those of the preprocessor."""
    return "\n".join(
        line if line.startswith("#") or not i else f"    {line}" for i, line in enumerate(text.split("\n"))
    )


def _lines(lines: Sequence[str], depth: int = 8) -> str:
    return f"\n{' ' * depth}".join(lines)


def _rows_by_vector() -> str:
    """Four rows of weights of 8 bits, one vector of 8-bit inputs."""
    dsp = ["const uint32_t x = word_at(inputs);", *_EVEN_AND_ODD]
    for row, total in enumerate("abcd"):
        place = {0: "rows", 1: "rows + stride"}.get(row, f"rows + {row} * stride")
        dsp += [
            f"const uint32_t w{row} = word_at({place});",
            f"{total} = __smlad(__sxtb16((int8x4_t)w{row}), even, {total});",
            f"{total} = __smlad(__sxtb16((int8x4_t)rotated(w{row})), odd, {total});",
        ]
    places = ("rows[k]", "(rows + stride)[k]", "(rows + 2 * stride)[k]", "(rows + 3 * stride)[k]")
    tail = [f"{total} += {place} * inputs[k];" for total, place in zip("abcd", places, strict=True)]
    return f"""
/* Four rows of weights, `stride` bytes apart, times a vector of inputs. */
static inline void multiply_4x1_s8(const int8_t *rows, int32_t stride, const int8_t *inputs, int32_t depth,
                                   int32_t sums[4])
{{
    {_lines(_FROM_SUMS, 4)}
    {_rows_loop("depth", dsp, tail)}
    {_STORED}
}}"""


_EVEN_AND_ODD = (
    "const int16x2_t even = __sxtb16((int8x4_t)x);",
    "const int16x2_t odd = __sxtb16((int8x4_t)rotated(x));",
)


def _rows_loop(depth: str, dsp: list[str], tail: list[str]) -> str:
    """The loop over quads of inputs, and the loop over the remaining inputs."""
    return f"""#if defined(__ARM_FEATURE_DSP)
    const int8_t *const end = inputs + {depth} / 4 * 4;
    while (inputs != end) {{
        {_lines([*dsp, "rows += 4;", "ADVANCE(inputs, 4);"])}
    }}
    const int32_t left = {depth} % 4;
#else
    const int32_t left = {depth};
#endif
    for (int32_t k = 0; k < left; k++) {{
        {_lines(tail)}
    }}"""


def _packed_rows_by_vector(bits: int) -> str:
    """Four rows of weights of fewer bits. The weights of a column share bytes, starting at the lowest bits."""
    per_byte = 8 // bits
    dsp = ["const uint32_t x = word_at(inputs);", *_EVEN_AND_ODD]
    tail: list[str] = []
    for word in range(4 // per_byte):
        at = " + stride" if word else ""
        dsp.append(f"const uint32_t w{word} = word_at(rows{at});")
    for row, total in enumerate("abcd"):
        word, first = row // per_byte, bits * (row % per_byte)
        for half, place in (("even", first), ("odd", first + 8)):
            dsp.append(f"{total} = __smlad({_raised_pair(f'w{word}', bits, place)}, {half}, {total});")
        byte = f"rows[{'stride + ' if word else ''}k]"
        tail.append(f"{total} += {_raised(byte, bits, first)} * inputs[k];")
    more = ", the second two `stride` bytes after the first," if per_byte == 2 else ""
    unused = "" if per_byte == 2 else "\n    (void)stride;"
    return f"""
/* Four rows of weights of {bits} bits, {per_byte} to a byte{more} times a vector of inputs.
 * {_RAISED_NOTE.format(16 - bits)}
 */
static inline void multiply_4x1_s{bits}(const uint8_t *rows, int32_t stride, const int8_t *inputs, int32_t depth,
                                   int32_t sums[4])
{{{unused}
    for (int32_t rest = depth; rest > 0; rest -= {MOST}) {{
        const int32_t count = (rest < {MOST}) ? rest : {MOST};
        {_lines(_ZEROS)}
    {_indented(_rows_loop("count", dsp, tail))}
        {_added(bits)}
        rows += left;
        inputs += left;
    }}
}}"""


_ROW_BY_VECTOR = """
/* A row of weights times a vector of inputs. */
static inline int32_t multiply_1x1_s8(const int8_t *row, const int8_t *x, int32_t depth)
{
    int32_t sum = 0;
    for (int32_t k = 0; k < depth; k++) {
        sum += row[k] * x[k];
    }
    return sum;
}"""


HELPERS["memory"] = ((), "")
HELPERS["dsp"] = (
    ("arm_acle", "memory"),
    """
#if defined(__ARM_FEATURE_DSP)
/* One load, even where the library is said to be missing (-ffreestanding). */
#if defined(__GNUC__)
#define COPY_WORD(to, from) __builtin_memcpy(to, from, 4)
#define COPY_ALIGNED_WORD(to, from) __builtin_memcpy(to, __builtin_assume_aligned(from, 4), 4)
#define COPY_TO_ALIGNED(to, from) __builtin_memcpy(__builtin_assume_aligned(to, 4), from, 4)
#define COPY_HALF(to, from) __builtin_memcpy(to, from, 2)
#else
#define COPY_WORD(to, from) (void)memcpy(to, from, 4)
#define COPY_TO_ALIGNED(to, from) (void)memcpy(to, from, 4)
#define COPY_HALF(to, from) (void)memcpy(to, from, 2)
#define COPY_ALIGNED_WORD(to, from) (void)memcpy(to, from, 4)
#endif

/* A pointer that the compiler shall advance by itself: with one index for two pointers, loops take more instructions. */
#if defined(__GNUC__)
#define ADVANCE(pointer, count) do { (pointer) += (count); __asm__("" : "+r"(pointer)); } while (0)
#else
#define ADVANCE(pointer, count) (pointer) += (count)
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
/* Two inputs as a word, at a place that is a multiple of 4. */
static inline int16x2_t pair_at(const int16_t *inputs)
{
    int16x2_t pair;
    COPY_ALIGNED_WORD(&pair, inputs);
    return pair;
}
#endif""".strip(),
)
HELPERS["rotated"] = (
    ("dsp",),
    """
#if defined(__ARM_FEATURE_DSP)
/* A word with the lowest byte as the highest, which is `__ror(word, 8)` of ACLE; the header of GCC lacks it. */
static inline uint32_t rotated(uint32_t word)
{
    return (word >> 8) | (word << 24);
}
#endif""".strip(),
)
HELPERS["halves_at"] = (
    ("dsp",),
    """
#if defined(__ARM_FEATURE_DSP)
/* Two bytes from each of two places. */
static inline uint32_t halves_at(const int8_t *low, const int8_t *high)
{
    uint16_t first;
    uint16_t second;
    COPY_HALF(&first, low);
    COPY_HALF(&second, high);
    return first | ((uint32_t)second << 16);
}

/* Two inputs go to a place that is a multiple of 4. */
static inline void put_pair(int16_t *inputs, int16x2_t pair)
{
    COPY_TO_ALIGNED(inputs, &pair);
}
#endif""".strip(),
)
for _bits in RANGES:
    _uses = ("dsp_pairs", "rotated") if _bits == 8 else ("dsp_pairs",)
    HELPERS[f"multiply_2x2_s{_bits}"] = (_uses, _columns_by_rows(_bits).strip("\n"))
    if _bits < 8:
        HELPERS[f"multiply_4x1_s{_bits}"] = (("dsp", "rotated"), _packed_rows_by_vector(_bits).strip("\n"))
HELPERS["multiply_4x1_s8"] = (("dsp", "rotated"), _rows_by_vector().strip("\n"))
HELPERS["multiply_1x1_s8"] = ((), _ROW_BY_VECTOR.strip("\n"))

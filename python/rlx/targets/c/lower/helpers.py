"""Shared functions of a program's kernels. A program contains only the functions that it uses."""

from __future__ import annotations

from collections.abc import Iterable

from rlx.targets.c.lower.values import LEAST_I64

# By name: the helpers that it uses, and its text. An entry without text is a header.
HELPERS: dict[str, tuple[tuple[str, ...], str]] = {"math": ((), "")}


def define(name: str, text: str, *uses: str) -> None:
    """Add a function with its text and the names of the helpers that it uses."""
    HELPERS[name] = (uses, text.strip("\n"))


def helpers_in_order(names: Iterable[str]) -> list[str]:
    """Return helpers and their dependencies in topological order, dependencies first."""
    found: dict[str, None] = {}

    def visit(name: str) -> None:
        for used in HELPERS[name][0]:
            visit(used)
        found.setdefault(name)

    for name in sorted(names):
        visit(name)
    return list(found)


for _word, _type, _unsigned in (("i32", "int32_t", "uint32_t"), ("i64", "int64_t", "uint64_t")):
    for _name, _sign in (("sum", "+"), ("difference", "-"), ("product", "*")):
        define(
            f"wrapping_{_name}_{_word}",
            f"""
/* a {_sign} b without the bits that do not fit. */
static inline {_type} wrapping_{_name}_{_word}({_type} a, {_type} b)
{{
    return ({_type})(({_unsigned})a {_sign} ({_unsigned})b);
}}""",
        )

for _word, _type in (("i32", "int32_t"), ("i64", "int64_t"), ("u32", "uint32_t")):
    for _name, _sign in (("max", ">"), ("min", "<")):
        define(
            f"{_name}_{_word}",
            f"""
static inline {_type} {_name}_{_word}({_type} a, {_type} b)
{{
    return (a {_sign} b) ? a : b;
}}""",
        )

for _name, _sign in (("max", ">"), ("min", "<")):
    define(
        f"{_name}_f32",
        f"""
/* NaN if one is. */
static inline float {_name}_f32(float a, float b)
{{
    return ((a {_sign} b) || (a != a)) ? a : b;
}}""",
    )

define(
    "bits_of_f32",
    """
static inline int32_t bits_of_f32(float x)
{
    union {
        float number;
        int32_t bits;
    } word;
    word.number = x;
    return word.bits;
}""",
)
define(
    "f32_of_bits",
    """
static inline float f32_of_bits(int32_t x)
{
    union {
        float number;
        int32_t bits;
    } word;
    word.bits = x;
    return word.number;
}""",
)

define(
    "clamped",
    """
/* An index in [0, last]. */
static inline int32_t clamped(int32_t index, int32_t last)
{
    if (index < 0) {
        return 0;
    }
    return (index > last) ? last : index;
}""",
)
define(
    "clamped_i64",
    """
/* An index in [0, last]. */
static inline int32_t clamped_i64(int64_t index, int32_t last)
{
    if (index < 0) {
        return 0;
    }
    return (index > last) ? last : (int32_t)index;
}""",
)

for _name, _low, _high, _instruction in (
    ("i8", "-128", "127", "__ssat(x, 8)"),
    ("u8", "0", "255", "(int32_t)__usat(x, 8)"),
    ("i16", "-32768", "32767", "__ssat(x, 16)"),
):
    define(
        f"saturate_{_name}",
        f"""
static inline int32_t saturate_{_name}(int32_t x)
{{
#if defined(__ARM_FEATURE_SAT) && defined(__clang__) /* GCC finds the instruction for what follows */
    return {_instruction};
#else
    if (x < {_low}) {{
        return {_low};
    }}
    return (x > {_high}) ? {_high} : x;
#endif
}}""",
        "arm_acle",
    )
HELPERS["arm_acle"] = ((), "")

define(
    "high_product",
    """
/* The upper 32 bits of a product. */
static inline int32_t high_product(int32_t a, int32_t b)
{
    return (int32_t)(((int64_t)a * b) >> 32);
}""",
)
define(
    "rounded_high_product",
    """
/* The upper 32 bits of a product, rounded. */
static inline int32_t rounded_high_product(int32_t a, int32_t b)
{
    return (int32_t)(((int64_t)a * b + INT64_C(2147483648)) >> 32);
}""",
)

_SATURATED = """
    const int64_t moved = scaled + zero_point;
    if (moved < low) {
        return low;
    }
    return (moved > high) ? high : (int32_t)moved;
}"""
define(
    "requantize_double",
    """
/* x * multiplier * 2^(shift - 31), rounded after the product and, halves away from zero, after the shift to the right. */
static inline int32_t requantize_double(int32_t x, int32_t multiplier, int32_t shift, int32_t zero_point,
                                        int32_t low, int32_t high)
{
    const int32_t places = (shift > 30) ? 30 : ((shift < -31) ? -31 : shift);
    const int32_t left = (places > 0) ? places : 0;
    const int32_t right = left - places;
    const int32_t shifted = (int32_t)((uint32_t)x << left);
    int64_t product = ((int64_t)shifted * multiplier + INT64_C(0x40000000)) >> 31;
    int64_t half;
    int64_t scaled;
    if (product > INT32_MAX) {
        product = INT32_MAX;
    }
    half = ((int64_t)1 << right) >> 1;
    scaled = (product + half - (((product < 0) && (half > 0)) ? 1 : 0)) >> right;"""
    + _SATURATED.replace("    const int64_t moved", "    const int64_t moved", 1),
)
for _mode, _bits, _product in (
    ("single", 31, "(int64_t)x * multiplier"),
    ("short", 15, "(int64_t)x * (int16_t)multiplier"),
):
    define(
        f"requantize_{_mode}",
        f"""
/* x * multiplier * 2^(shift - {_bits}), rounded once, halves up. */
static inline int32_t requantize_{_mode}(int32_t x, int32_t multiplier, int32_t shift, int32_t zero_point,
                                        int32_t low, int32_t high)
{{
    const int32_t places = (shift > {_bits - 1}) ? {_bits - 1} : ((shift < -31) ? -31 : shift);
    const int32_t right = {_bits} - places;
    const int64_t scaled = ({_product} + ((int64_t)1 << (right - 1))) >> right;"""
        + _SATURATED,
    )

for _word, _type, _low, _high, _beyond in (
    ("i32", "int32_t", "INT32_MIN", "INT32_MAX", "2147483648.0f"),
    ("i64", "int64_t", LEAST_I64, "INT64_MAX", "9223372036854775808.0f"),
):
    define(
        f"{_word}_of_f32" if _word == "i64" else "whole_i32",
        f"""
/* Cut off after the point; at the ends what fits; 0 for NaN. */
static inline {_type} {f"{_word}_of_f32" if _word == "i64" else "whole_i32"}(float x)
{{
    if (x != x) {{
        return 0;
    }}
    if (x >= {_beyond}) {{
        return {_high};
    }}
    return (x < -{_beyond}) ? {_low} : ({_type})x;
}}""",
    )
define(
    "i32_of_f32",
    """
static inline int32_t i32_of_f32(float x)
{
    return whole_i32(x);
}""",
    "whole_i32",
)
define(
    "u32_of_f32",
    """
/* Cut off after the point; at the ends what fits; 0 for NaN. */
static inline uint32_t u32_of_f32(float x)
{
    if (!(x > 0.0f)) {
        return 0u;
    }
    return (x >= 4294967296.0f) ? UINT32_MAX : (uint32_t)x;
}""",
)
define(
    "narrow_of_f32",
    """
/* Cut off after the point; at the ends what fits; 0 for NaN. */
static inline int32_t narrow_of_f32(float x, int32_t low, int32_t high)
{
    const int32_t whole = whole_i32(x);
    if (whole < low) {
        return low;
    }
    return (whole > high) ? high : whole;
}""",
    "whole_i32",
)

define("sigmoid_f32", "static inline float sigmoid_f32(float x)\n{\n    return 1.0f / (1.0f + expf(-x));\n}", "math")
define("silu_f32", "static inline float silu_f32(float x)\n{\n    return x / (1.0f + expf(-x));\n}", "math")
define("rsqrt_f32", "static inline float rsqrt_f32(float x)\n{\n    return 1.0f / sqrtf(x);\n}", "math")
define(
    "gelu_f32",
    "static inline float gelu_f32(float x)\n{\n    return 0.5f * x * (1.0f + erff(x * 0.70710678f));\n}",
    "math",
)
define(
    "gelu_approx_f32",
    """
static inline float gelu_approx_f32(float x)
{
    return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
}""",
    "math",
)

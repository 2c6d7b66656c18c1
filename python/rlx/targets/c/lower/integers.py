"""Division, remainders, shifts and bits of integers in C. Functions define the cases that C leaves undefined."""

from __future__ import annotations

from typing import Any

from rlx.ir.dtype import DType, i64
from rlx.targets.c.lower.helpers import define
from rlx.targets.c.lower.values import STORED, Scalar, computed_in, scalar

_BITS = {"and": "&", "or": "|", "xor": "^"}
_DIVISIONS = {"rem": "%", "trunc_div": "/"}
KINDS = (*_BITS, *_DIVISIONS, "shift_left", "shift_right")


def binary(body: Any, a: Scalar, b: Scalar, kind: str, dtype: DType) -> Scalar:
    """A function of two integers, one of `KINDS`."""
    if kind in _BITS:
        return scalar(f"{a.term} {_BITS[kind]} {b.term}", dtype, simple=False)
    bits = 8 * dtype.itemsize
    if kind in _DIVISIONS:
        if b.fixed and b.low not in (0, -1):
            return scalar(f"{a.term} {_DIVISIONS[kind]} {b.term}", dtype, _bounds(a, b.low, kind), simple=False)
        arguments = f"{a.text}, {b.text}"
    elif kind == "shift_right" and b.fixed and 0 <= b.low < bits:
        return scalar(f"{a.term} >> {b.low}", dtype, (a.low >> b.low, a.high >> b.low), simple=False)
    else:
        arguments = f"{a.text}, {b.text}, {bits}"
    wide = computed_in(dtype)
    text = f"{body.need(f'{kind}_{wide.name}')}({arguments})"
    # Narrow integers are computed in 32 bits, and the result is wrapped.
    return scalar(text if wide is dtype else f"({STORED[dtype.name]}){text}", dtype, simple=wide is dtype)


def _bounds(a: Scalar, divisor: int, kind: str) -> tuple[int, int]:
    if kind == "rem":
        most = abs(divisor) - 1
        return (max(-most, a.low) if a.low < 0 else 0), (min(most, a.high) if a.high > 0 else 0)
    ends = [abs(v) // abs(divisor) * (1 if (v < 0) == (divisor < 0) else -1) for v in (a.low, a.high)]
    return min(ends), max(ends)


def popcount(body: Any, x: Scalar, dtype: DType) -> Scalar:
    """The number of bits of an integer that are 1."""
    word = "u64" if dtype is i64 else "u32"
    text = f"{body.need(f'popcount_{word}')}((uint{8 * dtype.itemsize}_t){x.term})"
    return scalar(text, dtype, (0, 8 * dtype.itemsize))


for _word, _type, _unsigned, _sign in (("i32", "int32_t", "uint32_t", 31), ("i64", "int64_t", "uint64_t", 63)):
    define(
        f"rem_{_word}",
        f"""
/* What is left of a / b, toward zero: a for b = 0. */
static inline {_type} rem_{_word}({_type} a, {_type} b)
{{
    if (b == 0) {{
        return a;
    }}
    return (b == -1) ? 0 : (a % b);
}}""",
    )
    define(
        f"trunc_div_{_word}",
        f"""
/* a / b, toward zero: -1 for b = 0, and without the bit that does not fit. */
static inline {_type} trunc_div_{_word}({_type} a, {_type} b)
{{
    if (b == 0) {{
        return -1;
    }}
    return (b == -1) ? ({_type})(0u - ({_unsigned})a) : (a / b);
}}""",
    )
    define(
        f"shift_left_{_word}",
        f"""
/* Without the bits that do not fit; 0 where the count is not in [0, bits). */
static inline {_type} shift_left_{_word}({_type} a, {_type} count, int32_t bits)
{{
    return ((count < 0) || (count >= bits)) ? 0 : ({_type})(({_unsigned})a << count);
}}""",
    )
    define(
        f"shift_right_{_word}",
        f"""
/* With the sign, of which alone there is something left where the count is not in [0, bits). */
static inline {_type} shift_right_{_word}({_type} a, {_type} count, int32_t bits)
{{
    return a >> (((count < 0) || (count >= bits)) ? {_sign} : (int32_t)count);
}}""",
    )
define(
    "rem_u32",
    """
/* What is left of a / b: a for b = 0. */
static inline uint32_t rem_u32(uint32_t a, uint32_t b)
{
    return (b == 0u) ? a : (a % b);
}""",
)
define(
    "trunc_div_u32",
    """
/* a / b: all bits for b = 0. */
static inline uint32_t trunc_div_u32(uint32_t a, uint32_t b)
{
    return (b == 0u) ? UINT32_MAX : (a / b);
}""",
)
for _name, _symbol in (("shift_left", "<<"), ("shift_right", ">>")):
    define(
        f"{_name}_u32",
        f"""
/* 0 where the count is not in [0, bits). */
static inline uint32_t {_name}_u32(uint32_t a, uint32_t count, uint32_t bits)
{{
    return (count >= bits) ? 0u : (a {_symbol} count);
}}""",
    )
define(
    "popcount_u32",
    """
/* How many bits are 1. */
static inline int32_t popcount_u32(uint32_t x)
{
    const uint32_t pairs = x - ((x >> 1) & 0x55555555u);
    const uint32_t fours = (pairs & 0x33333333u) + ((pairs >> 2) & 0x33333333u);
    const uint32_t bytes = (fours + (fours >> 4)) & 0x0F0F0F0Fu;
    return (int32_t)((bytes * 0x01010101u) >> 24);
}""",
)
define(
    "popcount_u64",
    """
/* How many bits are 1. */
static inline int32_t popcount_u64(uint64_t x)
{
    return popcount_u32((uint32_t)(x & UINT32_MAX)) + popcount_u32((uint32_t)(x >> 32));
}""",
    "popcount_u32",
)

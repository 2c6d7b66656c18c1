"""Ops of ui64, which is held in i64 by its bits, and of ui16, which is held in u32: those that signs or the width concern."""

from __future__ import annotations

from typing import Any

from rlx.importers.stablehlo.numbers import bitcast_convert, count_leading_zeros
from rlx.importers.stablehlo.rules import imports
from rlx.importers.stablehlo.types import flipped
from rlx.ir.builder import Tensor
from rlx.ir.shape import Shape

_HALF_WORD = 16


def _shifted(g: Any, kind: str, x: Tensor, count: int) -> Tensor:
    return g.binary(kind, x, g.full(x.shape.dims, count, x.dtype))


def _halved(g: Any, x: Tensor) -> Tensor:
    return g.shift_right_logical(x, g.full(x.shape.dims, 1, x.dtype))


@imports("compare of ui64")
def compare(g: Any, a: Tensor, b: Tensor, *, comparison_direction: str, compare_type: str = "UNSIGNED") -> Tensor:
    return g.compare(comparison_direction.lower(), flipped(g, a), flipped(g, b))


@imports("maximum of ui64")
def maximum(g: Any, a: Tensor, b: Tensor) -> Tensor:
    return flipped(g, g.maximum(flipped(g, a), flipped(g, b)))


@imports("minimum of ui64")
def minimum(g: Any, a: Tensor, b: Tensor) -> Tensor:
    return flipped(g, g.minimum(flipped(g, a), flipped(g, b)))


@imports("clamp of ui64")
def clamp(g: Any, low: Tensor, x: Tensor, high: Tensor) -> Tensor:
    return minimum(g, maximum(g, x, low), high)


@imports("divide of ui64")
def divide(g: Any, a: Tensor, b: Tensor) -> Tensor:
    """By the signed quotient of half of a, doubled, which is too small by one at most; -1, all bits, for b = 0."""
    large = b < 0
    divisor = g.where(large | g.eq(b, 0), 1, b)
    quotient = _shifted(g, "shift_left", g.binary("trunc_div", _halved(g, a), divisor), 1)
    rest = a - quotient * divisor
    quotient = quotient + g.cast(flipped(g, rest) >= flipped(g, divisor), "i64")
    quotient = g.where(large, g.cast(flipped(g, a) >= flipped(g, b), "i64"), quotient)
    return g.where(g.eq(b, 0), -1, quotient)


@imports("remainder of ui64")
def remainder(g: Any, a: Tensor, b: Tensor) -> Tensor:
    return a - divide(g, a, b) * b  # a itself for b = 0


@imports("power of ui64")
def power(g: Any, a: Tensor, b: Tensor) -> Tensor:
    """The square of the power by half of b, once more times a if b is odd: the half has no sign."""
    root = g.pow(a, _halved(g, b))
    return root * root * g.where(g.eq(g.bitwise_and(b, 1), 0), 1, a)


@imports("convert of ui64")
def convert(g: Any, x: Tensor, *, results: list[Shape], unsigned: tuple[bool, bool]) -> Tensor:
    """From floats and to floats; integers keep their bits, to which zeros or signs are put."""
    kind = results[0].dtype
    if unsigned[1] and x.dtype.is_float:
        large = x >= 2.0**63 if x.dtype.name != "f16" else g.full(x.shape.dims, False, "bool")
        return g.where(large, flipped(g, g.cast(g.where(large, x - 2.0**63, 0.0), "i64")), g.cast(x, "i64"))
    if not unsigned[0] or not (kind.is_float or kind.is_complex):
        return g.cast(x, kind)
    # Half of a number that has no place in i64, the last bit kept so that it is rounded as the whole.
    half = g.bitwise_or(_halved(g, x), g.bitwise_and(x, 1))
    return g.where(x < 0, g.cast(half, kind) * 2, g.cast(x, kind))


@imports("chlo.top_k of ui64")
def top_k(g: Any, x: Tensor, *, k: int) -> list[Tensor]:
    values, places = g.topk(flipped(g, x), k)
    return [flipped(g, values), places]


@imports("bitcast_convert of ui16")
def bitcast_of_half_words(g: Any, x: Tensor, *, results: list[Shape], unsigned: tuple[bool, bool]) -> Tensor:
    x = g.cast(x, "i16") if unsigned[0] else x
    if not unsigned[1]:
        return bitcast_convert(g, x, results=results)
    bits = bitcast_convert(g, x, results=[results[0].with_dtype("i16")])
    return g.bitwise_and(g.cast(bits, "u32"), 2**_HALF_WORD - 1)


@imports("count_leading_zeros of ui16")
def leading_zeros_of_half_words(g: Any, x: Tensor) -> Tensor:
    return count_leading_zeros(g, x) - _HALF_WORD


@imports("shift_right_arithmetic of ui16")
def shift_right_arithmetic(g: Any, a: Tensor, b: Tensor) -> Tensor:
    """The highest bit counts as a sign."""
    signed = _shifted(g, "shift_right", _shifted(g, "shift_left", g.cast(a, "i32"), _HALF_WORD), _HALF_WORD)
    return g.cast(g.binary("shift_right", signed, g.cast(b, "i32")), "u32")

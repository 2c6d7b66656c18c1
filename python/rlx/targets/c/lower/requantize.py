"""Requantisation: multiplication by fixed-point numbers. Known multipliers and bounds select shorter code."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.dtype import DType, i32
from rlx.ir.shape import Shape, shape_of
from rlx.ops.quantization.requantize import BITS, RIGHTMOST, FixedPoint, Requantization
from rlx.targets.c.lower.grouping import constant_of
from rlx.targets.c.lower.kernel import IndexBody
from rlx.targets.c.lower.rules import looks_up
from rlx.targets.c.lower.values import Index, Scalar, broadcast, limits, scalar


@looks_up("requantize")
def requantize(
    body: IndexBody,
    index: Index,
    result: Shape,
    x: mlir.Value,
    factor: FixedPoint[mlir.Value],
    *,
    requantization: Requantization,
) -> Scalar:
    """`saturate(round(x·multiplier·2^(shift - bits)) + zero_point)`. All forms are exact."""
    operands = [(v, broadcast(index, shape_of(v).static)) for v in (x, factor.multiplier, factor.shift)]
    sum_ = body.element(*operands[0])
    known = [constant_of(factor.multiplier), constant_of(factor.shift)]
    if known[0] is not None and known[1] is not None:
        factors = Factors(known[0], known[1], requantization.mode, requantization.zero_point, max(-sum_.low, sum_.high))
        if factors.fits:
            return _short(body, index, sum_, factors, requantization.dtype)
    by, places = (body.element(*o) for o in operands[1:])
    low, high = (_bound(n) for n in limits(requantization.dtype))
    function = body.need(f"requantize_{requantization.mode}")
    arguments = (sum_.text, by.text, places.text, requantization.zero_point, low, high)
    return scalar(f"{function}({', '.join(map(str, arguments))})", requantization.dtype)


def _bound(number: int) -> str:
    return {-(2**31): "INT32_MIN", 2**31 - 1: "INT32_MAX"}.get(number, str(number))


class Factors:
    """Known multipliers and shifts, and the short forms for small sums.

    There are two short forms, both exact, with `rounding = half + zero_point·2^right` and `half = 2^right / 2`:

        double: `(h - (h < 0) + rounding) >> right`, `h = (2x·multiplier + 2^31) >> 32`, for a shift of `-right`, which must
            not be a left shift. Without a shift there is no second rounding, and `h < 0` is omitted.
        single, short: `(h + rounding) >> right`, `h = (x·multiplier) >> 32`. `right` is the shift in addition to 32, and
            must be at least 1, so that `half` is an integer.

    Attributes:
        fits: Whether a form applies to all multipliers and shifts, without overflow.
        is_double: Whether it is the form `double`.
        multiplier: i32; for `short` it is shifted left by 16.
        rounding: i32.
        right: The shift.
    """

    def __init__(self, multiplier: Any, shift: Any, mode: str, zero_point: int, bound: int):
        m, s = np.broadcast_arrays(np.asarray(multiplier, np.int64), np.asarray(shift, np.int64))
        s = np.clip(s, RIGHTMOST, BITS[mode] - 1)
        if mode == "short":
            m = m.astype(np.int16).astype(np.int64) << 16
        self.is_double = mode == "double"
        right = -s if self.is_double else -s - 1
        self.fits = bool((right >= (0 if self.is_double else 1)).all() and (right <= 30).all()) and bound < 2**31
        if not self.fits or (self.is_double and bound >= 2**30):
            self.fits = False
            return
        rounding = ((np.int64(1) << right) >> 1) + (np.int64(zero_point) << right)
        greatest = (((2 if self.is_double else 1) * bound * np.abs(m)) >> 32) + 2 + np.abs(rounding)
        self.fits = bool((greatest < 2**31).all())
        self.bounds = self._bounds(bound, m, rounding, right)
        self.multiplier, self.rounding, self.right = (v.astype(np.int32) for v in (m, rounding, right))

    def _bounds(self, bound: int, m: np.ndarray, rounding: np.ndarray, right: np.ndarray) -> tuple[int, int]:
        """The least and greatest result before saturation."""
        high = (((2 if self.is_double else 1) * bound * np.abs(m)) >> 32) + 2
        return int(((rounding - high) >> right).min()), int(((rounding + high) >> right).max())


def _short(body: IndexBody, index: Index, sum_: Scalar, factors: Factors, dtype: DType) -> Scalar:
    """The short form for known factors."""
    at = broadcast(index, factors.multiplier.shape)
    arrays = {"multiplier": factors.multiplier, "rounding": factors.rounding, "shift": factors.right}
    by, rounding, right = (body.lookup(array, at, i32, what) for what, array in arrays.items())
    product = body.need("rounded_high_product" if factors.is_double else "high_product")
    twice = f"2 * {sum_.term}" if factors.is_double else sum_.text
    high = body.local(scalar(f"{product}({twice}, {by.text})", i32), "high").text
    text = high
    if factors.is_double and factors.right.any():
        text = f"{high} - (({high} < 0) ? 1 : 0)"
        if not factors.right.all():
            text = f"{high} - ((({high} < 0) && ({right.text} > 0)) ? 1 : 0)"
    if not rounding.fixed:
        text = f"{text} + {rounding.text}"
    elif rounding.low:
        text = f"{text} {'-' if rounding.low < 0 else '+'} {abs(rounding.low)}"
    if factors.right.any():
        text = f"({text}) >> {right.term}"
    return saturated(body, text, factors.bounds, dtype)


def saturated(body: IndexBody, text: str, bounds: tuple[int, int], dtype: DType) -> Scalar:
    """An i32 expression, saturated to a dtype."""
    low, high = limits(dtype)
    if low <= bounds[0] and bounds[1] <= high:
        return scalar(text, dtype, bounds, simple=False)
    return scalar(f"{body.need(f'saturate_{dtype.name}')}({text})", dtype)

"""Elementwise helpers of NumPy, SciPy and PyTorch that are composed of a few ops, and comparisons within tolerances."""

from __future__ import annotations

import math

from rlx.ir.dtype import f32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike
from rlx.ops.lift import cast, common, in_compute, inexact, tensor_like
from rlx.ops.surface import helper

# Below this argument, `sinc` is this number of terms of its series, which is exact in f64. Derivatives of the quotient
# lose digits near 0.
_NEAR_SINC, _SINC_TERMS = 0.15, 9


@helper
@in_compute
def deg2rad(b: Builder, x: TensorLike) -> Tensor:
    """NumPy's `deg2rad`: degrees as radians."""
    return inexact(b, tensor_like(b, x, f32)) * (math.pi / 180)


@helper
@in_compute
def rad2deg(b: Builder, x: TensorLike) -> Tensor:
    """NumPy's `rad2deg`: radians as degrees."""
    return inexact(b, tensor_like(b, x, f32)) * (180 / math.pi)


@helper
@in_compute
def sinc(b: Builder, x: TensorLike) -> Tensor:
    """NumPy's `sinc`: sin(πx)/(πx), and 1 at 0."""
    x = inexact(b, tensor_like(b, x, f32))
    near = b.abs(x) < _NEAR_SINC
    angle = b.where(near, 1.0, x) * math.pi
    square = b.square(b.where(near, x, 0.0) * math.pi)
    series = b.full_like(x, 0.0)
    for n in reversed(range(_SINC_TERMS)):
        series = series * square + (-1) ** n / math.factorial(2 * n + 1)
    return b.where(near, series, b.sin(angle) / angle)


@helper
@in_compute
def heaviside(b: Builder, x: TensorLike, values: TensorLike) -> Tensor:
    """NumPy's `heaviside`: 0 below 0, 1 above 0, `values` at 0, NaN for NaN."""
    x, values = (inexact(b, v) for v in common(b, x, values))
    return b.where(x == 0, values, b.where(b.isnan(x), x, cast(b, x > 0, x.dtype)))


@helper
@in_compute
def frac(b: Builder, x: TensorLike) -> Tensor:
    """PyTorch's `frac`: the fractional part, with the sign of x."""
    x = tensor_like(b, x, f32)
    return x - b.trunc(x)


@helper
@in_compute
def lerp(b: Builder, start: TensorLike, end: TensorLike, weight: TensorLike) -> Tensor:
    """PyTorch's `lerp`: `start + weight·(end - start)`."""
    start, end, weight = common(b, start, end, weight)
    return start + weight * (end - start)


@helper
@in_compute
def logit(b: Builder, x: TensorLike) -> Tensor:
    """SciPy's `logit`: log(x/(1 - x)), the inverse of the sigmoid."""
    x = inexact(b, tensor_like(b, x, f32))
    return b.log(x) - b.log1p(-x)


@helper
@in_compute
def xlogy(b: Builder, x: TensorLike, y: TensorLike) -> Tensor:
    """SciPy's `xlogy`: x·log(y), and 0 for x = 0 unless y is NaN."""
    x, y = (inexact(b, v) for v in common(b, x, y))
    # Where the logarithm is finite, the product is already 0, and its derivative with respect to x is log(y).
    finite = (y != 0 if y.dtype.is_complex else y > 0) & b.isfinite(y)
    zero = (x == 0) & b.bitwise_not(b.isnan(y) | finite)
    return b.where(zero, 0.0, x * b.log(b.where(zero, 1.0, y)))


@helper
@in_compute
def isclose(
    b: Builder, lhs: TensorLike, rhs: TensorLike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """NumPy's `isclose`: whether `|lhs - rhs| <= atol + rtol·|rhs|`, or both are the same infinity."""
    lhs, rhs = (inexact(b, v) for v in common(b, lhs, rhs))
    near = (b.abs(lhs - rhs) <= atol + rtol * b.abs(rhs)) & b.isfinite(rhs)
    near = near | (lhs == rhs)
    return near | (b.isnan(lhs) & b.isnan(rhs)) if equal_nan else near


@helper
@in_compute
def allclose(
    b: Builder, lhs: TensorLike, rhs: TensorLike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """NumPy's `allclose`: whether all elements are close; a bool scalar."""
    return b.all(isclose(b, lhs, rhs, rtol, atol, equal_nan))


@helper
@in_compute
def array_equal(b: Builder, lhs: TensorLike, rhs: TensorLike) -> Tensor:
    """NumPy's `array_equal`: whether shapes and all elements are equal; a bool scalar."""
    lhs, rhs = common(b, lhs, rhs)
    return b.all(lhs == rhs) if lhs.shape.dims == rhs.shape.dims else b.constant(False)

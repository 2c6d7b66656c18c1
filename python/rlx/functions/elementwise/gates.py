"""Activations that are composed of other ops. They do not overflow, and have the gradients of JAX."""

from __future__ import annotations

import math

from rlx.functions.elementwise.numbers import real
from rlx.ir.dtype import f32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike
from rlx.ops.lift import axis_of, common, in_compute, inexact, tensor_like
from rlx.ops.surface import helper

# G. Klambauer et al., "Self-Normalizing Neural Networks", 2017.
_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805


def _float(b: Builder, x: object) -> Tensor:
    return inexact(b, real(b, x))


def _inexact(b: Builder, x: object) -> Tensor:
    """Return a float or complex tensor."""
    return inexact(b, tensor_like(b, x, f32))


def _principal(b: Builder, z: Tensor) -> Tensor:
    """Return a logarithm whose imaginary part is between -π and π; floats are returned unchanged."""
    if not z.dtype.is_complex:
        return z
    turns = b.stop_gradient(b.round(b.imag(z) / (2 * math.pi)))  # the derivative of `round` is the identity
    return b.complex(b.real(z), b.imag(z) - turns * (2 * math.pi))


def _side(b: Builder, x: Tensor) -> Tensor:
    """Return the tensor, or the real part of complex numbers. Its sign selects the formula that does not overflow."""
    return b.real(x) if x.dtype.is_complex else x


@helper
@in_compute
def softplus(b: Builder, x: TensorLike, beta: float = 1.0) -> Tensor:
    """`log(1 + exp(beta·x))/beta`, without overflow and without loss of digits for small results."""
    x = _inexact(b, x)
    if beta != 1:
        return softplus(b, x * beta) / beta
    # Both formulas are smooth. A formula with |x| and a maximum would have second derivative 0 at 0.
    upper = _side(b, x) > 0.0
    return _principal(b, b.where(upper, x, 0.0) + b.log1p(b.exp(b.where(upper, -x, x))))


@helper
@in_compute
def log_sigmoid(b: Builder, x: TensorLike) -> Tensor:
    """`log(sigmoid(x)) = -softplus(-x)`."""
    return -softplus(b, -_inexact(b, x))


@helper
@in_compute
def logaddexp(b: Builder, lhs: TensorLike, rhs: TensorLike) -> Tensor:
    """NumPy's `logaddexp`: `log(exp(lhs) + exp(rhs))`, for floats or complex numbers."""
    lhs, rhs = (inexact(b, v) for v in common(b, lhs, rhs))
    # Both formulas are smooth where they are equal. With a maximum and |lhs - rhs|, second derivatives would be 0
    # there.
    swapped = _side(b, rhs) > _side(b, lhs)
    gap = b.where(swapped, lhs, rhs) - b.where(swapped, rhs, lhs)
    same = (lhs == rhs) & b.isinf(lhs)  # inf - inf and -inf + inf are undefined
    return _principal(b, b.where(swapped, rhs, lhs) + b.log1p(b.exp(b.where(same, 0.0, gap))))


@helper
@in_compute
def leaky_relu(b: Builder, x: TensorLike, negative_slope: float = 0.01) -> Tensor:
    """`x`, and `negative_slope * x` below 0."""
    x = _float(b, x)
    return b.where(x >= 0.0, x, x * negative_slope)


@helper
@in_compute
def elu(b: Builder, x: TensorLike, alpha: float = 1.0) -> Tensor:
    """`x`, and `alpha * (exp(x) - 1)` below 0."""
    x = _float(b, x)
    upper = x > 0.0
    return b.where(upper, x, b.expm1(b.where(upper, 0.0, x)) * alpha)


@helper
@in_compute
def celu(b: Builder, x: TensorLike, alpha: float = 1.0) -> Tensor:
    """`x`, and `alpha * (exp(x / alpha) - 1)` below 0."""
    x = _float(b, x)
    upper = x > 0.0
    return b.where(upper, x, b.expm1(b.where(upper, 0.0, x) * (1 / alpha)) * alpha)


@helper
@in_compute
def selu(b: Builder, x: TensorLike) -> Tensor:
    """`elu` with the factors of self-normalising networks."""
    return elu(b, x, _SELU_ALPHA) * _SELU_SCALE


@helper
@in_compute
def relu6(b: Builder, x: TensorLike) -> Tensor:
    """`x` clamped to [0, 6]."""
    return b.minimum(b.relu(_float(b, x)), 6.0)


@helper
@in_compute
def hard_tanh(b: Builder, x: TensorLike) -> Tensor:
    """`x` clamped to [-1, 1]."""
    return b.clip(_float(b, x), -1.0, 1.0)


@helper
@in_compute
def hard_sigmoid(b: Builder, x: TensorLike) -> Tensor:
    """`relu6(x + 3) / 6`."""
    return relu6(b, _float(b, x) + 3.0) / 6.0


@helper
@in_compute
def hard_swish(b: Builder, x: TensorLike) -> Tensor:
    """`x * relu6(x + 3) / 6`."""
    x = _float(b, x)
    return x * hard_sigmoid(b, x)


@helper
@in_compute
def mish(b: Builder, x: TensorLike) -> Tensor:
    """`x * tanh(softplus(x))`."""
    x = _inexact(b, x)
    return x * b.tanh(softplus(b, x))


@helper
@in_compute
def soft_sign(b: Builder, x: TensorLike) -> Tensor:
    """`x / (1 + |x|)`."""
    x = _inexact(b, x)
    return x / (b.abs(x) + 1.0)


@helper
@in_compute
def glu(b: Builder, x: TensorLike, axis: int = -1) -> Tensor:
    """The first half along an axis, times the sigmoid of the second half."""
    x = _inexact(b, x)
    first, second = b.split(x, 2, axis_of(axis, x.rank))
    return first * b.sigmoid(second)


@helper
@in_compute
def hypot(b: Builder, lhs: TensorLike, rhs: TensorLike) -> Tensor:
    """NumPy's `hypot`: `sqrt(lhs² + rhs²)`, without overflow of the squares; infinite if one operand is."""
    lhs, rhs = (_float(b, v) for v in common(b, lhs, rhs))
    infinite = b.isinf(lhs) | b.isinf(rhs)
    lhs, rhs = (b.where(infinite, 0.0, v) for v in (lhs, rhs))
    scale = b.maximum(b.abs(lhs), b.abs(rhs))
    zero = scale == 0.0
    # The scale only prevents overflow. A root of squares has correct derivatives of any order; |x| has none at 0.
    scale = b.stop_gradient(b.where(zero, 1.0, scale))
    lhs, rhs = lhs / scale, rhs / scale
    size = b.where(zero, 0.0, b.sqrt(b.where(zero, 1.0, lhs * lhs + rhs * rhs)) * scale)
    return b.where(infinite, float("inf"), size)


@helper
@in_compute
def log_softmax(b: Builder, x: TensorLike, axis: int = -1) -> Tensor:
    """The logarithm of `softmax` along an axis, computed as `x - logsumexp(x)` to avoid the rounding of `softmax`."""
    x = _float(b, x)
    shifted = x - b.stop_gradient(b.max(x, axis, True))
    return shifted - b.log(b.sum(b.exp(shifted), axis, True))

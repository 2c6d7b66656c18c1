"""Functions with a closed-form derivative, which stays finite where the derivative of their individual ops overflows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph


def integer_power(g: Graph, x: Tensor, exponent: int) -> Tensor:
    """Return `x**exponent`, computed by multiplications as in JAX."""
    if exponent == 0:
        return g.ones_like(x)
    if exponent > 0 or not x.dtype.is_inexact:
        return _product(x, exponent)
    return inverse_power(g, x, -exponent)


def inverse_power(g: Graph, x: Tensor, exponent: int) -> Tensor:
    """Return `1/x**exponent` for a positive exponent.

    The quotient rule would square a value that can overflow. The derivative here uses a power of `1/x`, which does not
    overflow.
    """

    def slope(args: Sequence[Tensor], tangents: Sequence[Tensor]) -> tuple[Tensor]:
        return (-(tangents[0] * (_product(1.0 / args[0], exponent + 1) * float(exponent))),)

    def inverse(x: Tensor) -> Tensor:
        found = 1.0 / _product(x, exponent)
        # A product of infinite complex numbers can be NaN in both parts.
        return g.where(g.isinf(x), 0.0, found) if x.dtype.is_complex else found

    return g.custom_fn(inverse, x, jvp=slope)


def _product(x: Tensor, exponent: int) -> Tensor:
    """Return a positive power of `x`, by repeated squaring."""
    result: Tensor | None = None
    while True:
        if exponent & 1:
            result = x if result is None else result * x
        exponent >>= 1
        if not exponent:
            assert result is not None
            return result
        x = x * x


def logit(g: Graph, x: Tensor) -> Tensor:
    """Return `log(x/(1 - x))`, with the derivative `1/(x·(1 - x))`."""

    def slope(args: Sequence[Tensor], tangents: Sequence[Tensor]) -> tuple[Tensor]:
        return (tangents[0] / (args[0] * (1.0 - args[0])),)

    return g.custom_fn(lambda x: g.log(x / (1.0 - x)), x, jvp=slope)


def absolute(g: Graph, x: Tensor) -> Tensor:
    """Return `|x|` with JAX's derivative at 0, which is 1. `sqrt(|x|)` and `hypot` then have JAX's derivatives too."""

    def slope(args: Sequence[Tensor], tangents: Sequence[Tensor]) -> tuple[Tensor]:
        return (args[0].builder.where(args[0] >= 0.0, tangents[0], -tangents[0]),)

    return g.custom_fn(lambda x: g.abs(x), x, jvp=slope) if x.dtype.is_float else g.abs(x)


def odd_product(g: Graph, x: Tensor, sign: Tensor, y: Tensor) -> Tensor:
    """Return `sign·y`, where `sign` is the sign of `x` and `y` depends on `|x|`.

    At 0 the sign is 0. The derivative there is that of `y` for positive `x`.
    """

    def slope(args: Sequence[Tensor], tangents: Sequence[Tensor]) -> tuple[Tensor]:
        sign, _ = args
        return (tangents[1] * args[0].builder.where(sign == 0.0, 1.0, sign),)

    return g.custom_fn(lambda sign, y: sign * y, g.stop_gradient(sign), y, jvp=slope)


def product_with_log(g: Graph, x: Tensor, y: Tensor, result: Tensor, kind: str) -> Tensor:
    """Return `result`, with the derivative `log(y)` (or `log1p(y)`) with respect to `x` also at x = 0.

    `result` is `x·log(y)` or `x·log1p(y)`, and 0 if x = 0.
    """

    def slope(args: Sequence[Tensor], tangents: Sequence[Tensor]) -> tuple[Tensor]:
        b, (x, y, _) = args[0].builder, args
        if is_one_operand:
            return ((tangents[0] + tangents[1]) * 0.5 * (b.log(x) + 1.0),)
        divisor = y if kind == "log" else y + 1.0
        return (tangents[0] * getattr(b, kind)(y) + tangents[1] * x / divisor,)

    is_one_operand = kind == "log" and x.value == y.value
    return _with_slope(g, result, (x, y), slope)


def logaddexp(g: Graph, x: Tensor, y: Tensor, result: Tensor) -> Tensor:
    """Return `result`, which is `log(exp(x) + exp(y))`, with the derivative of `jax.numpy.logaddexp`."""

    def slope(args: Sequence[Tensor], tangents: Sequence[Tensor]) -> tuple[Tensor]:
        b, pair = args[0].builder, args[:2]
        total = _without_infinity(b, b.logaddexp(*pair))
        shares = [t * b.exp(_without_infinity(b, a) - total) for a, t in zip(pair, tangents, strict=False)]
        return (shares[0] + shares[1],)

    return _with_slope(g, result, (x, y), slope)


def _without_infinity(g: Graph, x: Tensor) -> Tensor:
    return g.where(x == math.inf, 0.0, x)


def _with_slope(g: Graph, result: Tensor, args: Sequence[Tensor], slope: Callable[..., tuple[Tensor]]) -> Tensor:
    """Return `result`, a function of `args`, with the derivative that the rule `slope` computes."""
    return g.custom_fn(lambda *xs: xs[-1], *args, g.stop_gradient(result), jvp=slope)


def atan2(g: Graph, y: Tensor, x: Tensor) -> Tensor:
    """Return the angle of a point, with the derivatives of `torch.atan2`. They are 0 if the squared distance is 0."""

    def slope(args: Sequence[Tensor], tangents: Sequence[Tensor]) -> tuple[Tensor]:
        b, (y, x) = args[0].builder, args
        square = y * y + x * x
        is_origin = square == 0.0
        inverse = b.where(is_origin, 0.0, 1.0 / b.where(is_origin, 1.0, square))
        return (tangents[0] * (x * inverse) - tangents[1] * (y * inverse),)

    return g.custom_fn(g.atan2, y, x, jvp=slope)


def clamped(g: Graph, low: Tensor, x: Tensor, high: Tensor) -> Tensor:
    """Return `x` clamped to two bounds, with the derivatives of `jax.lax.clamp`: all three are 0 at a bound."""
    dims = x.shape.dims
    low, high = (v if v.shape.dims == dims else g.expand(v, dims) for v in (low, high))

    def slope(args: Sequence[Tensor], tangents: Sequence[Tensor]) -> tuple[Tensor]:
        b, (low, x, high) = args[0].builder, args
        is_ordered = low < high
        by_low = b.where((low > x) & is_ordered, tangents[0], 0.0)
        by_x = b.where((x > low) & (x < high), tangents[1], 0.0)
        return (by_low + by_x + b.where(high < x, tangents[2], 0.0),)

    return g.custom_fn(lambda low, x, high: g.minimum(g.maximum(x, low), high), low, x, high, jvp=slope)


def relu6(g: Graph, x: Tensor) -> Tensor:
    """Return `x` clamped to [0, 6]. The derivative is 0 at both bounds."""

    def slope(args: Sequence[Tensor], tangents: Sequence[Tensor]) -> tuple[Tensor]:
        return (args[0].builder.where((args[0] > 0.0) & (args[0] < 6.0), tangents[0], 0.0),)

    return g.custom_fn(lambda x: g.minimum(g.maximum(x, 0.0), 6.0), x, jvp=slope)

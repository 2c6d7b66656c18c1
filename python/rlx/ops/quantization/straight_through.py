"""Derivatives of fake quantisation: rounding counts as the identity (straight-through), in several variants.

They are diagonal, so tangents and cotangents have the same factor. The factors of `fake_quantize` are functions of
`t = x/(qmax·scale)`, which is 1 at the largest representable number. f16 and bf16 are computed in f32.
"""

from __future__ import annotations

from rlx.ir.graph.builder import Builder, Tensor
from rlx.ops.elementwise.slopes import activation_derivative
from rlx.ops.norm import along, statistics_input


def straight_through(b: Builder, ste: str, d: Tensor, x: Tensor, limit: Tensor) -> Tensor:
    """Return a tangent or cotangent `d` times the factor of an estimator.

    Args:
        b: The builder.
        ste: The estimator, a `StraightThrough`.
        d: The tangent of `x`, or the cotangent of the rounded values.
        x: The operand of the rounding, in the dtype of `d`, f32 or f64.
        limit: The largest representable number, `qmax·scale`, which broadcasts against x.
    """
    if ste == "identity":
        return d
    if ste == "clipped_identity":
        return b.where(b.abs(x) <= limit, d, 0.0)
    empty = b.eq(limit, 0.0)  # every x is then rounded to 0 and counts as the middle of the range
    ratio = b.where(empty, 0.0, x / b.where(empty, 1.0, limit))
    if ste == "tanh":
        return d * activation_derivative(b, "tanh", ratio)
    return d * b.maximum(1.0 - b.abs(ratio), 0.0)


def steps_of(b: Builder, x: Tensor, scale: Tensor, axis: int | None) -> Tensor:
    """Return `x/scale` for a learned scale."""
    return statistics_input(b, x) / (scale if axis is None else along(b, scale, axis, x.rank))


def scale_slope(b: Builder, steps: Tensor, most: float) -> Tensor:
    """Return `d(clamp(round(z))·s)/ds` at `z = x/s` (Esser et al., Learned step size quantization, eq. 3).

    Args:
        b: The builder.
        steps: `z`. NaN, from x = s = 0, counts as 0.
        most: The largest step.
    """
    steps = b.where(b.eq(steps, steps), steps, 0.0)
    inside = b.abs(steps) <= most
    return b.where(inside, b.round(steps) - steps, b.minimum(b.maximum(steps, -most), most))

"""Patterns of `rlx-simplify{fast-math}` for sums: exact for real numbers, approximate for floats.

They assume that no value is NaN or infinite, and that sums and products may be rounded in another order.
"""

from __future__ import annotations

from fractions import Fraction

from rlx import mlir
from rlx.ir.dims.dim import product
from rlx.ir.dtype import f16
from rlx.ir.op import views
from rlx.ir.shape import shape_of
from rlx.passes.pattern import Rewriter, feeder, pattern, producer
from rlx.passes.simplification.expressions import represent
from rlx.passes.simplification.simplify_shape_rules import reduced_at_once
from rlx.passes.simplification.values import expand_like, scalar, splat


def _is_real(value: mlir.Value) -> bool:
    return shape_of(value).dtype.is_float


def _scaled(rewriter: Rewriter, value: mlir.Value, number: float) -> mlir.Value:
    return rewriter.emit("binary", [value, scalar(rewriter, number, value)], kind="mul")


@pattern
def sum_of_sum(op: views.Reduce, rewriter: Rewriter) -> mlir.Value | None:
    """Sums of sums, and means of means."""
    inner = feeder(op, op.x, views.Reduce)
    if inner is None or op.kind not in ("sum", "mean") or inner.kind != op.kind or inner.keep_dims != op.keep_dims:
        return None
    if not _is_real(op.result) or not _is_real(inner.x):
        return None
    return reduced_at_once(op, inner, rewriter)


@pattern
def sum_of_scaled(op: views.Reduce, rewriter: Rewriter) -> mlir.Value | None:
    """A sum or mean of scaled values is scaled afterwards."""
    inner = feeder(op, op.x, views.Binary)
    if inner is None or op.kind not in ("sum", "mean") or inner.kind != "mul" or not _is_real(op.result):
        return None
    for x, other in ((inner.lhs, inner.rhs), (inner.rhs, inner.lhs)):
        number = splat(other)
        if number is not None and x.type == op.x.type and op.axes and not _may_overflow(op, number):
            total = rewriter.emit("reduce", [x], kind=op.kind, axes=op.axes, keep_dims=op.keep_dims)
            return _scaled(rewriter, total, number)
    return None


def _may_overflow(op: views.Reduce, number: float) -> bool:
    """Whether a sum may leave the narrow range of f16 if it is scaled by a number afterwards."""
    return op.kind == "sum" and shape_of(op.result).dtype is f16 and abs(number) < 1


@pattern
def sum_of_expanded(op: views.Reduce, rewriter: Rewriter) -> mlir.Value | None:
    """A sum or mean along broadcast axes."""
    inner = producer(op.x, views.Expand)
    if inner is None or op.kind not in ("sum", "mean") or not _is_real(op.result) or not _is_real(op.x):
        return None
    dims, source = shape_of(op.x).dims, shape_of(inner.x).dims
    whole = (1,) * (len(dims) - len(source)) + source
    count = product(dims[a] for a in op.axes)
    if any(whole[a] != 1 for a in op.axes) or not isinstance(count, int) or not count:
        return None
    if represent(Fraction(count), shape_of(op.result).dtype, rounds=True) is None:
        return None
    kept = [a for a in range(len(dims)) if op.keep_dims or a not in op.axes]
    repeated = rewriter.emit("reshape", [inner.x], shape=tuple(whole[a] for a in kept))
    total = repeated if op.kind == "mean" else _scaled(rewriter, repeated, float(count))
    return expand_like(rewriter, total, op.result)

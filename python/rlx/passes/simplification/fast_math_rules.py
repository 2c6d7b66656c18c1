"""Additional patterns of `rlx-simplify{fast-math}`: exact for real numbers, approximate for floats.

They assume that no value is NaN or infinite, that the sign of zero does not matter, and that sums and products may be
rounded in another order.
"""

from __future__ import annotations

import math

from rlx import mlir
from rlx.ir.dims.dim import product
from rlx.ir.op import views
from rlx.ir.shape import shape_of
from rlx.passes.pattern import Rewriter, feeder, pattern, producer
from rlx.passes.simplification.simplify_rules import expand_like, if_alike, scalar, splat
from rlx.passes.simplification.simplify_shape_rules import reduced_at_once


def _is_real(value: mlir.Value) -> bool:
    return shape_of(value).dtype.is_float


def _scaled(rewriter: Rewriter, value: mlir.Value, number: float) -> mlir.Value:
    return rewriter.emit("binary", [value, scalar(rewriter, number, value)], kind="mul")


# --- numbers ----------------------------------------------------------------------------------------


@pattern
def zero(op: views.Binary, rewriter: Rewriter) -> mlir.Value | None:
    """`x + 0`, `x - 0`, `x·0`, `0 / x`, `0 - x`, with a zero of either sign."""
    if not _is_real(op.result):
        return None
    left, right = splat(op.lhs) == 0, splat(op.rhs) == 0
    if op.kind == "mul" and (left or right):
        return expand_like(rewriter, op.lhs if left else op.rhs, op.result)
    if op.kind == "div" and left:
        return expand_like(rewriter, op.lhs, op.result)
    if op.kind in ("add", "sub") and right:
        return if_alike(op.lhs, op.result)
    if op.kind in ("add", "sub") and left and if_alike(op.rhs, op.result) is not None:
        return op.rhs if op.kind == "add" else rewriter.emit("activation", [op.rhs], kind="neg")
    return None


@pattern
def of_itself(op: views.Binary, rewriter: Rewriter) -> mlir.Value | None:
    """`x - x` and `x / x`."""
    if op.kind not in ("sub", "div") or op.lhs != op.rhs or not _is_real(op.result):
        return None
    return expand_like(rewriter, scalar(rewriter, 0.0 if op.kind == "sub" else 1.0, op.result), op.result)


@pattern
def division(op: views.Binary, rewriter: Rewriter) -> mlir.Value | None:
    """Division by a number, and by a square root, become multiplications by the inverse or the reciprocal square root."""
    if op.kind != "div" or not _is_real(op.result):
        return None
    number = splat(op.rhs)
    if number is not None:
        limits = shape_of(op.rhs).dtype
        inverse = 1.0 / number if number else math.inf
        usable = limits.name in ("f32", "f64") and 1e-30 < abs(inverse) < 1e30
        return _scaled(rewriter, op.lhs, inverse) if usable and if_alike(op.lhs, op.result) is not None else None
    root = feeder(op, op.rhs, views.Activation)
    if root is None or root.kind != "sqrt":
        return None
    inverse_root = rewriter.emit("activation", [root.x], kind="rsqrt")
    return (
        inverse_root
        if splat(op.lhs) == 1 and inverse_root.type == op.result.type
        else rewriter.emit("binary", [op.lhs, inverse_root], kind="mul")
    )


@pattern
def numbers_in_a_row(op: views.Binary, rewriter: Rewriter) -> mlir.Value | None:
    """`(x + a) + b` and `(x·a)·b` with numbers a and b."""
    if op.kind not in ("add", "mul") or not _is_real(op.result):
        return None
    for value, other in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        inner = feeder(op, value, views.Binary)
        b = splat(other)
        if inner is None or b is None or inner.kind != op.kind or if_alike(value, op.result) is None:
            continue
        for x, number in ((inner.lhs, inner.rhs), (inner.rhs, inner.lhs)):
            a = splat(number)
            if a is not None and if_alike(x, op.result) is not None:
                both = scalar(rewriter, a + b if op.kind == "add" else a * b, op.result)
                return rewriter.emit("binary", [x, both], kind=op.kind)
    return None


# --- functions --------------------------------------------------------------------------------------


@pattern
def inverse_function(op: views.Activation, rewriter: Rewriter) -> mlir.Value | None:
    """`exp(log(x))`, `log(exp(x))`, and the root of a square."""
    inner = producer(op.x, views.Activation)
    if inner is not None and (op.kind, inner.kind) == ("exp", "log"):
        return inner.x
    # For complex x, log is periodic.
    if inner is not None and (op.kind, inner.kind) == ("log", "exp") and _is_real(op.result):
        return inner.x
    square = producer(op.x, views.Binary)
    if op.kind == "sqrt" and square is not None and square.kind == "mul" and square.lhs == square.rhs:
        return rewriter.emit("activation", [square.lhs], kind="abs") if _is_real(op.result) else None
    return None


@pattern
def power(op: views.Binary, rewriter: Rewriter) -> mlir.Value | None:
    """`x ** 2`, `x ** 0.5`, `x ** -0.5` and `x ** -1`."""
    exponent = splat(op.rhs) if op.kind == "pow" and _is_real(op.result) else None
    if exponent is None or if_alike(op.lhs, op.result) is None:
        return None
    if exponent == 2:
        return rewriter.emit("binary", [op.lhs, op.lhs], kind="mul")
    if exponent in (0.5, -0.5):
        return rewriter.emit("activation", [op.lhs], kind="sqrt" if exponent > 0 else "rsqrt")
    return rewriter.emit("binary", [scalar(rewriter, 1.0, op.lhs), op.lhs], kind="div") if exponent == -1 else None


@pattern
def product_of_exponentials(op: views.Binary, rewriter: Rewriter) -> mlir.Value | None:
    """exp(a)·exp(b)."""
    if op.kind != "mul" or op.lhs == op.rhs:
        return None
    a, b = (feeder(op, v, views.Activation) for v in (op.lhs, op.rhs))
    if a is None or b is None or not a.kind == b.kind == "exp":
        return None
    return rewriter.emit("activation", [rewriter.emit("binary", [a.x, b.x], kind="add")], kind="exp")


@pattern
def common_factor(op: views.Binary, rewriter: Rewriter) -> mlir.Value | None:
    """a·b + a·c and a·b - a·c."""
    if op.kind not in ("add", "sub") or not _is_real(op.result) or op.lhs == op.rhs:
        return None
    first, second = (feeder(op, v, views.Binary) for v in (op.lhs, op.rhs))
    if first is None or second is None or not first.kind == second.kind == "mul":
        return None
    if first.result.type != op.result.type or second.result.type != op.result.type:
        return None
    for a, b in ((first.lhs, first.rhs), (first.rhs, first.lhs)):
        for other, c in ((second.lhs, second.rhs), (second.rhs, second.lhs)):
            if a == other and b.type == c.type:
                return rewriter.emit("binary", [a, rewriter.emit("binary", [b, c], kind=op.kind)], kind="mul")
    return None


# --- sums -------------------------------------------------------------------------------------------


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
        if number is not None and x.type == op.x.type and op.axes:
            total = rewriter.emit("reduce", [x], kind=op.kind, axes=op.axes, keep_dims=op.keep_dims)
            return _scaled(rewriter, total, number)
    return None


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
    kept = [a for a in range(len(dims)) if op.keep_dims or a not in op.axes]
    repeated = rewriter.emit("reshape", [inner.x], shape=tuple(whole[a] for a in kept))
    total = repeated if op.kind == "mean" else _scaled(rewriter, repeated, float(count))
    return expand_like(rewriter, total, op.result)

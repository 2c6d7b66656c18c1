"""`rlx-recognize-norms`: creation of layer norms and RMS norms from primitives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.dims.dim import product
from rlx.ir.op import views
from rlx.ir.shape import shape_of
from rlx.passes.fusion.base import Fusion, operand_pairs
from rlx.passes.origins import Origin, mean_of, origin_of, stands_beside
from rlx.passes.pattern import Rewriter, has_one_use, pattern, producer
from rlx.passes.simplification.identities import KNOWN_CHOICES
from rlx.passes.simplification.values import splat


@pattern
def normalised(op: views.Binary, rewriter: Rewriter) -> Any:
    """`y / sqrt(mean y² + eps)`: a layer norm if `y` is `x - mean x`, else an RMS norm. Weights are matched later."""
    if op.kind not in ("mul", "div") or not shape_of(op.result).dtype.is_float:
        return None
    for value, other in operand_pairs(op) if op.kind == "mul" else ((op.lhs, op.rhs),):
        if value.type != op.result.type:
            continue
        for divisor, scale in ((other, None), *(_multiplied(other) if op.kind == "mul" else ())):
            spread = _under_root(origin_of(divisor), inverted=op.kind == "mul")
            if spread is None:
                continue
            variance, eps = spread
            for axes in _runs(shape_of(value).rank):
                norm = _norm(value, variance, axes)
                size = product(shape_of(value).dims[axis] for axis in axes)
                if norm is not None and isinstance(size, int):
                    made = _emitted(rewriter, *norm, axes, size, eps)
                    return made if scale is None else rewriter.emit("binary", [made, scale], kind="mul")
    return None


def _runs(rank: int) -> Iterator[tuple[int, ...]]:
    """Yield the possible axes of a norm: any single axis, or the last ones together."""
    yield from ((axis,) for axis in reversed(range(rank)))
    yield from (tuple(range(first, rank)) for first in reversed(range(rank - 1)))


def _multiplied(value: mlir.Value) -> tuple[tuple[mlir.Value, mlir.Value], ...]:
    """Return the two factors of a product in either order."""
    op = producer(value, views.Binary)
    return operand_pairs(op) if op is not None and op.kind == "mul" else ()


def _under_root(shown: Origin, *, inverted: bool) -> tuple[Origin, float] | None:
    """Return `v` and `eps` of `sqrt(v + eps)`, or of its inverse."""
    root, power = producer(shown.value, views.Activation), producer(shown.value, views.Binary)
    inside: mlir.Value | None = None
    if root is not None and root.kind == ("rsqrt" if inverted else "sqrt"):
        inside = root.x
    elif power is not None and power.kind == "pow" and splat(power.rhs) == (-0.5 if inverted else 0.5):
        inside = power.lhs
    elif inverted and power is not None and power.kind == "div" and splat(power.lhs) == 1:
        return _under_root(shown.through(power.rhs), inverted=False)
    if inside is None or shape_of(inside).rank != shape_of(shown.value).rank:
        return None
    shown = shown.through(inside)
    total = producer(shown.value, views.Binary)
    if total is None or total.kind != "add":
        return None
    for variance, number in operand_pairs(total):
        eps = splat(number)
        if eps is not None and 0 <= eps < 3e38 and shape_of(variance).rank == shape_of(shown.value).rank:
            # The shortest decimal number with this f32 value: 1e-5 rather than 9.99999975e-6.
            return shown.through(variance), float(str(np.float32(eps)))
    return None


def _norm(value: mlir.Value, variance: Origin, axes: tuple[int, ...]) -> tuple[str, mlir.Value] | None:
    """Return the norm along some axes that divides a value by the root of a variance, and its operand."""
    squares = mean_of(variance)
    if squares is None:
        return _norm_by_moments(value, variance, axes)
    squared = _squared(squares.x)
    if squared is None or squared != value or not stands_beside(squares, squares.x, *axes):
        return None
    centred = _centred(value, axes)
    return ("rms_norm", value) if centred is None else ("layer_norm", centred)


def _norm_by_moments(value: mlir.Value, variance: Origin, axes: tuple[int, ...]) -> tuple[str, mlir.Value] | None:
    """Match a layer norm whose variance is `mean x² - (mean x)²`, optionally bounded by 0."""
    x, op = _centred(value, axes), producer(variance.value, views.Binary)
    held = _held_above_zero(variance.value)
    if held is not None:
        variance = variance.through(held)
        op = producer(variance.value, views.Binary)
    if x is None or op is None or op.kind != "sub" or shape_of(op.lhs) != shape_of(op.rhs):
        return None
    squares = mean_of(variance.through(op.lhs))
    second = variance.through(op.rhs)
    first = _squared(second.value)
    mean = None if first is None else mean_of(second.through(first))
    if (
        squares is None
        or mean is None
        or not stands_beside(squares, squares.x, *axes)
        or not stands_beside(mean, x, *axes)
    ):
        return None
    squared = _squared(squares.x)
    return ("layer_norm", x) if squared is not None and squared == x else None


def _held_above_zero(value: mlir.Value) -> mlir.Value | None:
    """Return `x` of `max(x, 0)`."""
    op, relu = producer(value, views.Binary), producer(value, views.Activation)
    if relu is not None and relu.kind == "relu":
        return relu.x
    if op is None or op.kind != "max":
        return None
    return next((v for v, zero in operand_pairs(op) if splat(zero) == 0 and v.type == value.type), None)


def _squared(value: mlir.Value) -> mlir.Value | None:
    """Return `x` of `x²`."""
    op = producer(value, views.Binary)
    if op is None:
        return None
    if op.kind == "mul" and op.lhs == op.rhs:
        return op.lhs
    return op.lhs if op.kind == "pow" and splat(op.rhs) == 2 else None


def _centred(value: mlir.Value, axes: tuple[int, ...]) -> mlir.Value | None:
    """Return `x` of `x - mean(x)` along some axes."""
    op = producer(value, views.Binary)
    if op is None or op.kind != "sub":
        return None
    mean = mean_of(origin_of(op.rhs))
    return op.lhs if mean is not None and stands_beside(mean, op.lhs, *axes) else None


def _emitted(rewriter: Rewriter, name: str, x: mlir.Value, axes: tuple[int, ...], size: int, eps: float) -> Any:
    shape = shape_of(x)
    ones = rewriter.builder.constant(np.ones(size, shape.dtype.numpy)).value
    bias = None if name == "rms_norm" else rewriter.builder.constant(np.zeros(size, shape.dtype.numpy)).value
    if len(axes) == 1:
        return rewriter.emit(name, [x, ones, bias], axis=axes[0], eps=eps)
    joined = rewriter.emit("reshape", [x], shape=(*shape.dims[: axes[0]], size))
    normal = rewriter.emit(name, [joined, ones, bias], axis=axes[0], eps=eps)
    return rewriter.emit("reshape", [normal], shape=shape.dims)


# --- weights --------------------------------------------------------------------------------------


@pattern
def scaled_norm(op: views.Binary, rewriter: Rewriter) -> Any:
    """A norm with a scale of ones and no bias, multiplied by a vector along its axis."""
    if op.kind != "mul":
        return None
    for normal, factor in operand_pairs(op):
        norm = _plain_norm(op, normal)
        if norm is None or splat(norm.scale) != 1:
            continue
        scale = _along(rewriter, factor, norm)
        if scale is not None:
            return rewriter.emit(norm.spec.name, [norm.x, scale, norm.bias], axis=norm.axis, eps=norm.eps)
    return None


@pattern
def shifted_norm(op: views.Binary, rewriter: Rewriter) -> Any:
    """A norm without a bias, to which a vector along its axis is added."""
    if op.kind != "add":
        return None
    for normal, term in operand_pairs(op):
        norm = _plain_norm(op, normal)
        bias = None if norm is None else _along(rewriter, term, norm)
        if norm is not None and bias is not None:
            return rewriter.emit(norm.spec.name, [norm.x, norm.scale, bias], axis=norm.axis, eps=norm.eps)
    return None


def _plain_norm(op: views.Binary, value: mlir.Value) -> views.LayerNorm | views.RmsNorm | None:
    """Return the norm without a bias that computes a value, if the value's only user is `op`, which has its shape."""
    norm: Any = producer(value, views.LayerNorm) or producer(value, views.RmsNorm)
    if norm is None or value.type != op.result.type or not has_one_use(value):
        return None
    if norm.operation.block != op.operation.block:
        return None
    return norm if norm.bias is None or splat(norm.bias) == 0 else None


def _along(rewriter: Rewriter, value: mlir.Value, norm: views.LayerNorm | views.RmsNorm) -> mlir.Value | None:
    """Return a value that varies only along the axis of a norm as a vector, else None."""
    shape, rank, size = shape_of(value), shape_of(norm.x).rank, shape_of(norm.x).dims[norm.axis]
    padded = (1,) * (rank - shape.rank) + shape.dims
    if padded != tuple(size if i == norm.axis else 1 for i in range(rank)) or size == 1:
        return None
    source = producer(value, views.Reshape)
    if source is not None and shape_of(source.x).dims == (size,):
        return source.x
    return value if shape.rank == 1 else rewriter.emit("reshape", [value], shape=(size,))


# --- groups of channels -----------------------------------------------------------------------------


@pattern
def grouped_norm(op: views.Reshape, rewriter: Rewriter) -> Any:
    """A layer norm of `[N, C, …]` as `[N, G, …]`, without weights, is a group norm."""
    normal = _before_reshapes(op.x)
    norm = producer(normal, views.LayerNorm)
    x = None if norm is None else _before_reshapes(norm.x)
    if norm is None or x is None or x.type != op.result.type or not has_one_use(op.x) or not has_one_use(normal):
        return None
    dims, grouped = shape_of(x).dims, shape_of(norm.x).dims
    if len(dims) < 2 or len(grouped) != 3 or norm.axis != 2 or dims[0] != grouped[0]:
        return None
    channels, groups = dims[1], grouped[1]
    if not isinstance(channels, int) or not isinstance(groups, int) or groups < 1 or channels % groups:
        return None
    if splat(norm.scale) != 1 or splat(norm.bias) != 0:
        return None
    dtype = shape_of(x).dtype.numpy
    weights = (rewriter.builder.constant(make(channels, dtype)).value for make in (np.ones, np.zeros))
    return rewriter.emit("group_norm", [x, *weights], num_groups=groups, eps=norm.eps)


def _before_reshapes(value: mlir.Value) -> mlir.Value:
    """Return the value before any reshapes."""
    while (view := producer(value, views.Reshape)) is not None:
        value = view.x
    return value


@pattern
def weighted_groups(op: views.Binary, rewriter: Rewriter) -> Any:
    """A group norm without weights, multiplied by or added to a vector of channels."""
    if op.kind not in ("mul", "add"):
        return None
    for value, other in operand_pairs(op):
        norm = producer(value, views.GroupNorm)
        if norm is None or value.type != op.result.type or not has_one_use(value) or splat(norm.bias) != 0:
            continue
        if norm.operation.block != op.operation.block or (op.kind == "mul" and splat(norm.scale) != 1):
            continue
        vector = _of_channels(rewriter, other, norm)
        if vector is not None:
            weights = [vector, norm.bias] if op.kind == "mul" else [norm.scale, vector]
            return rewriter.emit("group_norm", [norm.x, *weights], num_groups=norm.num_groups, eps=norm.eps)
    return None


def _of_channels(rewriter: Rewriter, value: mlir.Value, norm: views.GroupNorm) -> mlir.Value | None:
    """Return a value that varies only along the channels as a vector, else None."""
    shape, rank, channels = shape_of(value), shape_of(norm.x).rank, shape_of(norm.x).dims[1]
    padded = (1,) * (rank - shape.rank) + shape.dims
    if padded != tuple(channels if i == 1 else 1 for i in range(rank)) or channels == 1:
        return None
    source = producer(value, views.Reshape)
    if source is not None and shape_of(source.x).dims == (channels,):
        return source.x
    return rewriter.emit("reshape", [value], shape=(channels,))


@dataclass(frozen=True)
class RecognizeNorms(Fusion, name="rlx-recognize-norms"):
    """Create `layer_norm`, `rms_norm` and `group_norm`, with scale and bias, from means, squares and roots.

    Run cse first: duplicate computations are not recognised as equal.
    """

    makes = "layer_norm"
    patterns = (normalised, scaled_norm, shifted_norm, grouped_norm, weighted_groups)
    helpers = (KNOWN_CHOICES,)

"""Helpers for transform rules: sums over broadcast axes, zeros, ranges, batch axes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from rlx.ir.dims.dim import Dim
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import Tangents, Tensors
from rlx.ir.op.attributes import elements_from_mlir
from rlx.ir.shape import Shape

# --- derivatives ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Range:
    """A cotangent that is zero outside a range of one axis. Ranges that do not overlap are concatenated, not added.

    Attributes:
        axis: The axis.
        start: The start of the range.
        value: The cotangent in the range.
        size: The size of the axis.
    """

    axis: int
    start: Dim
    value: Tensor
    size: Dim


# A zero is None. A function is called only if its cotangent is needed.
Cotangent: TypeAlias = Tensor | Range | Callable[[], Tensor | Range | None] | None
# The result of a `vjp`: one entry for each operand of the record, a list for a variadic one.
Cotangents: TypeAlias = Sequence[Cotangent | Sequence[Cotangent]]
# The result of a `pushforward`: the results of the op, and their tangents.
ResultsAndTangents: TypeAlias = tuple[Tensors, Tangents]
# The result of a `pullback`: the results of the op, and a function from their cotangents to those of the operands and
# captures.
ResultsAndPullback: TypeAlias = tuple[Tensors, Callable[[Tangents], Tangents]]


def zeros(b: Builder, shape: Shape) -> Tensor:
    """Return a tensor of zeros."""
    scalar = b.emit("constant", (), value=np.zeros((), shape.dtype.numpy))
    return scalar if not shape.rank else b.emit("expand", (scalar,), shape=shape.dims)


def or_zeros(b: Builder, value: Tensor | None, shape: Shape) -> Tensor:
    """Return a tangent or cotangent as a tensor; None becomes a tensor of zeros."""
    return zeros(b, shape) if value is None else value


def total(b: Builder, values: Sequence[Tensor | None]) -> Tensor | None:
    """Return the sum of tangents or cotangents; None means zero."""
    result: Tensor | None = None
    for value in values:
        if value is not None:
            result = value if result is None else b.emit("binary", (result, value), kind="add")
    return result


def unbroadcast(b: Builder, cotangent: Tensor, shape: Shape) -> Tensor:
    """Return the cotangent of a broadcast operand: the sum over the axes along which the operand was repeated.

    Args:
        b: The builder that emits the ops.
        cotangent: The cotangent, in the shape of the result.
        shape: The shape of the operand.
    """
    before = cotangent.shape.dims
    if before == shape.dims:
        return cotangent
    extra = len(before) - shape.rank
    stretched = [extra + i for i, d in enumerate(shape.dims) if d == 1 and before[extra + i] != 1]
    axes = (*range(extra), *stretched)
    if axes:
        cotangent = b.emit("reduce", (cotangent,), kind="sum", axes=axes, keep_dims=False)
    return cotangent if cotangent.shape.dims == shape.dims else b.emit("reshape", (cotangent,), shape=shape.dims)


def resolved(b: Builder, cotangent: Cotangent) -> Tensor | None:
    """Return the cotangent of a rule as a tensor or None: functions are called, ranges are padded with zeros."""
    if callable(cotangent):
        cotangent = cotangent()
    if not isinstance(cotangent, Range):
        return cotangent  # type: ignore[return-value]
    value, axis = cotangent.value, cotangent.axis
    padding: list[tuple[Dim, Dim]] = [(0, 0)] * value.rank
    padding[axis] = (cotangent.start, cotangent.size - cotangent.start - value.shape.dims[axis])
    return b.pad(value, padding)


def joined(b: Builder, terms: Sequence[Tensor | Range]) -> Tensor:
    """Return the sum of the cotangents from the users of a tensor.

    Ranges of one axis that do not overlap are concatenated, with zeros in the gaps.
    """
    ranges: dict[int, list[Range]] = {}
    summands: list[Tensor | None] = []
    for term in terms:
        if isinstance(term, Range):
            ranges.setdefault(term.axis, []).append(term)
        else:
            summands.append(term)
    for parts in ranges.values():
        summands += _concatenated(b, parts)
    result = total(b, summands)
    assert result is not None
    return result


def _concatenated(b: Builder, parts: list[Range]) -> list[Tensor | None]:
    """Join ranges of one axis to the smallest possible number of tensors over the whole axis.

    Ranges of unknown order are not joined.
    """
    if not all(type(p.start) is int for p in parts):
        return [resolved(b, p) for p in parts]
    rows: list[list[Range]] = []
    starts: Callable[[Range], Any] = operator.attrgetter("start")
    for part in sorted(parts, key=starts):
        for row in rows:
            gap = part.start - _end(row[-1])
            if type(gap) is int and gap >= 0:
                row.append(part)
                break
        else:
            rows.append([part])
    return [_row(b, row) for row in rows]


def _end(part: Range) -> Dim:
    return part.start + part.value.shape.dims[part.axis]


def _row(b: Builder, row: list[Range]) -> Tensor:
    axis, dims = row[0].axis, row[0].value.shape.dims
    pieces: list[Tensor] = []
    position: Dim = 0
    for part in (*row, None):
        gap = (row[0].size if part is None else part.start) - position
        if gap != 0:
            pieces.append(zeros(b, Shape((*dims[:axis], gap, *dims[axis + 1 :]), row[0].value.dtype)))
        if part is not None:
            pieces.append(part.value)
            position = _end(part)
    return b.concat(pieces, axis=axis)


def known_scalar(x: Tensor) -> float | None:
    """Return the value of a tensor that is a constant of one nonzero real element; else None."""
    owner = getattr(x.value.owner, "operation", None)
    if owner is None or owner.name != "rlx.constant" or x.shape.num_elements != 1 or not x.dtype.is_float:
        return None
    value = float(np.asarray(elements_from_mlir(owner.attributes["value"])).reshape(()))
    return value or None


# --- batching ---------------------------------------------------------------------------------------


def batch(b: Builder, x: Tensor, batched: bool, size: Dim) -> Tensor:
    """Return `x` with the batch as its leading axis, repeated if `x` is not batched."""
    return x if batched else b.emit("expand", (x,), shape=(size, *x.shape.dims))


def aligned(b: Builder, x: Tensor, batched: bool, rank: int) -> Tensor:
    """Return an operand, batch first, reshaped to broadcast with others of up to `rank` axes (excluding the batch)."""
    missing = rank + 1 - x.rank
    if not batched or missing <= 0:
        return x
    batch_size, *dims = x.shape.dims
    return b.emit("reshape", (x,), shape=(batch_size, *(1,) * missing, *dims))


def move_axis(b: Builder, x: Tensor, source: int, destination: int) -> Tensor:
    """Return `x` with one axis moved."""
    if source == destination:
        return x
    order = [i for i in range(x.rank) if i != source]
    order.insert(destination, source)
    return b.emit("transpose", (x,), perm=tuple(order))


def folded(b: Builder, x: Tensor, axis: int) -> Tensor:
    """Return `x` with its leading batch axis joined into another axis (counted without the batch), before that axis."""
    move_axis = b.transpose(x, (*range(1, axis + 1), 0, *range(axis + 1, x.rank))) if axis else x
    dims = move_axis.shape.dims
    return b.reshape(move_axis, (*dims[:axis], dims[axis] * dims[axis + 1], *dims[axis + 2 :]))


def unfolded(b: Builder, x: Tensor, axis: int, size: Dim, entries: Dim) -> Tensor:
    """The inverse of `folded`: split an axis of `size·entries` positions and move the batch to the front."""
    dims = x.shape.dims
    parted = b.reshape(x, (*dims[:axis], size, entries, *dims[axis + 1 :]))
    return b.transpose(parted, (axis, *range(axis), *range(axis + 1, parted.rank))) if axis else parted

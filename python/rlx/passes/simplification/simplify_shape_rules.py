"""Patterns of `rlx-simplify` for ops that only change shapes or move data: chains, round trips, broadcasts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from rlx import mlir
from rlx.ir.dims.dim import Dim
from rlx.ir.op import opview, views
from rlx.ir.shape import shape_of
from rlx.ops.lift import broadcast
from rlx.passes.pattern import Rewriter, feeder, has_one_use, pattern, producer
from rlx.passes.simplification.values import if_alike, scalar

# --- chains -----------------------------------------------------------------------------------------


@pattern
def shape_chain(op: views.Reshape | views.Expand, rewriter: Rewriter) -> mlir.Value | None:
    """A reshape or expand to the operand's shape, and two of them in a row."""
    if if_alike(op.x, op.result) is not None:
        return op.x
    inner = producer(op.x, type(op))
    return None if inner is None else rewriter.emit(op.spec.name, [inner.x], shape=shape_of(op.result).dims)


@pattern
def expanded_operand(
    op: views.Binary | views.Compare | views.Where | views.Matmul, rewriter: Rewriter
) -> mlir.Value | None:
    """An expanded operand of an op that broadcasts its operands to the same shape anyway; a matmul does for batch axes."""
    values, fixed = op.operands, 2 if isinstance(op, views.Matmul) else 0
    for i, value in enumerate(values):
        inner = producer(value, views.Expand)
        if inner is None or _last_dims(inner.x, fixed) != _last_dims(value, fixed):
            continue
        changed = [*values[:i], inner.x, *values[i + 1 :]]
        shapes = [shape_of(v) for v in (*changed, op.result)]
        *batches, result = (shape.dims[: shape.rank - fixed] for shape in shapes)
        if broadcast(*batches) == result:
            return rewriter.emit(op.spec.name, changed, **op.attributes)
    return None


def _last_dims(value: mlir.Value, count: int) -> tuple[Dim, ...]:
    dims = shape_of(value).dims
    return dims[len(dims) - count :] if count <= len(dims) else ()


@pattern
def transpose_chain(op: views.Transpose, rewriter: Rewriter) -> mlir.Value | None:
    """A transpose that keeps the order of axes, and two transposes in a row."""
    if op.perm == tuple(range(len(op.perm))):
        return op.x
    inner = producer(op.x, views.Transpose)
    return inner and rewriter.emit("transpose", [inner.x], perm=tuple(inner.perm[p] for p in op.perm))


@pattern
def whole(op: views.Narrow | views.Slice, rewriter: Rewriter) -> mlir.Value | None:
    """A narrow or slice of the whole tensor: if it keeps the shape, it starts at 0."""
    if isinstance(op, views.Slice) and any(s != 1 for s in op.strides):
        return None
    return if_alike(op.x, op.result)


@pattern
def narrow_of_narrow(op: views.Narrow, rewriter: Rewriter) -> mlir.Value | None:
    """Two ranges of one axis in a row."""
    inner = producer(op.x, views.Narrow)
    if inner is None or op.axis != inner.axis:
        return None
    start = op.start[0] + inner.start[0]
    return rewriter.emit("narrow", [inner.x], axis=op.axis, start=(start,), length=op.length)


@pattern
def narrow_of_concat(op: views.Narrow, rewriter: Rewriter) -> mlir.Value | None:
    """A range inside one of the joined tensors."""
    inner, axis = producer(op.x, views.Concat), op.axis
    if inner is None or inner.axis != axis:
        return None
    (start,), (length,) = op.start, op.length
    border = shape_of(inner.lhs).dims[axis]
    if _at_most(start + length, border):
        return rewriter.emit("narrow", [inner.lhs], axis=axis, start=(start,), length=(length,))
    if _at_most(border, start):
        return rewriter.emit("narrow", [inner.rhs], axis=axis, start=(start - border,), length=(length,))
    return None


def _at_most(a: Dim, b: Dim) -> bool:
    """Whether `a <= b` is known."""
    gap = b - a
    return type(gap) is int and gap >= 0


@pattern
def concat_of_neighbours(op: views.Concat, rewriter: Rewriter) -> mlir.Value | None:
    """A concatenation of adjacent ranges of one tensor; an empty operand."""
    axis = op.axis
    for part, other in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        if shape_of(part).dims[axis] == 0:
            return if_alike(other, op.result)
    base, start, length = _range(op.lhs, axis)
    other, next_start, next_length = _range(op.rhs, axis)
    if base != other or start + length != next_start:
        return None
    return rewriter.emit("narrow", [base], axis=axis, start=(start,), length=(length + next_length,))


def _range(value: mlir.Value, axis: int) -> tuple[mlir.Value, Dim, Dim]:
    """Return a value as a range of an axis of another tensor: the tensor, the start and the length."""
    op = producer(value, views.Narrow)
    if op is None or op.axis != axis:
        return value, 0, shape_of(value).dims[axis]
    return op.x, op.start[0], op.length[0]


@pattern
def reduce_of_ones(op: views.Reduce, rewriter: Rewriter) -> mlir.Value | None:
    """A reduction over axes of size 1 only changes the shape. A sum of floats starts from 0, so -0 becomes 0."""
    x, result = shape_of(op.x), shape_of(op.result)
    if x.dtype is not result.dtype or any(x.dims[a] != 1 for a in op.axes):
        return None
    if x.dtype.is_complex and op.kind == "prod":  # it starts from 1, and the complex product turns inf into NaN
        return None
    value = op.x if x.dims == result.dims else rewriter.emit("reshape", [op.x], shape=result.dims)
    if op.kind not in ("sum", "mean") or not x.dtype.is_inexact:
        return value
    return rewriter.emit("binary", [value, scalar(rewriter, 0, value)], kind="add")


@pattern
def slice_of_slice(op: views.Slice, rewriter: Rewriter) -> mlir.Value | None:
    """Two slices in a row, of known sizes."""
    inner = producer(op.x, views.Slice)
    if inner is None or not all(isinstance(n, int) for n in (*op.starts, *inner.starts, *shape_of(op.result).dims)):
        return None
    steps = [a * b for a, b in zip(inner.strides, op.strides, strict=True)]
    starts = [a + b * s for a, b, s in zip(inner.starts, op.starts, inner.strides, strict=True)]
    sizes = shape_of(op.result).static
    if not all(sizes):  # the start and end of an empty range cannot be derived from its size
        return None
    limits = [start + (n - 1) * step + 1 for start, n, step in zip(starts, sizes, steps, strict=True)]
    return rewriter.emit("slice", [inner.x], starts=tuple(starts), limits=tuple(limits), strides=tuple(steps))


@pattern
def extremum_of_extremum(op: views.Reduce, rewriter: Rewriter) -> mlir.Value | None:
    """The maximum of maxima, and the minimum of minima. For sums, the order would change the rounding."""
    inner = feeder(op, op.x, views.Reduce)
    if inner is None or op.kind not in ("max", "min") or inner.kind != op.kind or inner.keep_dims != op.keep_dims:
        return None
    return reduced_at_once(op, inner, rewriter)


def reduced_at_once(op: views.Reduce, inner: views.Reduce, rewriter: Rewriter) -> mlir.Value:
    """Combine a reduction with another of the same kind that it reads. Both keep their axes, or neither does."""
    kept = [a for a in range(shape_of(inner.x).rank) if inner.keep_dims or a not in inner.axes]
    axes = tuple(sorted({*inner.axes, *(kept[a] for a in op.axes)}))
    return rewriter.emit("reduce", [inner.x], kind=op.kind, axes=axes, keep_dims=op.keep_dims)


# --- round trips --------------------------------------------------------------------------------------


@pattern
def round_trip(op: views.Transpose | views.Reshape, rewriter: Rewriter) -> mlir.Value | None:
    """A transpose or reshape after elementwise ops whose operands were all transposed or reshaped the other way."""
    undone: Undone = (
        partial(_transposed_from, perm=op.perm)
        if isinstance(op, views.Transpose)
        else partial(_reshaped_from, dims=shape_of(op.result).dims)
    )
    return _emitted_back(rewriter, op.x, undone) if _goes_back(op.operation, op.x, undone) else None


Undone = Callable[[mlir.Value], "mlir.Value | None"]
_MOST_STEPS = 16


def _transposed_from(value: mlir.Value, perm: tuple[int, ...]) -> mlir.Value | None:
    """Return `x` if a value is a transpose of `x` and `perm` is the inverse of that transpose."""
    inner = producer(value, views.Transpose)
    restored = inner is not None and all(inner.perm[p] == i for i, p in enumerate(perm))
    return inner.x if inner is not None and restored else None


def _reshaped_from(value: mlir.Value, dims: tuple[Dim, ...]) -> mlir.Value | None:
    """Return `x` if a value is a reshape of `x`, which has these sizes."""
    inner = producer(value, views.Reshape)
    return inner.x if inner is not None and shape_of(inner.x).dims == dims else None


def _goes_back(reader: mlir.Operation, value: mlir.Value, undone: Undone, depth: int = 0) -> bool:
    """Whether a value is computed elementwise from scalars, and from values whose transpose or reshape can be undone."""
    if not isinstance(value, mlir.ir.OpResult) or depth == _MOST_STEPS or not has_one_use(value):
        return False
    op = value.owner.operation
    if not opview.has_trait(op, "elementwise") or op.block != reader.block or len(op.results) != 1:
        return False
    dims = shape_of(value).dims
    tensors = [v for v in op.operands if shape_of(v).rank]
    if not tensors or any(shape_of(v).dims != dims for v in tensors):
        return False
    return all(undone(v) is not None or _goes_back(op, v, undone, depth + 1) for v in tensors)


def _emitted_back(rewriter: Rewriter, value: mlir.Value, undone: Undone) -> mlir.Value:
    """Emit the same computation on the values before the transpose or reshape."""
    op = value.owner.operation

    def back(v: mlir.Value) -> mlir.Value:
        if not shape_of(v).rank:
            return v
        source = undone(v)
        return _emitted_back(rewriter, v, undone) if source is None else source

    operands = opview.operands_of(op, [back(v) for v in op.operands])
    return rewriter.emit(opview.name_of(op), operands, **opview.attributes_of(op))


@pattern
def transposed_factor(op: views.DotGeneral, rewriter: Rewriter) -> mlir.Value | None:
    """A product of a transposed tensor. The transpose can be expressed by the axes of the product."""
    lhs, rhs = producer(op.lhs, views.Transpose), producer(op.rhs, views.Transpose)
    sides = (lhs, op.lhs, op.lhs_contracting, op.lhs_batch), (rhs, op.rhs, op.rhs_contracting, op.rhs_batch)
    operands: list[mlir.Value] = []
    axes: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    for transpose, value, contracting, batch in sides:
        named = {*contracting, *batch}
        perm = transpose.perm if transpose is not None else ()
        free = [p for i, p in enumerate(perm) if i not in named]
        if transpose is None or free != sorted(free):  # the free axes of the result keep their order
            operands.append(value)
            axes.append((contracting, batch))
        else:
            operands.append(transpose.x)
            axes.append((tuple(perm[i] for i in contracting), tuple(perm[i] for i in batch)))
    if operands == [op.lhs, op.rhs]:
        return None
    (lhs_contracting, lhs_batch), (rhs_contracting, rhs_batch) = axes
    named_axes = {"lhs_contracting": lhs_contracting, "rhs_contracting": rhs_contracting}
    return rewriter.emit("dot_general", operands, **named_axes, lhs_batch=lhs_batch, rhs_batch=rhs_batch)


# --- broadcasts ---------------------------------------------------------------------------------------


@pattern
def computed_before_expand(op: views.Activation | views.Cast | views.Binary, rewriter: Rewriter) -> mlir.Value | None:
    """An elementwise op on an expanded tensor, and optionally a scalar, is computed before the expansion."""
    tensors = [v for v in op.operands if shape_of(v).rank]
    inner = feeder(op, tensors[0], views.Expand) if len(tensors) == 1 else None
    if inner is None or shape_of(inner.x).rank == 0 or shape_of(op.result).dims != shape_of(tensors[0]).dims:
        return None
    operands = [inner.x if v == tensors[0] else v for v in op.operands]
    computed = rewriter.emit(op.spec.name, operands, **op.attributes)
    return rewriter.emit("expand", [computed], shape=shape_of(op.result).dims)


@pattern
def extremum_of_expanded(op: views.Reduce, rewriter: Rewriter) -> mlir.Value | None:
    """The maximum or minimum along broadcast axes."""
    inner = producer(op.x, views.Expand) if op.kind in ("max", "min") else None
    if inner is None:
        return None
    dims, source = shape_of(op.x).dims, shape_of(inner.x).dims
    whole = (1,) * (len(dims) - len(source)) + source
    if any(whole[a] != 1 or not isinstance(dims[a], int) or dims[a] == 0 for a in op.axes):  # a symbol may be 0
        return None
    kept = [1 if i in op.axes else d for i, d in enumerate(dims)]
    narrow = kept if op.keep_dims else [d for i, d in enumerate(dims) if i not in op.axes]
    source_dims = whole if op.keep_dims else tuple(d for i, d in enumerate(whole) if i not in op.axes)
    reshaped = rewriter.emit("reshape", [inner.x], shape=source_dims)
    return rewriter.emit("expand", [reshaped], shape=tuple(narrow))


@pattern
def concat_of_equals(op: views.Concat, rewriter: Rewriter) -> mlir.Value | None:
    """The concatenation of a tensor with itself along an axis of size 1, as when keys are repeated for their queries."""
    axis = op.axis
    lhs, rhs = _repeated(op.lhs, axis), _repeated(op.rhs, axis)
    if lhs != rhs or shape_of(lhs).dims[axis] != 1:
        return None
    return rewriter.emit("expand", [lhs], shape=shape_of(op.result).dims)


def _repeated(value: mlir.Value, axis: int) -> mlir.Value:
    """Return the tensor that a value repeats along one axis only; else the value."""
    inner = producer(value, views.Expand)
    if inner is None or shape_of(inner.x).rank != shape_of(value).rank:
        return value
    pairs = zip(shape_of(inner.x).dims, shape_of(value).dims, strict=True)
    return inner.x if all(a == b or i == axis for i, (a, b) in enumerate(pairs)) else value

"""`x[index]` of tensors: NumPy's indexing, if the shape of the result does not depend on values."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np

from rlx import mlir
from rlx.ir.arrays import as_array, as_numbers, is_written
from rlx.ir.dims.dim import Dim, DimExpr, maximum, product
from rlx.ir.dtype import family, i32, i64, u32, u64
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.eager import EagerTensor
from rlx.ir.op import opview
from rlx.ops.lift import broadcast
from rlx.ops.shape.index import widened_index
from rlx.support.errors import Error, ShapeError
from rlx.support.short import short_repr

if TYPE_CHECKING:
    from typing_extensions import TypeIs

# An entry of an index. Arrays contain integers or booleans.
Entry: TypeAlias = int | DimExpr | slice | Tensor | np.ndarray | EllipsisType | None


def index_tensor(x: Tensor, index: tuple[object, ...]) -> Tensor:
    """Return `x[index]` for integers, slices, None, Ellipsis, and any number of arrays and tensors, which broadcast.

    Args:
        x: The tensor.
        index: The entries. Arrays contain integers or booleans, and may be lists. Tensors contain integers. The bounds
            of a slice may be scalar tensors at a known distance: `x[i : i + 3]`.

    Raises:
        ShapeError: An entry has a different type, or is certainly out of range.
    """
    g: Builder = x.builder
    x, entries = without_masks(x, filled([entry_of(i) for i in index], x.rank))
    x, entries = _without_moving_slices(x, entries)
    arrays = [e for e in entries if is_array(e) and e.ndim]
    if len(arrays) > 1:
        return _at_several(x, entries)
    result = _sliced(x, [e for e in entries if axes_of(e)])
    pieces: list[list[Dim]] = []  # the dimensions that each entry produces
    axis = x.rank
    for entry in reversed(entries):
        if not axes_of(entry):
            pieces.insert(0, [1] if entry is None else [])
            continue
        axis -= 1
        if is_array(entry):
            result, indices = _positions(g, result, axis, entry)
            result = g.gather(result, indices, axis=axis)
            pieces.insert(0, list(indices.shape.dims))
        else:
            pieces.insert(0, [result.shape.dims[axis]] if isinstance(entry, slice) else [])
    target = [d for piece in pieces for d in piece]
    if list(result.shape.dims) != target:
        result = g.reshape(result, target)
    return _moved_to_front(result, entries, pieces) if arrays else result


def is_array(entry: object) -> TypeIs[Tensor | np.ndarray]:
    """Return whether an entry is an array or a tensor."""
    return isinstance(entry, (Tensor, np.ndarray))


def entry_of(value: Any) -> Entry:
    """Return one entry of an index: None, Ellipsis, a slice, an integer or size, a tensor, or an integer or boolean array."""
    if value is None or value is Ellipsis or isinstance(value, (slice, DimExpr)):
        return value  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, Tensor):
        tensor = value
        if tensor.dtype.is_bool and isinstance(tensor, EagerTensor):
            return tensor.numpy()  # the values are known, and therefore the size of the result
        if tensor.dtype.is_bool:
            raise ShapeError(
                "a tensor of booleans would give a shape that depends on values",
                hint="choose with g.where, which keeps the shape: g.sum(g.where(mask, x, 0)) / g.sum(mask) is a mean",
            )
        if not tensor.dtype.is_integer:
            raise ShapeError(f"a tensor that indexes is of integers, not {tensor.dtype}")
        return value
    if hasattr(value, "__array__") or hasattr(value, "__dlpack__"):
        value = _plain(value)  # also arrays of one element: `operator.index` would ignore the mask of a masked array
    try:
        if not isinstance(value, (bool, np.bool_)):
            return operator.index(value)
    except TypeError:
        pass
    array = _plain(value)  # pyright: ignore[reportUnknownArgumentType]
    if not array.size and not isinstance(value, np.ndarray):
        array = array.astype(np.int64)  # an empty list has no dtype
    if array.dtype.kind == "b" and not array.ndim:
        raise ShapeError("a boolean is no index, only arrays of booleans are", hint="choose with g.where")
    if family(array.dtype) not in ("signed", "unsigned", "bool"):
        raise ShapeError(
            f"an index is an integer, a slice, None, ..., or an array or tensor of integers, not {value!r:.60}"
        )
    return array if array.dtype.kind in "iub" else array.astype(np.int64)  # NumPy does not count packed integers


def _plain(value: object) -> np.ndarray:
    """Return anything that NumPy can convert to an array as an array without a mask."""
    try:
        if hasattr(value, "__array__") or hasattr(value, "__dlpack__"):
            return as_array(value, "an array that indexes")
        return as_numbers(value, f"{value!r:.60}") if is_written(value) else np.asarray(value)
    except Error as problem:
        raise ShapeError(problem.message, hint=problem.hint) from None
    except (TypeError, ValueError) as problem:
        raise ShapeError(f"{value!r:.60} is no array: {problem}") from None


def filled(index: list[Entry], rank: int) -> list[Entry]:
    """Return the index with a slice for each omitted axis. An Ellipsis stays, before the slices that it represents."""
    consumed = sum(axes_of(i) for i in index)
    if consumed > rank:
        raise ShapeError(f"{consumed} indices for a tensor of rank {rank}")
    places = [n for n, i in enumerate(index) if i is Ellipsis]
    if len(places) > 1:
        raise ShapeError("an index holds at most one ellipsis")
    position = places[0] if places else len(index)
    fill = [slice(None)] * (rank - consumed)
    return index[: position + len(places)] + fill + index[position + len(places) :]


def axes_of(entry: Entry) -> int:
    """Return the number of axes that an entry indexes."""
    if entry is None or entry is Ellipsis:
        return 0
    return entry.ndim if _is_mask(entry) else 1


def _is_mask(entry: Entry) -> TypeGuard[np.ndarray]:
    return isinstance(entry, np.ndarray) and entry.dtype.kind == "b"


def without_masks(x: Tensor, entries: list[Entry]) -> tuple[Tensor, list[Entry]]:
    """Replace boolean arrays by the positions of True. The axes that one array covers are joined to one axis."""
    result: list[Entry] = []
    axis = 0
    for entry in entries:
        if not _is_mask(entry):
            result.append(entry)
            axis += axes_of(entry)
            continue
        covered = x.shape.dims[axis : axis + entry.ndim]
        if len(covered) != entry.ndim or any(n not in (size, 0) for size, n in zip(covered, entry.shape, strict=True)):
            raise ShapeError(
                f"the array of booleans {list(entry.shape)} has to have the sizes of the axes from {axis} on, "
                f"which are [{', '.join(map(str, covered))}]"
            )
        if entry.ndim != 1:  # of rank 0 it selects all or nothing, along a new axis
            dims = x.shape.dims
            x = x.builder.reshape(x, (*dims[:axis], product(covered), *dims[axis + entry.ndim :]))
        result.append(np.flatnonzero(entry))
        axis += 1
    return x, result


# --- slices and single positions ------------------------------------------------------------------


def _sliced(x: Tensor, entries: Sequence[Entry]) -> Tensor:
    """Return the part of a tensor that slices and integers select. An axis indexed by an integer stays, with size 1."""
    g: Builder = x.builder
    dims = x.shape.dims
    starts: list[Dim] = [0] * x.rank
    limits: list[Dim] = list(dims)
    strides = [1] * x.rank
    backwards: dict[int, int] = {}  # the axes with negative steps, and their sizes
    for axis, (entry, size) in enumerate(zip(entries, dims, strict=True)):
        if isinstance(entry, slice):
            starts[axis], limits[axis], step = _slice_bounds(entry, size)
            if step < 0:
                backwards[axis] = -step
            else:
                strides[axis] = step
        elif not is_array(entry):
            assert isinstance(entry, (int, DimExpr))
            starts[axis] = _position(entry, size, axis)
            limits[axis] = starts[axis] + 1
    result = x
    if tuple(starts) != (0,) * x.rank or tuple(limits) != dims or any(s != 1 for s in strides):
        result = g.slice(result, starts, limits, strides)
    if backwards:
        result = g.reverse(result, tuple(backwards))
        if any(step != 1 for step in backwards.values()):
            steps = [backwards.get(i, 1) for i in range(x.rank)]
            result = g.slice(result, (0,) * x.rank, result.shape.dims, steps)
    return result


def _position(entry: Dim, size: Dim, axis: int) -> Dim:
    if type(entry) is not int:
        return entry
    if type(size) is int and not -size <= entry < size:
        raise _outside(entry, size, axis)
    return entry if entry >= 0 else size + entry


def _outside(entry: int, size: int, axis: int) -> ShapeError:
    return ShapeError(f"index {short_repr(entry)} is out of range for axis {axis} of size {size}")


def _slice_bounds(entry: slice, size: Dim) -> tuple[Dim, Dim, int]:
    """Return start and end of the range of a slice in ascending order, and the step. A negative step begins at the end.

    Bounds beyond an axis of static size are clamped, as in NumPy. Bounds of an axis of symbolic size must be in range.

    Raises:
        ShapeError: The step is 0, or a bound is not a number.
    """
    start, stop = (_bound(value) for value in (entry.start, entry.stop))
    step = _bound(entry.step, "step")
    step = 1 if step is None else step
    if step == 0:
        raise ShapeError("a slice step must not be 0")
    if type(step) is not int:
        raise ShapeError(f"a slice step is an integer, not {step}")
    if type(size) is int and not isinstance(start, DimExpr) and not isinstance(stop, DimExpr):
        start, stop, step = slice(start, stop, step).indices(size)
        if step > 0:
            return start, max(start, stop), step
        return min(start, stop) + 1, start + 1, step

    def place(value: Dim | None, default: Dim) -> Dim:
        if value is None:
            return default
        return size + value if type(value) is int and value < 0 else value

    if step > 0:
        first, limit = place(start, 0), place(stop, size)
    else:
        first, limit = 0 if stop is None else place(stop, 0) + 1, place(start, size - 1) + 1
    length = limit - first
    return first, first if type(length) is int and length < 0 else limit, step


def _bound(value: Any, name: str = "bound") -> Dim | None:
    if value is None or isinstance(value, DimExpr):
        return value
    if isinstance(value, Tensor):
        raise ShapeError(
            f"the {name} of a slice is a tensor, and sizes may not depend on values",
            hint="take a fixed number of elements: x[start + g.iota((length,))]",
        )
    try:
        return operator.index(value)
    except TypeError:
        raise ShapeError(f"the {name} of a slice is an integer or a size, not {value!r:.60}") from None


def _without_moving_slices(x: Tensor, entries: list[Entry]) -> tuple[Tensor, list[Entry]]:
    """Apply the slices whose bounds are tensors, and replace them by full slices."""
    result: list[Entry] = []
    axis = 0
    for entry in entries:
        if isinstance(entry, slice) and isinstance(entry.start, EagerTensor) is not isinstance(entry.stop, EagerTensor):
            start, stop = (int(v) if isinstance(v, EagerTensor) else v for v in (entry.start, entry.stop))
            entry = slice(start, stop, entry.step)  # in a graph, this length would not be known
        if isinstance(entry, slice) and (isinstance(entry.start, Tensor) or isinstance(entry.stop, Tensor)):
            g: Builder = x.builder
            x = g.dynamic_slice_in_dim(x, entry.start, _distance(entry), axis=axis)
            entry = slice(None)
        result.append(entry)
        axis += axes_of(entry)
    return x, result


def _distance(entry: slice) -> int:
    """Return the length of a slice from a tensor to the same tensor plus a number."""
    if isinstance(entry.start, Tensor) and isinstance(entry.stop, Tensor) and entry.step in (None, 1):
        if isinstance(entry.start, EagerTensor) and isinstance(entry.stop, EagerTensor):
            first, last, low, high = None, None, int(entry.start), int(entry.stop)
        else:
            (first, low), (last, high) = (_base(bound.value) for bound in (entry.start, entry.stop))
        if first == last and high >= low:
            return high - low
    raise ShapeError(
        "a bound of the slice is a tensor, and sizes may not depend on values",
        hint="take a fixed number of elements: x[i : i + 3] with one tensor i, or g.dynamic_slice_in_dim(x, i, 3)",
    )


def _base(value: mlir.Value) -> tuple[mlir.Value, int]:
    """Return a value as a base value plus a known number: `i + 3` is i and 3."""
    offset = 0
    while isinstance(value, mlir.OpResult) and opview.name_of(op := value.owner.operation) == "binary":
        kind, (left, right) = opview.attributes_of(op)["kind"], op.operands
        known = _number(right) if kind in ("add", "sub") else None
        if known is not None:
            value, offset = left, offset + (known if kind == "add" else -known)
        elif kind == "add" and (known := _number(left)) is not None:
            value, offset = right, offset + known
        else:
            break
    return value, offset


def _number(value: mlir.Value) -> int | None:
    """Return the value of an integer constant of rank 0."""
    if not isinstance(value, mlir.OpResult) or opview.name_of(op := value.owner.operation) != "constant":
        return None
    array = opview.attributes_of(op)["value"]
    return int(array) if not array.ndim and array.dtype.kind in "iu" else None


# --- arrays ---------------------------------------------------------------------------------------


def _positions(g: Builder, x: Tensor, axis: int, entry: Tensor | np.ndarray) -> tuple[Tensor, Tensor]:
    """Return the tensor to gather from, and the positions.

    Negative positions of `entry` count from the end of the axis. Constant positions must be in range. This is checked
    now or, for a symbolic size, once the size is known. Positions in a tensor are clamped by the gather.
    """
    size = x.shape.dims[axis]
    if isinstance(entry, Tensor):
        return x, from_the_end(g, entry, size)
    if not entry.size:
        return x, g.constant(entry.astype(np.int32))
    low, high = int(entry.min()), int(entry.max())
    if type(size) is int:
        if low < -size or high >= size:
            raise _outside(low if low < -size else high, size, axis)
        return x, _constant(g, np.where(entry < 0, entry.astype(np.int64) + size, entry.astype(np.int64)))
    if low >= 0:
        return g.narrow(x, axis, 0, high + 1), _constant(g, entry)
    if high < 0:
        return g.narrow(x, axis, size + low, -low), _constant(g, entry.astype(np.int64) - low)
    # The slice covers the whole axis. Its length fits only if the positions are in range.
    x = g.narrow(x, axis, 0, maximum(size, max(high + 1, -low)))
    return x, _constant(g, entry) + _constant(g, (entry < 0).astype(np.int32)) * g.dim_size(size)


def _constant(g: Builder, indices: np.ndarray) -> Tensor:
    narrow = not indices.size or (indices.min() >= i32.min and indices.max() <= i32.max)
    return g.constant(indices.astype(np.int32 if narrow else np.int64))


def from_the_end(g: Builder, indices: Tensor, size: Dim) -> Tensor:
    """Return indices with negative ones, which count from the end of an axis, converted to nonnegative ones."""
    if not indices.dtype.is_signed:
        return indices
    wide = indices.dtype in (i64, u32, u64) or (type(size) is int and size > i32.max)
    indices = widened_index(g, indices) if wide else g.cast(indices, i32)  # the size may exceed a narrower dtype
    length = size if type(size) is int else g.cast(g.dim_size(size), indices.dtype)
    return g.where(indices < 0, indices + length, indices)


def _at_several(x: Tensor, entries: list[Entry]) -> Tensor:
    """Index with arrays along several axes. As in NumPy, they broadcast with each other."""
    g = x.builder
    placed = [e for e in entries if axes_of(e)]
    axes = [axis for axis, e in enumerate(placed) if is_array(e)]
    result = _sliced(x, placed)
    indices: list[Tensor] = []
    for axis in axes:
        entry = placed[axis]
        assert is_array(entry)
        result, positions = _positions(g, result, axis, entry)
        indices.append(positions)
    kind = i32 if all(i.dtype is i32 for i in indices) else i64
    indices = [g.cast(i, kind) for i in indices]
    shape = broadcast(*(i.shape.dims for i in indices))
    others = [axis for axis in range(result.rank) if axis not in axes]
    table = g.transpose(result, (*axes, *others))
    found = g.gather_nd(table, g.stack([g.expand(i, shape) for i in indices], axis=-1))
    # The dimensions of the other entries: a slice keeps its axis, None adds one, an integer adds none.
    dims: list[Dim] = []
    before, sizes = 0, iter(found.shape.dims[len(shape) :])
    advanced = [n for n, e in enumerate(entries) if e is not None and e is not Ellipsis and not isinstance(e, slice)]
    for number, entry in enumerate(entries):
        size = next(sizes) if axes_of(entry) and not is_array(entry) else None
        if entry is None or isinstance(entry, slice):
            dims.append(1 if size is None else size)
            before += number < advanced[0]
    found = g.reshape(found, (*shape, *dims))
    if advanced[-1] - advanced[0] + 1 != len(advanced):
        return found
    last = len(shape) + before
    order = (*range(len(shape), last), *range(len(shape)), *range(last, found.rank))
    return g.transpose(found, order) if before else found


def _moved_to_front(result: Tensor, entries: list[Entry], pieces: list[list[Dim]]) -> Tensor:
    """Move the axes of an array to the front where NumPy does.

    They replace the indexed axis, but come first if another entry is between the array and an integer.
    """
    advanced = [n for n, e in enumerate(entries) if e is not None and e is not Ellipsis and not isinstance(e, slice)]
    if advanced[-1] - advanced[0] + 1 == len(advanced):
        return result
    (place,) = (n for n, e in enumerate(entries) if n in advanced and (pieces[n] or (is_array(e) and e.ndim)))
    first = sum(map(len, pieces[:place]))
    moved = range(first, first + len(pieces[place]))
    if not first:
        return result
    return result.builder.transpose(result, (*moved, *(i for i in range(result.rank) if i not in moved)))

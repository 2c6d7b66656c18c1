"""`x.at[index].set(values)`: JAX's functional updates, which return a new tensor with some elements changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx.ir.calls import with_call_errors
from rlx.ir.dims.dim import Dim, product
from rlx.ir.dtype import bool_, i32
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.typing import TensorLike
from rlx.ir.location import describe
from rlx.ops import indexing
from rlx.ops.indexing import Entry
from rlx.ops.lift import cast, tensor_like
from rlx.ops.shape.index import extent, index_dtype, place_dtype
from rlx.support.errors import Error, ShapeError


class At:
    """`x.at`, to be indexed next."""

    def __init__(self, x: Tensor):
        self._x = x

    def __getitem__(self, index: Any) -> Selection:
        return Selection(self._x, index if isinstance(index, tuple) else (index,))  # pyright: ignore[reportUnknownArgumentType]


class Selection:
    """`x.at[index]`: selected elements of a tensor. Each method returns a tensor with new values at their positions.

    The index is that of `x[index]`; in addition, one boolean array may be a tensor. Values broadcast to the shape of
    `x[index]` and are converted to the dtype of `x`; for an integer dtype, floats are rounded towards zero. Where an
    index occurs twice, sums, products and extremes use all its values, and `set` the last one. Positions in a tensor
    that are out of range are dropped.
    """

    def __init__(self, x: Tensor, index: tuple[object, ...]):
        self._x, self._index = x, index

    @with_call_errors
    def get(self) -> Tensor:
        """Return `x[index]`."""
        return self._x[self._index]

    @with_call_errors
    def set(self, values: TensorLike) -> Tensor:
        """Return `x` with the selected elements replaced by the values."""
        return self._updated("set", values, lambda old, new: new)

    @with_call_errors
    def add(self, values: TensorLike) -> Tensor:
        """Return `x` with the values added to the selected elements."""
        return self._updated("add", values, lambda old, new: old + new)

    @with_call_errors
    def subtract(self, values: TensorLike) -> Tensor:
        """Return `x` with the values subtracted from the selected elements."""
        return self.add(-tensor_like(self._x.builder, values, self._x.dtype))

    @with_call_errors
    def multiply(self, values: TensorLike) -> Tensor:
        """Return `x` with the selected elements multiplied by the values."""
        return self._updated("mul", values, lambda old, new: old * new)

    mul = multiply

    @with_call_errors
    def divide(self, values: TensorLike) -> Tensor:
        """Return `x` with the selected elements divided by the values."""
        return self._x / self._of(1).multiply(values)

    @with_call_errors
    def power(self, values: TensorLike) -> Tensor:
        """Return `x` with the selected elements raised to the power of the values."""
        return self._x ** self._of(1).multiply(values)

    @with_call_errors
    def min(self, values: TensorLike) -> Tensor:
        """Return `x` with the minimum of element and value at the selected positions."""
        return self._updated("min", values, self._x.builder.minimum)

    @with_call_errors
    def max(self, values: TensorLike) -> Tensor:
        """Return `x` with the maximum of element and value at the selected positions."""
        return self._updated("max", values, self._x.builder.maximum)

    @with_call_errors
    def apply(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """Return `x` with a function applied to the selected elements, in the dtype of `x`."""
        b = self._x.builder
        chosen = Selection(b.zeros(self._x.shape.dims, bool_), self._index).set(True)
        return b.where(chosen, cast(b, function(self._x), self._x.dtype), self._x)

    def _of(self, value: int) -> Selection:
        return Selection(self._x.builder.full_like(self._x, value), self._index)

    def _updated(self, reduction: str, values: Any, joined: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        x, b = self._x, self._x.builder
        try:
            new = tensor_like(b, values, x.dtype)
            if new.dtype.is_complex and not x.dtype.is_complex:
                raise ShapeError(
                    f"the values are complex, and {x.dtype} has no imaginary part", hint="give g.real(values)"
                )
            new = cast(b, new, x.dtype)
            mask = self._index[0] if len(self._index) == 1 else None
            if isinstance(mask, Tensor) and mask.dtype.is_bool:
                return _where(x, mask, joined(x, new), new)
            entries = indexing.filled([indexing.entry_of(i) for i in self._index], x.rank)
            if all(_is_plain(e, d) for e, d in zip(entries, _axes(x, entries), strict=True)):
                return _spliced(x, entries, new, joined)
            return _scattered(x, entries, new, reduction)
        except Error as problem:
            if problem.location is not None:
                raise
            message, place = f"updating {x.shape}: {problem.message}", describe(b.location)
            raise problem.moved(message, location=place) from None


def _where(x: Tensor, mask: Tensor, updated: Tensor, values: Tensor) -> Tensor:
    if values.rank:
        raise ShapeError(
            f"a tensor of booleans chooses as many elements as are true, and {values.shape} may not fit",
            hint="give one number, or use g.where(mask, values, x)",
        )
    if mask.shape.dims != x.shape.dims[: mask.rank]:
        raise ShapeError(f"the booleans {mask.shape} have to have the sizes of the first axes of {x.shape}")
    b = x.builder
    return b.where(b.reshape(mask, (*mask.shape.dims, *(1,) * (x.rank - mask.rank))), updated, x)


def _axes(x: Tensor, entries: list[Entry]) -> list[Dim | None]:
    """Return for each entry the size of the axis that it indexes."""
    sizes: list[Dim | None] = []
    axis = 0
    for entry in entries:
        count = indexing.axes_of(entry)
        sizes.append(x.shape.dims[axis] if count else None)
        axis += count
    return sizes


def _is_whole(entry: Entry) -> bool:
    """Return whether an entry is `:`. Slices with tensor bounds cannot be compared with `slice(None)`."""
    return isinstance(entry, slice) and entry.start is None and entry.stop is None and entry.step is None


def _is_plain(entry: Entry, size: Dim | None) -> bool:
    """Return whether an entry selects a contiguous range of an axis of known size, or a whole axis."""
    if _is_whole(entry):
        return True
    if isinstance(entry, slice):
        bounds = (entry.start, entry.stop, entry.step)
        return type(size) is int and all(v is None or type(v) is int for v in bounds) and entry.step in (None, 1)
    return entry is None or entry is Ellipsis or (type(entry) is int and type(size) is int)


def _spliced(x: Tensor, entries: list[Entry], new: Tensor, joined: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Replace a block of elements: the parts before the block, the block, and the parts after it are joined along each axis."""
    b = x.builder
    old = x[tuple(entries)]
    values = b.expand(joined(old, new), old.shape.dims)
    ranges: list[tuple[int, Dim]] = []
    for entry, size in zip(entries, _axes(x, entries), strict=True):
        if size is None:
            continue
        if _is_whole(entry):
            ranges.append((0, size))
        else:
            assert type(size) is int and isinstance(entry, (int, slice))
            low, high, _ = entry.indices(size) if isinstance(entry, slice) else (entry % size, entry % size + 1, 1)
            ranges.append((low, max(low, high)))
    values = b.reshape(values, [high - low for low, high in ranges])

    def filled(part: Tensor, axis: int) -> Tensor:
        """Return `part` of `x`, which is cut to the block along the axes before `axis`, with the block replaced by `values`."""
        if axis == x.rank:
            return values
        low, high = ranges[axis]
        if (low, high) == (0, x.shape.dims[axis]):
            return filled(part, axis + 1)
        pieces = [(0, low), (low, high), (high, x.shape.dims[axis])]
        before, block, behind = (b.narrow(part, axis, start, stop - start) for start, stop in pieces)
        parts = [before, filled(block, axis + 1), behind]
        return b.concat([p for p in parts if p.shape.dims[axis] != 0] or [part], axis)

    return filled(x, 0)


def _scattered(x: Tensor, entries: list[Entry], new: Tensor, reduction: str) -> Tensor:
    """Write elements one by one, or write slices if arrays index the leading axes only."""
    b = x.builder
    flat, entries = indexing.without_masks(x, entries)
    marked: list[Entry] = []
    dims = list(flat.shape.dims)
    axis = 0
    for entry in entries:
        if isinstance(entry, Tensor):  # positions out of range become an extra position, dropped later
            size = flat.shape.dims[axis]
            index = indexing.from_the_end(b, entry, size)
            index = cast(b, index, index_dtype(index.dtype, size + 1))
            end = extent(b, size, index.dtype)
            entry = b.where((index >= 0) & (index < end), index, end)
            dims[axis] = size + 1
        marked.append(entry)
        axis += indexing.axes_of(entry)
    arrays = [e for e in marked if indexing.is_array(e)]
    rest = [e for e in marked[len(arrays) :] if e is not Ellipsis]
    if arrays and all(map(indexing.is_array, marked[: len(arrays)])) and all(map(_is_whole, rest)):
        count = len(arrays)  # whole slices
        kind = index_dtype(i32, *dims[:count])
        numbers = [b.iota((d,), dtype=kind)[e] for d, e in zip(dims[:count], arrays, strict=True)]
        shape = indexing.broadcast(*(n.shape.dims for n in numbers))
        tuples = b.stack([b.expand(n, shape) for n in numbers], axis=-1)
        values = b.expand(new, (*shape, *flat.shape.dims[count:]))
    else:
        linear = b.reshape(b.iota((product(dims),), dtype=place_dtype(i32, dims)), dims)[tuple(marked)]
        tuples = b.stack(b.unravel_index(linear, dims), axis=-1)
        values = b.expand(new, linear.shape.dims)
    result = b.scatter_nd(flat, tuples, values, reduction=reduction)
    return result if result.shape == x.shape else b.reshape(result, x.shape.dims)

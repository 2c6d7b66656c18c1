"""Kernels that read rows of a table at indices, and add or write rows there."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import i64
from rlx.ir.shape import Shape
from rlx.kernels.buffer import Buffer, Size, product
from rlx.kernels.case import Axes, KernelCase
from rlx.kernels.elements import DTYPES, INDEX
from rlx.kernels.kernel import Kernel
from rlx.kernels.library.rows import is_short, rows_per_workgroup
from rlx.kernels.registry import kernel
from rlx.kernels.values import Value

_LEAST_BYTES = 32  # of a row that pays
_PANEL = 256  # elements of the rows that one workgroup writes


def _index(value: Value) -> Value:
    return value.to(i64).to(INDEX)


def _takes_rows(case: KernelCase) -> bool:
    table, indices = case.tensors
    return (
        table.dtype.name in DTYPES and indices.dtype.name != "u64" and case.attributes.get("axis", 0) < table.rank - 1
    )


def _has_long_rows(case: KernelCase) -> bool:
    table = case.tensors[0]
    return _is_long(table.dims[case.attributes.get("axis", 0) + 1 :], table)


def _is_long(dims: Sequence[Dim], shape: Shape) -> bool:
    return math.prod(d for d in dims if type(d) is int) * shape.dtype.itemsize >= _LEAST_BYTES


def _is_one_table(case: KernelCase) -> bool:
    """Whether there is nothing outside of the axis that the indices are positions of."""
    return all(d == 1 for d in case.tensors[0].dims[: case.attributes.get("axis", 0)])


def _axes_of_rows(case: KernelCase) -> list[Axes]:
    """All axes except those of short rows."""
    (table, indices), axis, result = case.tensors, case.attributes.get("axis", 0), 2
    before: list[Axes] = [[(0, i), (result, i)] for i in range(axis)]
    places: list[Axes] = [[(1, i), (result, axis + i)] for i in range(indices.rank)]
    after: list[Axes] = [[(0, i), (result, i - 1 + indices.rank)] for i in range(axis + 1, table.rank)]
    return [*before, [(0, axis)], *places, *([] if is_short(table.dims[axis + 1 :]) else after)]


@kernel(
    "gather", name="gather_rows", takes=_takes_rows, pays=_has_long_rows, plan=_is_one_table, open_axes=_axes_of_rows
)
def gather_rows(k: Kernel, table: Buffer, indices: Buffer, y: Buffer, *, plan: bool, axis: int) -> None:
    """The rows of a table at indices, which are clamped."""
    size, outer, inner = table.shape[axis], product(table.shape[:axis]), product(table.shape[axis + 1 :])
    count = product(indices.shape)
    source, places = table.view(product([outer, size]), inner), indices.view(count)
    target = y.view(product([outer, count]), inner)
    for r in k.parallel(target.shape[0], rows_per_workgroup(inner)):
        place = _index(places[r if plan else r % count]).maximum(0).minimum(size - 1)
        row = place if plan else place + r // count * size
        for c in k.vectors(inner, table.element):
            target[r, c] = source[row, c]


@kernel("embedding", name="embedding_rows", takes=_takes_rows, pays=_has_long_rows, open_axes=_axes_of_rows)
def embedding_rows(k: Kernel, table: Buffer, indices: Buffer, y: Buffer) -> None:
    """The rows of a matrix at indices, which are clamped."""
    gather_rows.function(k, table, indices, y, plan=True, axis=0)


def _adds_rows(case: KernelCase) -> bool:
    updates, indices = case.tensors
    is_number = updates.dtype.name in DTYPES and not updates.dtype.is_bool
    return is_number and indices.dtype.name != "u64" and updates.rank > indices.rank


def _adds_long_rows(case: KernelCase) -> bool:
    updates, indices = case.tensors
    return _is_long(updates.dims[indices.rank :], updates)


@kernel("scatter_add", name="add_rows", takes=_adds_rows, pays=_adds_long_rows)
def add_rows(k: Kernel, updates: Buffer, indices: Buffer, y: Buffer, *, size: tuple[Dim]) -> None:
    """The sums of the rows with each index. Rows with an index outside of the result are skipped."""
    count, inner = product(indices.shape), product(updates.shape[indices.rank :])
    rows, places = updates.view(count, inner), indices.view(count, 1)
    target = y.view(y.shape[0], inner)
    zero = k.constant(0, y.element, k.cpu.lanes(y.element))
    for start, stop in _panels(k, inner):
        for i in k.range(target.shape[0]):
            for c in k.vectors(stop, y.element, start=start):
                target[i, c] = zero
        _update(k, (rows, places, target), (start, stop), [target.shape[0]], lambda old, new: old + new)


def _replaces_rows(case: KernelCase) -> bool:
    x, indices = case.tensors[:2]
    kind, count = case.attributes["reduction"], indices.dims[-1]
    is_number = x.dtype.name in DTYPES and (kind == "set" or not x.dtype.is_bool)
    is_index = indices.dtype.name != "u64" and isinstance(count, int) and 0 < count < x.rank
    return is_number and is_index and kind in ("set", "add")


def _replaces_long_rows(case: KernelCase) -> bool:
    x, indices = case.tensors[:2]
    count = indices.dims[-1]
    return isinstance(count, int) and _is_long(x.dims[count:], x)


@kernel("scatter_nd", name="update_rows", takes=_replaces_rows, pays=_replaces_long_rows)
def update_rows(k: Kernel, x: Buffer, indices: Buffer, updates: Buffer, y: Buffer, *, reduction: str) -> None:
    """A tensor whose rows at tuples of indices are replaced, or added to, in order. Tuples outside of it are skipped."""
    count = indices.shape[-1]
    assert isinstance(count, int)
    sizes, inner, number = x.shape[:count], product(x.shape[count:]), product(indices.shape[:-1])
    source, target = (buffer.view(product(sizes), inner) for buffer in (x, y))
    buffers = updates.view(number, inner), indices.view(number, count), target
    combine: Callable[[Value, Value], Value] = (
        (lambda old, new: new) if reduction == "set" else lambda old, new: old + new
    )
    for start, stop in _panels(k, inner):
        for i in k.range(source.shape[0]):
            for c in k.vectors(stop, x.element, start=start):
                target[i, c] = source[i, c]
        _update(k, buffers, (start, stop), sizes, combine)


def _panels(k: Kernel, inner: Size) -> Iterator[tuple[Size, Size]]:
    """Loop over the columns of rows, in workgroups."""
    if isinstance(inner, int) and inner <= _PANEL:
        return ((0, inner) for _ in k.parallel(1))
    return ((p * _PANEL, k.least(inner, p * _PANEL + _PANEL)) for p in k.parallel(-(-inner // _PANEL)))


def _update(
    k: Kernel,
    buffers: tuple[Buffer, Buffer, Buffer],
    columns: tuple[Size, Size],
    sizes: Sequence[Size],
    combine: Callable[[Value, Value], Value],
) -> None:
    """Combine columns of rows of a matrix with rows of updates, one after the other.

    Args:
        k: The kernel.
        buffers: The updates, the tuples of indices, and the matrix.
        columns: The first column, and the end.
        sizes: The sizes that the tuples are indices of. Their product is the number of rows.
        combine: A function of an element and its update.
    """
    updates, indices, target = buffers
    start, stop = columns
    for n in k.range(updates.shape[0]):
        place = [_index(indices[n, j]) for j in range(len(sizes))]
        inside = (place[0] >= 0) & (place[0] < sizes[0])
        row = place[0]
        for p, size in zip(place[1:], sizes[1:], strict=True):
            inside = inside & (p >= 0) & (p < size)
            row = row * size + p
        for _ in k.when(inside):
            for c in k.vectors(stop, target.element, start=start):
                target[row, c] = combine(target[row, c], updates[n, c])

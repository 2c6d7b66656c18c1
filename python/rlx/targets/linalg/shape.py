"""Lowering rules for shape ops: mostly views, and one copy where elements move."""

from __future__ import annotations

from collections.abc import Sequence

from rlx import mlir
from rlx.ir.dims.dim import Dim
from rlx.ir.shape import Shape
from rlx.numerics.scalars import storage_type
from rlx.ops.shape.shape import SliceRanges
from rlx.targets.linalg.loops import PARALLEL, LoopEmitter, sized_tensor_type
from rlx.targets.linalg.rules import Lowered, lowers


@lowers("reshape")
def reshape(low: LoopEmitter, results: list[Shape], x: Lowered, *, shape: tuple[Dim, ...]) -> mlir.Value:
    return low.reshape(x.value, x.shape.dims, shape)


@lowers("transpose")
def transpose(low: LoopEmitter, results: list[Shape], x: Lowered, *, perm: tuple[int, ...]) -> mlir.Value:
    return low.transpose(x.value, x.shape.dims, perm)


def extract(
    low: LoopEmitter, x: mlir.Value, starts: Sequence[Dim], sizes: Sequence[Dim], strides: Sequence[int]
) -> mlir.Value:
    """`tensor.extract_slice` with sizes that may be symbolic."""
    if 0 in sizes:
        return low.empty(sizes, x.type.element_type)  # it may start at the end, which the op's verifier rejects
    unknown = low.ir.ShapedType.get_dynamic_size()

    def split(dims: Sequence[Dim]) -> tuple[list[int], list[mlir.Value]]:
        static = [d if type(d) is int else unknown for d in dims]
        return static, [low.size(d) for d in dims if type(d) is not int]

    static_starts, dynamic_starts = split(starts)
    static_sizes, dynamic_sizes = split(sizes)
    return low.tensor.extract_slice(
        sized_tensor_type(sizes, x.type.element_type),
        x,
        dynamic_starts,
        dynamic_sizes,
        [],
        static_starts,
        static_sizes,
        list(strides),
    )


@lowers("narrow")
def narrow(
    low: LoopEmitter, results: list[Shape], x: Lowered, *, axis: int, start: tuple[Dim, ...], length: tuple[Dim, ...]
) -> mlir.Value:
    starts: list[Dim] = [0] * x.shape.rank
    starts[axis] = start[0]
    return extract(low, x.value, starts, results[0].dims, [1] * x.shape.rank)


@lowers("slice")
def slice_(low: LoopEmitter, results: list[Shape], x: Lowered, *, ranges: SliceRanges) -> mlir.Value:
    return extract(low, x.value, ranges.starts, results[0].dims, ranges.strides)


@lowers("concat")
def concat(low: LoopEmitter, results: list[Shape], lhs: Lowered, rhs: Lowered, *, axis: int) -> mlir.Value:
    # A chain of concats becomes one op that copies each piece once. The inner concats are then dead.
    pieces = [*_pieces(lhs.value, axis), *_pieces(rhs.value, axis)]
    return low.tensor.concat(sized_tensor_type(results[0].dims, storage_type(results[0].dtype)), axis, pieces)


def _pieces(value: mlir.Value, axis: int) -> list[mlir.Value]:
    owner = value.owner
    if getattr(owner, "name", "") == "tensor.concat" and owner.attributes["dim"].value == axis:
        return list(owner.operands)
    return [value]


@lowers("expand")
def expand(low: LoopEmitter, results: list[Shape], x: Lowered, *, shape: tuple[Dim, ...]) -> mlir.Value:
    if x.shape.dims == tuple(shape):
        return x.value
    element = storage_type(results[0].dtype)
    if not x.shape.rank and low.is_constant(x.value):
        return low.linalg.fill(low.tensor.extract(x.value, []), outs=[low.empty(shape, element)])
    return low.map(shape, element, [x], lambda value: value)


@lowers("update_cache")
def update_cache(
    low: LoopEmitter, results: list[Shape], cache: Lowered, rows: Lowered, start: Lowered, pages: Lowered | None
) -> mlir.Value:
    (pool, length, width), (batch, count, _) = cache.shape.dims, rows.shape.dims
    assert type(batch) is int
    if 0 in rows.shape.dims:
        return cache.value
    arith, unknown, zero = low.arith, low.ir.ShapedType.get_dynamic_size(), low.size(0)

    def clamped(positions: Lowered, b: int, last: Dim) -> mlir.Value:
        position = arith.index_cast(low.index_type, low.tensor.extract(positions.value, [low.size(b)]))
        return arith.maxsi(arith.minsi(position, low.size(last)), zero)

    into, sizes = cache.value, (1, count, width)
    static = [d if type(d) is int else unknown for d in sizes]
    dynamic = [low.size(d) for d in sizes if type(d) is not int]
    for b in range(batch):
        page = [] if pages is None else [clamped(pages, b, pool - 1)]
        starts = [*page, clamped(start, b, length - count)]
        places = [unknown if page else b, unknown, 0]
        part = rows.value if batch == 1 else extract(low, rows.value, (b, 0, 0), sizes, (1, 1, 1))
        into = low.tensor.insert_slice(part, into, starts, dynamic, [], places, static, [1, 1, 1])
    return into


@lowers("reverse")
def reverse(low: LoopEmitter, results: list[Shape], x: Lowered, *, axes: tuple[int, ...]) -> mlir.Value:
    dims = x.shape.dims
    if 0 in dims or not axes:
        return x.value
    last = [low.size(d - 1) for d in dims]

    def body(_: mlir.Value) -> mlir.Value:
        places = [low.scalar_index(i) for i in range(len(dims))]
        return low.tensor.extract(
            x.value, [low.arith.subi(last[i], place) if i in axes else place for i, place in enumerate(places)]
        )

    out = (low.empty(dims, x.value.type.element_type), tuple(range(len(dims))))
    return low.generic([], [out], [PARALLEL] * len(dims), body)

"""Lowering rules for shape ops."""

from __future__ import annotations

from rlx.ir.dtype import i32
from rlx.ir.shape import Shape
from rlx.ops.shape.shape import SliceRanges
from rlx.targets.stablehlo.emitter import HloEmitter
from rlx.targets.stablehlo.rules import Lowered, lowers


@lowers("reshape")
def reshape(emit: HloEmitter, results: list[Shape], x: Lowered, *, shape: tuple[int, ...]) -> Lowered:
    return emit.reshape(x, results[0].static)


@lowers("transpose")
def transpose(emit: HloEmitter, results: list[Shape], x: Lowered, *, perm: tuple[int, ...]) -> Lowered:
    return emit.transpose(x, perm)


@lowers("narrow")
def narrow(
    emit: HloEmitter, results: list[Shape], x: Lowered, *, axis: int, start: tuple[int, ...], length: tuple[int, ...]
) -> Lowered:
    return emit.slice_axis(x, axis, start[0], start[0] + length[0])


@lowers("slice")
def slice_(emit: HloEmitter, results: list[Shape], x: Lowered, *, ranges: SliceRanges) -> Lowered:
    return emit.slice(x, ranges.starts, ranges.limits, ranges.strides)


@lowers("concat")
def concat(emit: HloEmitter, results: list[Shape], lhs: Lowered, rhs: Lowered, *, axis: int) -> Lowered:
    return emit.concatenate([lhs, rhs], axis)


@lowers("expand")
def expand(emit: HloEmitter, results: list[Shape], x: Lowered, *, shape: tuple[int, ...]) -> Lowered:
    return emit.broadcast(x, results[0].static)


@lowers("update_cache")
def update_cache(
    emit: HloEmitter, results: list[Shape], cache: Lowered, rows: Lowered, start: Lowered, pages: Lowered | None
) -> Lowered:
    def position(positions: Lowered, b: int) -> Lowered:
        return emit.reshape(emit.slice_axis(positions, 0, b, b + 1), ())

    zero = emit.full((), i32, 0)
    for b in range(rows.dims[0]):
        entry = emit.full((), i32, b) if pages is None else position(pages, b)
        cache = emit.dynamic_update_slice(cache, emit.slice_axis(rows, 0, b, b + 1), [entry, position(start, b), zero])
    return cache


@lowers("reverse")
def reverse(emit: HloEmitter, results: list[Shape], x: Lowered, *, axes: tuple[int, ...]) -> Lowered:
    return emit.reverse(x, axes)

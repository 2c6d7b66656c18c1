"""Lowering rules for reductions and softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import DType, i64
from rlx.ir.shape import Shape
from rlx.numerics.scalars import Scalars, storage_type
from rlx.targets.linalg.contraction import accumulator, round_to_result
from rlx.targets.linalg.elementwise import activate
from rlx.targets.linalg.loops import PARALLEL, REDUCTION, LoopEmitter, product_of
from rlx.targets.linalg.rules import Lowered, lowers

# The method of `Scalars` that combines two numbers.
COMBINE = {"sum": "add", "mean": "add", "max": "max", "min": "min", "prod": "mul"}


def neutral(kind: str, dtype: DType) -> Any:
    """The initial value of a reduction."""
    if kind in ("sum", "mean"):
        return 0
    if kind == "prod":
        return 1
    if dtype.is_float:
        return -np.inf if kind == "max" else np.inf
    least, greatest = dtype.min, dtype.max
    return least if kind == "max" else greatest


@lowers("reduce")
def reduce(
    low: LoopEmitter, results: list[Shape], x: Lowered, *, kind: str, axes: tuple[int, ...], keep_dims: bool
) -> mlir.Value:
    dtype = x.shape.dtype
    wide = accumulator(dtype)
    dims = [d for i, d in enumerate(x.shape.dims) if i not in axes]
    several = [i for i in axes if x.shape.dims[i] != 1]
    if len(several) > 1 and COMBINE[kind] == "add":
        # The last axis is summed separately, because rounding errors grow with the length of a sum. Also, if a product is fused
        # into the sum, tiling treats them as a contraction, and requires all summed axes in both factors.
        rows = _combined(low, x, kind, (several[-1],))
        rest = Shape((d for i, d in enumerate(x.shape.dims) if i != several[-1]), wide)
        left = tuple(i - (i > several[-1]) for i in axes if i != several[-1])
        total = _combined(low, Lowered(rows, rest), kind, left)
    else:
        total = _combined(low, x, kind, axes)
    if kind == "mean":
        total = _divided(low, total, dims, wide, product_of([x.shape.dims[a] for a in axes]))
    return low.reshape(round_to_result(low, total, dims, dtype), dims, results[0].dims)


def _combined(low: LoopEmitter, x: Lowered, kind: str, axes: tuple[int, ...]) -> mlir.Value:
    """A reduction over axes in one loop, in the dtype of the accumulator."""
    dtype = x.shape.dtype
    kept = [i for i in range(x.shape.rank) if i not in axes]
    s = Scalars(dtype)

    def body(value: mlir.Value, total: mlir.Value) -> mlir.Value:
        return getattr(s, COMBINE[kind])(total, s.enter(value))

    out = low.filled([x.shape.dims[i] for i in kept], storage_type(accumulator(dtype)), neutral(kind, dtype))
    iterators = [REDUCTION if i in axes else PARALLEL for i in range(x.shape.rank)]
    return low.generic([(x.value, tuple(range(x.shape.rank)))], [(out, tuple(kept))], iterators, body)


def _divided(low: LoopEmitter, total: mlir.Value, dims: Sequence[Dim], dtype: DType, count: Any) -> mlir.Value:
    s = Scalars(dtype.part)
    integer = low.ir.IntegerType.get_signless(64)
    size = s.constant(count) if type(count) is int else s.convert(low.arith.index_cast(integer, low.size(count)), i64)

    def body(value: mlir.Value) -> mlir.Value:
        if not dtype.is_complex:
            return s.div(value, size)
        parts = (s.div(part, size) for part in (s.complex.re(value), s.complex.im(value)))
        return s.complex.create_(storage_type(dtype), *parts)

    return low.map(dims, storage_type(dtype), [Lowered(total, Shape(dims, dtype))], body)


@lowers("softmax")
def softmax(low: LoopEmitter, results: list[Shape], x: Lowered, *, axis: int) -> mlir.Value:
    """`e·(1/sum(e))` with `e = exp(x - max(x))`: one division for each row. `linalg.softmax` divides each element."""
    dims, dtype = x.shape.dims, x.shape.dtype
    wide = accumulator(dtype)
    s, element = Scalars(wide), storage_type(wide)
    value = x.value
    if wide is not dtype:
        value = low.map(dims, element, [x], lambda v: low.arith.extf(element, v))
    full, ones = Shape(dims, wide), Shape([1 if i == axis else d for i, d in enumerate(dims)], wide)
    rest = [d for i, d in enumerate(dims) if i != axis]

    def along_rows(kind: str, of: mlir.Value) -> Lowered:
        return Lowered(low.reshape(_combined(low, Lowered(of, full), kind, (axis,)), rest, ones.dims), ones)

    def shifted(v: mlir.Value, largest: mlir.Value) -> mlir.Value:
        return activate(s, "exp", s.sub(v, largest))

    powers = low.map(dims, element, [Lowered(value, full), along_rows("max", value)], shifted)
    total = along_rows("sum", powers)
    inverse = low.map(ones.dims, element, [total], lambda v: s.div(s.constant(1.0), v))
    result = low.map(dims, element, [Lowered(powers, full), Lowered(inverse, ones)], s.mul)
    return round_to_result(low, result, dims, dtype)

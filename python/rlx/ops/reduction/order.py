"""Sorting."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import REAL
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import Flags, Tensors
from rlx.ir.op.card import Attributes, Card, Cost, OpSample, SampleOperand, Shapes, moved_bytes, sample
from rlx.ir.shape import Shape
from rlx.ops.lift import axis_of, check_axis
from rlx.ops.reduction.reduce import order_key

# The assumed log2 of the size of a symbolic axis.
_TYPICAL_LOG = 12


class _Sorting(Card):
    """Ops that sort an axis."""

    def build(self, b: Builder, x: Tensor, axis: int = -1, descending: bool = False) -> Tensor:
        return b.emit(self.name, (x,), axis=axis_of(axis, x.rank), descending=descending)

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, axis: int, descending: bool) -> Tensor:
        return b.emit(self.name, operands, axis=axis + 1, descending=descending)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        axis: int = attributes["axis"]
        size = operands[0].dims[axis]
        comparisons = size.bit_length() if type(size) is int else _TYPICAL_LOG
        return Cost(comparisons * operands[0].num_elements, moved_bytes(operands, results))


class Argsort(_Sorting, op="argsort"):
    def infer(self, x: Shape, *, axis: int, descending: bool) -> Shape:
        check_axis(axis, x.rank)
        return x.with_dtype("i32")

    def evaluate(self, x: np.ndarray, *, axis: int, descending: bool) -> np.ndarray:
        key = order_key(x)
        if not descending:
            return np.argsort(key, axis, kind="stable").astype(np.int32)
        # A stable sort of the reversed axis, reversed, is descending with ties in index order; NaN sorts last.
        order = np.flip(np.argsort(np.flip(key, axis), axis, kind="stable"), axis)
        return (x.shape[axis] - 1 - order).astype(np.int32)

    def samples(self) -> Iterable[OpSample]:
        few: Attributes = {"low": 0, "high": 4}  # ties
        yield sample(SampleOperand((3, 9), **few), axis=1, dtypes=(*REAL, "bool"))
        yield sample((2, 150, 2), axis=1, descending=True, dtypes=("f32", "i64"))
        yield sample(SampleOperand((9, 3), **few), axis=0, descending=True, dtypes=("f32",))
        yield sample((2, 0), axis=1, dtypes=("f32",))
        yield sample((2, "n"), axis=1, dtypes=("f32",))


class Sort(_Sorting, op="sort"):
    def infer(self, x: Shape, *, axis: int, descending: bool) -> Shape:
        check_axis(axis, x.rank)
        return x

    def evaluate(self, x: np.ndarray, *, axis: int, descending: bool) -> np.ndarray:
        order = Argsort().evaluate(x, axis=axis, descending=descending)
        return np.take_along_axis(x, order, axis)

    def decompose(self, b: Builder, x: Tensor, *, axis: int, descending: bool) -> Tensor:
        # Derivatives use this decomposition too: the order is computed once, and tangents are gathered in the same way.
        last = x.rank - 1
        swapped = [last if i == axis else axis if i == last else i for i in range(x.rank)]
        rows = b.transpose(x, swapped)
        order = b.argsort(rows, axis=last, descending=descending)
        return b.transpose(b.gather_batched(rows, order, axis=last), swapped)

    def samples(self) -> Iterable[OpSample]:
        few: Attributes = {"low": 0, "high": 4}
        yield sample(SampleOperand((3, 9), **few), axis=1, dtypes=(*REAL, "bool"))
        yield sample((9, 3), axis=0, descending=True, dtypes=("f32",))
        yield sample((0, 3), axis=0, dtypes=("f32",))
        yield sample(("n", 2), axis=0, dtypes=("f32",))

"""Gathers and scatters at tuples of indices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from rlx.ir.builder import Builder, Tensor
from rlx.ir.card import Card, Cost, Operand, moved_bytes, sample
from rlx.ir.dim import Dim, minimum, product
from rlx.ir.dtype import i32, i64
from rlx.ir.errors import ShapeError
from rlx.ir.shape import Shape
from rlx.ops.index import INDICES, clamp
from rlx.ops.lift import constant_scalar, same_dtype, tensor_like
from rlx.ops.reduce import REAL
from rlx.ops.shape import EVERY


def _tuple_size(indices: Shape) -> int:
    """The size of the last axis of indices.

    Raises:
        ShapeError: There is none, or it is a symbol.
    """
    if indices.rank < 1 or type(indices.dims[-1]) is not int:
        raise ShapeError(f"the indices {indices} need a last axis of static size: the tuples")
    return indices.dims[-1]


class GatherNd(Card, op="gather_nd"):
    def infer(self, x: Shape, indices: Shape, *, batch_dims: int) -> Shape:
        count = _tuple_size(indices)
        if not 0 <= batch_dims < indices.rank:
            raise ShapeError(f"batch_dims = {batch_dims} does not fit indices of rank {indices.rank}")
        if batch_dims + count > x.rank:
            raise ShapeError(f"tuples of {count} after {batch_dims} batch axes do not fit {x}")
        if indices.dims[:batch_dims] != x.dims[:batch_dims]:
            raise ShapeError(f"the first {batch_dims} axes of {x} and of the indices {indices} must agree")
        result = x.with_dims((*indices.dims[:-1], *x.dims[batch_dims + count :]))
        for axis in range(batch_dims, batch_dims + count):
            if x.dims[axis] == 0 and result.num_elements != 0:
                raise ShapeError(f"axis {axis} of {x} is empty: there is nothing to gather")
        return result

    def requires(self, x: Shape, indices: Shape, *, batch_dims: int) -> Iterator[tuple[Dim, str]]:
        end = batch_dims + _tuple_size(indices)
        # An empty axis may be asked for nothing.
        wanted = product((*indices.dims[:-1], *x.dims[end:]))
        for axis in range(batch_dims, end):
            yield x.dims[axis] - minimum(1, wanted), f"axis {axis} of x is empty"

    def evaluate(self, x: np.ndarray, indices: np.ndarray, *, batch_dims: int) -> np.ndarray:
        *places, count = indices.shape
        end = batch_dims + count
        if 0 in x.shape[batch_dims:end]:
            return np.zeros((*places, *x.shape[end:]), x.dtype)
        batch = np.indices(places)[:batch_dims]
        chosen = [clamp(indices[..., k], x.shape[batch_dims + k]) for k in range(count)]
        return np.broadcast_to(x[(*batch, *chosen)], (*places, *x.shape[end:])).copy()

    def decompose(self, b: Builder, x: Tensor, indices: Tensor, *, batch_dims: int) -> Tensor:
        """Tuples become positions on one axis, in i64: the axis may be longer than any one of them."""
        places, count = indices.shape.dims[:-1], _tuple_size(indices.shape)
        end = batch_dims + count
        batch, indexed, rest = x.shape.dims[:batch_dims], x.shape.dims[batch_dims:end], x.shape.dims[end:]
        if count == 1:
            linear = b.reshape(indices, places)
        else:
            linear = b.expand(constant_scalar(b, 0, i64), places)
            for k, size in enumerate(indexed):
                linear = linear * _extent(b, size) + _clamped(b, indices, places, k, size)
        table = b.reshape(x, (*batch, product(indexed), *rest))
        return b.gather_batched(table, linear, axis=batch_dims) if batch_dims else b.gather(table, linear, axis=0)

    def build(self, b: Builder, x: Tensor, indices: Any, batch_dims: int = 0) -> Tensor:
        return b.emit("gather_nd", (x, tensor_like(b, indices, i32)), batch_dims=batch_dims)

    def cost(self, operands: Any, results: Any, attributes: Any) -> Cost:
        return Cost(0, 2 * results[0].size_bytes + operands[1].size_bytes)

    def samples(self) -> Any:
        wide: Any = {"low": -3, "high": 9}  # out of range on both sides: clamped
        yield sample((5, 3, 2), Operand((4, 2), "i32", **wide), dtypes=EVERY)
        for index in INDICES:
            yield sample((5, 3), Operand((2, 2, 2), index, **wide), dtypes=("f32",))
        yield sample((2, 5, 3), Operand((2, 4, 1), "i32", **wide), batch_dims=1, dtypes=("f32",))
        yield sample((2, 3), Operand((4, 0), "i32"), dtypes=("f32",))
        yield sample((0, 3), Operand((0, 2), "i32"), dtypes=("f32",))
        yield sample(("n", "m", 4, 2), Operand(("n", 3, 2), "i64", **wide), batch_dims=1, dtypes=("f32",))


def _extent(b: Builder, size: Dim) -> Tensor:
    """A size as an i64 scalar."""
    return b.constant(np.int64(size)) if type(size) is int else b.cast(b.dim_size(size), i64)


def _clamped(b: Builder, indices: Tensor, places: tuple[Dim, ...], k: int, size: Dim) -> Tensor:
    """The k-th index of each tuple, moved into range."""
    own = b.reshape(b.narrow(indices, -1, k, 1), places)
    return b.maximum(b.minimum(b.cast(own, i64), _extent(b, size - 1)), 0)


# How an update meets what stands there; `set` aside. Of bools a sum is `or`, a product `and`.
_JOIN: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


class ScatterNd(Card, op="scatter_nd"):
    def infer(self, x: Shape, indices: Shape, updates: Shape, *, reduction: str) -> Shape:
        count = _tuple_size(indices)
        if same_dtype(x, updates).is_complex and reduction in ("max", "min"):
            raise ShapeError(f"{reduction} is not defined for c64: complex numbers have no order")
        if count > x.rank:
            raise ShapeError(f"tuples of {count} do not fit {x}")
        expected = x.with_dims((*indices.dims[:-1], *x.dims[count:]))
        if updates != expected:
            raise ShapeError(f"the updates must be {expected} for {x} and indices {indices}, got {updates}")
        return x

    def evaluate(self, x: np.ndarray, indices: np.ndarray, updates: np.ndarray, *, reduction: str) -> np.ndarray:
        count = indices.shape[-1]
        sizes, slices = x.shape[:count], x.shape[count:]
        wide = x.dtype if x.dtype.kind in "iub" else np.complex128 if x.dtype.kind == "c" else np.float64
        result = x.astype(x.dtype if reduction == "set" else wide)
        number = np.prod(indices.shape[:-1], dtype=int)
        rows = updates.reshape(number, *slices)
        for tuple_, update in zip(indices.reshape(number, count).tolist(), rows, strict=True):
            if all(0 <= i < size for i, size in zip(tuple_, sizes, strict=True)):
                at = (*tuple_, ...)
                result[at] = update if reduction == "set" else _JOIN[reduction](result[at], update.astype(wide))
        return result.astype(x.dtype)

    def build(self, b: Builder, x: Tensor, indices: Any, updates: Any, reduction: str = "set") -> Tensor:
        operands = (x, tensor_like(b, indices, i32), tensor_like(b, updates, x.dtype))
        return b.emit("scatter_nd", operands, reduction=reduction)

    def cost(self, operands: Any, results: Any, attributes: Any) -> Cost:
        return Cost(operands[2].num_elements, moved_bytes(operands, results))

    def samples(self) -> Any:
        wide: Any = {"low": -2, "high": 7}  # out of range on both sides: dropped
        for reduction in ("set", "add", "mul"):
            yield sample((5, 3), Operand((8, 1), "i32", **wide), (8, 3), reduction=reduction, dtypes=EVERY)
        for reduction in ("max", "min"):
            dtypes = (*REAL, "bool")
            yield sample((5, 3), Operand((8, 1), "i32", **wide), (8, 3), reduction=reduction, dtypes=dtypes)
        for index in INDICES:
            yield sample((3, 5), Operand((4, 2, 2), index, **wide), (4, 2), reduction="add", dtypes=("f32",))
        yield sample((3, 2), Operand((4, 0), "i32"), (4, 3, 2), dtypes=("f32",))
        yield sample((0, 2), Operand((3, 1), "i32"), (3, 2), reduction="add", dtypes=("f32",))
        yield sample(("n", 2), Operand(("m", 1), "i64", **wide), ("m", 2), dtypes=("f32",))
        yield sample(("n", 2), Operand(("m", 1), "i32", **wide), ("m", 2), reduction="mul", dtypes=("f32",))


class ScatterAdd(Card, op="scatter_add"):
    def infer(self, updates: Shape, indices: Shape, *, size: tuple[Dim, ...]) -> Shape:
        if len(size) != 1:
            raise ShapeError(f"size is a list of one dimension, got {len(size)}")
        if updates.dims[: indices.rank] != indices.dims:
            raise ShapeError(f"the first axes of the updates {updates} must be those of the indices {indices}")
        return updates.with_dims((size[0], *updates.dims[indices.rank :]))

    def decompose(self, b: Builder, updates: Tensor, indices: Tensor, *, size: tuple[Dim, ...]) -> Tensor:
        dims = (size[0], *updates.shape.dims[indices.rank :])
        zeros = b.expand(constant_scalar(b, 0, updates.dtype), dims)
        tuples = b.reshape(indices, (*indices.shape.dims, 1))
        return b.scatter_nd(zeros, tuples, updates, reduction="add")

    def evaluate(self, updates: np.ndarray, indices: np.ndarray, *, size: tuple[int, ...]) -> np.ndarray:
        zeros = np.zeros((size[0], *updates.shape[indices.ndim :]), updates.dtype)
        return ScatterNd().evaluate(zeros, indices[..., None], updates, reduction="add")

    def build(self, b: Builder, updates: Tensor, indices: Any, size: Any) -> Tensor:
        return b.emit("scatter_add", (updates, tensor_like(b, indices, i32)), size=(size,))

    def cost(self, operands: Any, results: Any, attributes: Any) -> Cost:
        return Cost(operands[0].num_elements, moved_bytes(operands, results))

    def samples(self) -> Any:
        wide: Any = {"low": -2, "high": 7}
        numbers = tuple(name for name in EVERY if name != "bool")
        yield sample((8, 3), Operand((8,), "i32", **wide), size=(5,), dtypes=numbers)
        yield sample((4, 2), Operand((4, 2), "i64", **wide), size=(5,), dtypes=("f32",))
        yield sample((0, 3), Operand((0,), "i32"), size=(2,), dtypes=("f32",))
        yield sample(("m", 2), Operand(("m",), "i32", **wide), size=("n",), dtypes=("f32",))

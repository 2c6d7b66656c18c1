"""Gathers and scatters at tuples of indices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from rlx.ir.dims.dim import Dim, maximum, minimum, product
from rlx.ir.dtype import ARITHMETIC, EVERY, NUMBERS, REAL, i32, i64, u32, u64
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import Flags, ShapeLike, Tangents, TensorLike, Tensors
from rlx.ir.op.card import Attributes, Card, Cost, OpSample, SampleOperand, Shapes, moved_bytes, sample
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.contraction.contraction import adjoint
from rlx.ops.lift import cast, constant_scalar, same_dtype, tensor_like
from rlx.ops.norm import statistics_input
from rlx.ops.shape.index import (
    INDICES,
    clamp,
    clamp_indices,
    extent,
    index_dtype,
    place_dtype,
    widened_index,
)
from rlx.support.errors import ShapeError


def _tuple_size(indices: Shape) -> int:
    """Return the size of the last axis of the indices, that is, the number of axes that a tuple indexes.

    Raises:
        ShapeError: There is no axis, or its size is symbolic.
    """
    if indices.rank < 1 or type(indices.dims[-1]) is not int:
        raise ShapeError(f"the indices {indices} need a last axis of static size: the tuples")
    return indices.dims[-1]


def _entry(b: Builder, indices: Tensor, k: int) -> Tensor:
    """Return the k-th index of each tuple."""
    return b.reshape(b.narrow(indices, -1, k, 1), indices.shape.dims[:-1])


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
        # An empty axis is allowed if nothing is read from it.
        num_read = product((*indices.dims[:-1], *x.dims[end:]))
        for axis in range(batch_dims, end):
            yield x.dims[axis] - minimum(1, num_read), f"axis {axis} of x is empty"

    def evaluate(self, x: np.ndarray, indices: np.ndarray, *, batch_dims: int) -> np.ndarray:
        *places, count = indices.shape
        end = batch_dims + count
        if 0 in x.shape[batch_dims:end]:
            return np.zeros((*places, *x.shape[end:]), x.dtype)
        batch = np.indices(places)[:batch_dims]
        chosen = [clamp(indices[..., k], x.shape[batch_dims + k]) for k in range(count)]
        return np.broadcast_to(x[(*batch, *chosen)], (*places, *x.shape[end:])).copy()

    def decompose(self, b: Builder, x: Tensor, indices: Tensor, *, batch_dims: int) -> Tensor:
        """Convert tuples to positions on one axis, in i64 if the joined axis may be longer than i32 allows."""
        places, count = indices.shape.dims[:-1], _tuple_size(indices.shape)
        end = batch_dims + count
        batch, indexed, slice_dims = x.shape.dims[:batch_dims], x.shape.dims[batch_dims:end], x.shape.dims[end:]
        if count == 1:
            linear = b.reshape(indices, places)
        else:
            kind = place_dtype(indices.dtype, indexed)
            linear = b.expand(constant_scalar(b, 0, kind), places)
            for k, size in enumerate(indexed):
                index = cast(b, clamp_indices(b, _entry(b, indices, k), size), kind)
                linear = linear * extent(b, size, kind) + index
        table = b.reshape(x, (*batch, product(indexed), *slice_dims))
        return b.gather_batched(table, linear, axis=batch_dims) if batch_dims else b.gather(table, linear, axis=0)

    def build(self, b: Builder, x: Tensor, indices: TensorLike, batch_dims: int = 0) -> Tensor:
        return b.emit("gather_nd", (x, tensor_like(b, indices, i32)), batch_dims=batch_dims)

    linear = ("x",)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(0, 2 * results[0].size_bytes + operands[1].size_bytes)

    def samples(self) -> Iterable[OpSample]:
        wide: Attributes = {"low": -3, "high": 9}  # out of range in both directions: clamped
        yield sample((5, 3, 2), SampleOperand((4, 2), "i32", **wide), dtypes=EVERY)
        for index in INDICES:
            yield sample((5, 3), SampleOperand((2, 2, 2), index, **wide), dtypes=("f32",))
        yield sample((2, 5, 3), SampleOperand((2, 4, 1), "i32", **wide), batch_dims=1, dtypes=("f32",))
        yield sample((2, 3), SampleOperand((4, 0), "i32"), dtypes=("f32",))
        yield sample((0, 3), SampleOperand((0, 2), "i32"), dtypes=("f32",))
        yield sample(("n", "m", 4, 2), SampleOperand(("n", 3, 2), "i64", **wide), batch_dims=1, dtypes=("f32",))


# The combination of an update with the element at its position, except for `set`. For bools, a sum is `or` and a
# product is `and`.
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
            raise ShapeError(f"{reduction} is not defined for {x.dtype.name}: complex numbers have no order")
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
                place = (*tuple_, ...)
                result[place] = update if reduction == "set" else _JOIN[reduction](result[place], update.astype(wide))
        return result.astype(x.dtype)

    def build(self, b: Builder, x: Tensor, indices: TensorLike, updates: TensorLike, reduction: str = "set") -> Tensor:
        operands = (x, tensor_like(b, indices, i32), tensor_like(b, updates, x.dtype))
        return b.emit("scatter_nd", operands, reduction=reduction)

    def jvp(
        self, b: Builder, operands: Tensors, tangents: Tangents, results: Tensors, *, reduction: str
    ) -> Tensor | None:
        x, indices, updates = operands
        dx, _, du = tangents
        if reduction == "add" and du is None:
            return dx
        if reduction in ("add", "set"):
            moved = rules.or_zeros(b, dx, x.shape), indices, rules.or_zeros(b, du, updates.shape)
            return b.emit("scatter_nd", moved, reduction=reduction)
        if reduction == "mul":
            moved_x = None if dx is None else b.emit("scatter_nd", (dx, indices, updates), reduction="mul")
            return rules.total(b, (moved_x, None if du is None else _mul_tangent(b, operands, du)))
        attained, shares = _winners(b, operands, results[0])
        parts = [
            b.where(wins, statistics_input(b, rules.or_zeros(b, d, o.shape)), 0.0)
            for wins, d, o in zip(attained, (dx, du), (x, updates), strict=True)
        ]
        return cast(b, b.scatter_nd(parts[0], indices, parts[1], reduction="add") * shares, x.dtype)

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors, *, reduction: str
    ) -> rules.Cotangents:
        (x, indices, updates), (dy,) = operands, cotangents
        if reduction == "add":
            return dy, None, lambda: gathered_or_zero(b, dy, indices)
        if reduction == "set":
            nothing = rules.zeros(b, updates.shape)
            return (
                lambda: b.emit("scatter_nd", (dy, indices, nothing), reduction="set"),
                None,
                lambda: _of_last(b, dy, indices),
            )
        if reduction == "mul":
            return (
                lambda: b.emit("scatter_nd", (dy, indices, adjoint(b, updates)), reduction="mul"),
                None,
                lambda: _mul_cotangent(b, operands, dy),
            )
        (x_attains, update_attains), shares = _winners(b, operands, results[0])
        shared = statistics_input(b, dy) * shares
        return (
            lambda: cast(b, b.where(x_attains, shared, 0.0), x.dtype),
            None,
            lambda: cast(b, b.where(update_attains, gathered_or_zero(b, shared, indices), 0.0), x.dtype),
        )

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, reduction: str) -> Tensor:
        x, indices, updates = operands
        x, updates = (
            rules.batch(b, v, is_batched, size) for v, is_batched in zip((x, updates), batched[::2], strict=True)
        )
        if batched[1]:  # one more index for the batch entry
            kind = i64 if indices.dtype in (i64, u32, u64) else i32
            number = b.iota((*indices.shape.dims[:-1], 1), axis=0, dtype=kind)
            tuples = b.concat([number, widened_index(b, indices) if kind is i64 else cast(b, indices, kind)], axis=-1)
            return b.emit("scatter_nd", (x, tuples, updates), reduction=reduction)
        # All entries have the same positions: the batch is one more axis of the slices.
        count, place_axes = _tuple_size(indices.shape), indices.rank - 1
        moved = rules.move_axis(b, x, 0, count), indices, rules.move_axis(b, updates, 0, place_axes)
        return rules.move_axis(b, b.emit("scatter_nd", moved, reduction=reduction), count, 0)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(operands[2].num_elements, moved_bytes(operands, results))

    def samples(self) -> Iterable[OpSample]:
        wide: Attributes = {"low": -2, "high": 7}  # out of range in both directions: dropped
        for reduction in ("set", "add", "mul"):
            yield sample((5, 3), SampleOperand((8, 1), "i32", **wide), (8, 3), reduction=reduction, dtypes=ARITHMETIC)
        for reduction in ("max", "min"):
            dtypes = (*REAL, "bool")
            yield sample((5, 3), SampleOperand((8, 1), "i32", **wide), (8, 3), reduction=reduction, dtypes=dtypes)
        for index in INDICES:
            yield sample((3, 5), SampleOperand((4, 2, 2), index, **wide), (4, 2), reduction="add", dtypes=("f32",))
        yield sample((3, 2), SampleOperand((4, 0), "i32"), (4, 3, 2), dtypes=("f32",))
        yield sample((0, 2), SampleOperand((3, 1), "i32"), (3, 2), reduction="add", dtypes=("f32",))
        yield sample(("n", 2), SampleOperand(("m", 1), "i64", **wide), ("m", 2), dtypes=("f32",))
        yield sample(("n", 2), SampleOperand(("m", 1), "i32", **wide), ("m", 2), reduction="mul", dtypes=("f32",))


# --- derivatives of scatters: gathers from the written positions ------------------------------------


def _gathered(b: Builder, x: Tensor, indices: Tensor) -> Tensor:
    """Return the slice of `x` at each tuple.

    For tuples out of range, the results are arbitrary numbers, even if `x` is empty.
    """
    count, dims = _tuple_size(indices.shape), x.shape.dims
    missing = [maximum(1 - d, 0) if i < count else 0 for i, d in enumerate(dims)]
    if any(m != 0 for m in missing):
        x = b.pad(x, [(0, m) for m in missing])
    return b.gather_nd(x, indices)


def gathered_or_zero(b: Builder, x: Tensor, indices: Tensor) -> Tensor:
    """Return the slice of `x` at each tuple, and zeros for a tuple out of range."""
    result = _gathered(b, x, indices)
    return b.where(_over_slices(b, _inside(b, x.shape.dims, indices), result), result, 0)


def _inside(b: Builder, dims: Sequence[Dim], indices: Tensor) -> Tensor:
    """Return which tuples are in range."""
    result = b.expand(b.constant(True), indices.shape.dims[:-1])
    for k in range(_tuple_size(indices.shape)):
        kind = index_dtype(indices.dtype, dims[k])
        index = cast(b, _entry(b, indices, k), kind)
        result = result & (index >= 0) & (index < extent(b, dims[k], kind))
    return result


def _over_slices(b: Builder, per_place: Tensor, slices: Tensor) -> Tensor:
    """Return one number per position, reshaped to broadcast over the slices."""
    return b.reshape(per_place, (*per_place.shape.dims, *(1,) * (slices.rank - per_place.rank)))


def _of_last(b: Builder, dy: Tensor, indices: Tensor) -> Tensor:
    """Return the cotangent of updates for `set`. Of several updates of one position, the last gets all of it."""
    places = indices.shape.dims[:-1]
    number = product(places)
    if number == 1:
        return gathered_or_zero(b, dy, indices)
    number_of_update = b.reshape(b.iota((number,), dtype=i32) + 1, places)
    last = rules.zeros(b, Shape(dy.shape.dims[: _tuple_size(indices.shape)], i32))
    last = b.scatter_nd(last, indices, number_of_update, reduction="set")
    cotangents = _gathered(b, dy, indices)
    return b.where(_over_slices(b, gathered_or_zero(b, last, indices) == number_of_update, cotangents), cotangents, 0)


def _winners(b: Builder, operands: Tensors, y: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Return which elements and updates attain a maximum or minimum `y`, and their equal shares, as in JAX."""
    x, indices, updates = operands
    x_attains, update_attains = x == y, updates == _gathered(b, y, indices)
    kind = statistics_input(b, y).dtype
    count = b.scatter_nd(cast(b, x_attains, kind), indices, cast(b, update_attains, kind), reduction="add")
    return (x_attains, update_attains), 1.0 / count


def _mul_tangent(b: Builder, operands: Tensors, du: Tensor) -> Tensor:
    """Return the part of a product's tangent that comes from the updates."""
    x, indices, updates = operands
    moved = _product_of_others(b, x.shape, indices, updates) * statistics_input(b, du)
    wide = statistics_input(b, x)
    return cast(b, wide * b.scatter_nd(rules.zeros(b, wide.shape), indices, moved, reduction="add"), x.dtype)


def _mul_cotangent(b: Builder, operands: Tensors, dy: Tensor) -> Tensor:
    """Return the cotangent of the updates of a product."""
    x, indices, updates = operands
    cofactors = adjoint(b, _product_of_others(b, x.shape, indices, updates))
    return cast(
        b,
        cofactors * gathered_or_zero(b, statistics_input(b, dy) * adjoint(b, statistics_input(b, x)), indices),
        updates.dtype,
    )


def _product_of_others(b: Builder, x: Shape, indices: Tensor, updates: Tensor) -> Tensor:
    """Return for each update the product of all others at the same position; f16 and bf16 are widened to f32.

    Updates are sorted by position. The product of those before each update is multiplied by the product of those after
    it. There is no division, so updates may be zero.
    """
    count, number = _tuple_size(indices.shape), product(indices.shape.dims[:-1])
    slices = x.dims[count:]
    kind = place_dtype(indices.dtype, x.dims[:count])
    place = b.expand(constant_scalar(b, 0, kind), indices.shape.dims[:-1])
    for k, size in enumerate(x.dims[:count]):
        place = place * extent(b, size, kind) + cast(b, _entry(b, indices, k), kind)
    # Dropped updates get a position that no other update has.
    place = b.reshape(b.where(_inside(b, x.dims, indices), place, -1), (number,))
    order = b.argsort(place, axis=0)
    rows = b.gather(b.reshape(statistics_input(b, updates), (number, *slices)), order)

    def step(carry: tuple[Tensor, Tensor], element: tuple[Tensor, Tensor]) -> tuple[tuple[Tensor, Tensor], Tensor]:
        (product_, previous), (row, place_of_row) = carry, element
        before = b.where(place_of_row == previous, product_, 1.0)
        return (before * row, place_of_row), before

    ones = b.expand(constant_scalar(b, 1, rows.dtype), slices)
    start, sorted_places = (ones, constant_scalar(b, -1, kind)), b.gather(place, order)
    before, after = (
        b.scan(step, start, (rows, sorted_places), reverse=is_reversed)[1] for is_reversed in (False, True)
    )
    back = b.gather(before * after, b.argsort(order, axis=0))
    return b.reshape(back, updates.shape.dims)


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

    def build(self, b: Builder, updates: Tensor, indices: TensorLike, size: ShapeLike) -> Tensor:
        return b.emit("scatter_add", (updates, tensor_like(b, indices, i32)), size=(size,))

    linear = ("updates",)

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors, *, size: tuple[Dim, ...]
    ) -> rules.Cotangents:
        indices = operands[1]
        return gathered_or_zero(b, cotangents[0], b.reshape(indices, (*indices.shape.dims, 1))), None

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(operands[0].num_elements, moved_bytes(operands, results))

    def samples(self) -> Iterable[OpSample]:
        wide: Attributes = {"low": -2, "high": 7}
        numbers = NUMBERS
        yield sample((8, 3), SampleOperand((8,), "i32", **wide), size=(5,), dtypes=numbers)
        yield sample((4, 2), SampleOperand((4, 2), "i64", **wide), size=(5,), dtypes=("f32",))
        yield sample((0, 3), SampleOperand((0,), "i32"), size=(2,), dtypes=("f32",))
        yield sample(("m", 2), SampleOperand(("m",), "i32", **wide), size=("n",), dtypes=("f32",))

"""Shape ops: the same elements in another arrangement."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.ir.dims.dim import Dim, dim, exact_divide, product
from rlx.ir.dtype import EVERY
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import Flags, ShapeLike, Size, TensorLike, Tensors
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.ir.op.card import Attributes, Card, Cost, OpSample, Shapes, moved_bytes, sample
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.lift import as_tensors, axes_of, axis_of, broadcast, check_axes, check_axis, common, same_dtype
from rlx.support.errors import ShapeError


class _Movement(Card):
    """Ops that only move data."""

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(0, moved_bytes(operands, results))


class Reshape(_Movement, op="reshape"):
    def infer(self, x: Shape, *, shape: tuple[Dim, ...]) -> Shape:
        if product(shape) != x.num_elements:
            target = ", ".join(map(str, shape))
            raise ShapeError(f"{x} has {x.num_elements} elements, [{target}] has {product(shape)}")
        return x.with_dims(shape)

    def evaluate(self, x: np.ndarray, *, shape: tuple[int, ...]) -> np.ndarray:
        return x.reshape(shape)

    def build(self, b: Builder, x: Tensor, shape: ShapeLike) -> Tensor:
        return b.emit("reshape", (x,), shape=resolve_shape(x.shape, shape))

    linear = ("x",)

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors, *, shape: tuple[Dim, ...]
    ) -> tuple[Tensor]:
        return (b.reshape(cotangents[0], operands[0].shape.dims),)

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, shape: tuple[Dim, ...]) -> Tensor:
        return b.emit("reshape", operands, shape=(size, *shape))

    def samples(self) -> Iterable[OpSample]:
        yield sample((2, 3, 4), shape=(6, 4), dtypes=EVERY)
        yield sample((2, 3, 4), shape=(2, 2, 6), dtypes=("f32", "bool"))
        yield sample((4,), shape=(1, 4, 1), dtypes=("f32",))
        yield sample((1,), shape=(), dtypes=("f32",))
        yield sample((), shape=(1, 1), dtypes=("f32",))
        yield sample((0, 3), shape=(3, 0, 2), dtypes=("f32",))
        yield sample(("n", 4, 6), shape=("n", 24), dtypes=("f32",))
        yield sample(("n", 4, 6), shape=("2*n", 2, 6), dtypes=("f32",))
        yield sample(("n", "m", 6), shape=("n*m", 6), dtypes=("f32",))


def resolve_shape(x: Shape, shape: ShapeLike) -> tuple[Dim, ...]:
    """Return the dimensions of a user's reshape target: integers, symbols, and at most one -1.

    Raises:
        ShapeError: -1 occurs twice or cannot be resolved exactly.
    """
    given: Any = shape
    entries: list[Any] = (
        list(shape.dims) if isinstance(shape, Shape) else [shape] if isinstance(shape, (int, str)) else list(given)
    )
    unknown = [i for i, d in enumerate(entries) if isinstance(d, (int, np.integer)) and d == -1]
    if len(unknown) > 1:
        raise ShapeError(f"{tuple(entries)}: at most one dimension may be -1")
    sizes = [dim(d) for i, d in enumerate(entries) if i not in unknown]
    if not unknown:
        return tuple(sizes)
    known_size = product(sizes)
    quotient = None if known_size == 0 else exact_divide(x.num_elements, known_size)
    if quotient is None:
        raise ShapeError(f"cannot resolve -1 in {tuple(entries)}: {x.num_elements} elements, {known_size} known")
    sizes.insert(unknown[0], quotient)
    return tuple(sizes)


class Transpose(_Movement, op="transpose"):
    def infer(self, x: Shape, *, perm: tuple[int, ...]) -> Shape:
        if sorted(perm) != list(range(x.rank)):
            raise ShapeError(f"perm {list(perm)} is not a permutation of the {x.rank} axes of {x}")
        return x.with_dims(x.dims[p] for p in perm)

    def evaluate(self, x: np.ndarray, *, perm: tuple[int, ...]) -> np.ndarray:
        return np.transpose(x, perm)

    def build(self, b: Builder, x: Tensor, perm: Sequence[int] | None = None) -> Tensor:
        axes = range(x.rank - 1, -1, -1) if perm is None else [axis_of(p, x.rank, "perm entry") for p in perm]
        return b.emit("transpose", (x,), perm=tuple(axes))

    linear = ("x",)

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors, *, perm: tuple[int, ...]
    ) -> tuple[Tensor]:
        return (b.emit("transpose", cotangents, perm=tuple(perm.index(i) for i in range(len(perm)))),)

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, perm: tuple[int, ...]) -> Tensor:
        return b.emit("transpose", operands, perm=(0, *(p + 1 for p in perm)))

    def samples(self) -> Iterable[OpSample]:
        yield sample((2, 3, 4), perm=(2, 0, 1), dtypes=EVERY)
        yield sample((3, 4), perm=(1, 0), dtypes=("f32",))
        yield sample((), perm=(), dtypes=("f32",))
        yield sample((2, 0), perm=(1, 0), dtypes=("f32",))
        yield sample(("n", 3, "m"), perm=(2, 0, 1), dtypes=("f32",))


class Narrow(_Movement, op="narrow"):
    def infer(self, x: Shape, *, axis: int, start: tuple[Dim, ...], length: tuple[Dim, ...]) -> Shape:
        check_axis(axis, x.rank)
        if len(start) != 1 or len(length) != 1:
            raise ShapeError("start and length are lists of one dimension")
        check_range(start[0], start[0] + length[0], x.dims[axis], f"axis {axis}")
        return x.with_dims(length[0] if i == axis else d for i, d in enumerate(x.dims))

    def requires(
        self, x: Shape, *, axis: int, start: tuple[Dim, ...], length: tuple[Dim, ...]
    ) -> Iterator[tuple[Dim, str]]:
        return range_requirements(start[0], start[0] + length[0], x.dims[axis], axis)

    def evaluate(self, x: np.ndarray, *, axis: int, start: tuple[int], length: tuple[int]) -> np.ndarray:
        return np.take(x, range(start[0], start[0] + length[0]), axis)

    def aliases(self, operands: Shapes, results: Shapes, attributes: Attributes) -> list[tuple[int, int] | None]:
        (x,), (start,), (length,) = operands, attributes["start"], attributes["length"]
        starts, limits = [0] * x.rank, list(x.static)
        starts[attributes["axis"]], limits[attributes["axis"]] = start, start + length
        return [_run(x, starts, limits)]

    def build(self, b: Builder, x: Tensor, axis: int, start: Size, length: Size) -> Tensor:
        return b.emit("narrow", (x,), axis=axis_of(axis, x.rank), start=(start,), length=(length,))

    linear = ("x",)

    def vjp(
        self,
        b: Builder,
        operands: Tensors,
        results: Tensors,
        cotangents: Tensors,
        *,
        axis: int,
        start: tuple[Dim, ...],
        **_: Any,
    ) -> rules.Cotangents:
        return (rules.Range(axis, start[0], cotangents[0], operands[0].shape.dims[axis]),)

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, axis: int, **attributes: Any) -> Tensor:
        return b.emit("narrow", operands, axis=axis + 1, **attributes)

    def samples(self) -> Iterable[OpSample]:
        yield sample((4, 6), axis=1, start=(2,), length=(3,), dtypes=EVERY)
        yield sample((4, 6), axis=0, start=(0,), length=(4,), dtypes=("f32",))
        yield sample((4, 6), axis=0, start=(4,), length=(0,), dtypes=("f32",))
        yield sample(("n+3", 6), axis=0, start=(3,), length=("n",), dtypes=("f32",))
        yield sample(("n", 6), axis=1, start=(1,), length=(4,), dtypes=("f32",))


def check_range(start: Dim, limit: Dim, size: Dim, name: str) -> None:
    """Check `0 <= start <= limit <= size`, as far as possible before sizes are bound.

    Raises:
        ShapeError: It is certainly violated.
    """
    pairs = ((0, start), (start, limit), (limit, size))
    for low, high in pairs:
        gap = high - low
        if type(gap) is int and gap < 0:
            raise ShapeError(f"the range {start}:{limit} does not fit {name} of size {size}")


def range_requirements(start: Dim, limit: Dim, size: Dim, axis: int) -> Iterator[tuple[Dim, str]]:
    """The conditions that `check_range` cannot check before sizes are bound."""
    for gap in (start, limit - start, size - limit):
        yield gap, f"the range {start}:{limit} does not fit axis {axis} of size {size}"


@dataclass(frozen=True)
class SliceRanges(ArgumentGroup):
    """The elements that a `slice` takes, for each axis."""

    starts: Sequence[Any]  # dimensions
    limits: Sequence[Any]
    strides: Sequence[int]


class Slice(_Movement, op="slice"):
    def infer(self, x: Shape, *, starts: tuple[Dim, ...], limits: tuple[Dim, ...], strides: tuple[int, ...]) -> Shape:
        if not len(starts) == len(limits) == len(strides) == x.rank:
            raise ShapeError(f"starts, limits and strides need {x.rank} entries each")
        for i in range(x.rank):
            check_range(starts[i], limits[i], x.dims[i], f"axis {i}")
        return x.with_dims((hi - lo + s - 1) // s for lo, hi, s in zip(starts, limits, strides, strict=True))

    def requires(
        self, x: Shape, *, starts: tuple[Dim, ...], limits: tuple[Dim, ...], strides: tuple[int, ...]
    ) -> Iterator[tuple[Dim, str]]:
        for axis, (start, limit) in enumerate(zip(starts, limits, strict=True)):
            yield from range_requirements(start, limit, x.dims[axis], axis)

    def evaluate(
        self, x: np.ndarray, *, starts: tuple[int, ...], limits: tuple[int, ...], strides: tuple[int, ...]
    ) -> np.ndarray:
        return x[tuple(slice(lo, hi, s) for lo, hi, s in zip(starts, limits, strides, strict=True))]

    def aliases(self, operands: Shapes, results: Shapes, attributes: Attributes) -> list[tuple[int, int] | None]:
        dense = all(s == 1 for s in attributes["strides"])
        return [_run(operands[0], attributes["starts"], attributes["limits"]) if dense else None]

    def build(
        self,
        b: Builder,
        x: Tensor,
        starts: Sequence[Size],
        limits: Sequence[Size],
        strides: Sequence[int] | None = None,
    ) -> Tensor:
        strides = (1,) * x.rank if strides is None else tuple(strides)
        return b.emit("slice", (x,), starts=tuple(starts), limits=tuple(limits), strides=strides)

    linear = ("x",)

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors, *, ranges: SliceRanges
    ) -> rules.Cotangents:
        """Return each element to its original position: insert zeros between the elements, then around them."""
        starts, limits, strides = ranges.starts, ranges.limits, ranges.strides
        dims, (dy,) = operands[0].shape.dims, cotangents
        changed = [i for i, d in enumerate(dims) if (starts[i], limits[i], strides[i]) != (0, d, 1)]
        if len(changed) == 1 and strides[changed[0]] == 1:
            axis = changed[0]
            return (rules.Range(axis, starts[axis], dy, dims[axis]),)
        dy = _spaced(b, dy, strides)
        lengths = [limit - start for start, limit in zip(starts, limits, strict=True)]
        dy = _cut(b, dy, lengths)
        return (b.pad(dy, [(low, d - high) for low, high, d in zip(starts, limits, dims, strict=True)]),)

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, ranges: SliceRanges) -> Tensor:
        starts, limits, strides = (0, *ranges.starts), (size, *ranges.limits), (1, *ranges.strides)
        return b.emit("slice", operands, starts=starts, limits=limits, strides=strides)

    def samples(self) -> Iterable[OpSample]:
        yield sample((4, 7), starts=(1, 0), limits=(3, 7), strides=(1, 2), dtypes=EVERY)
        yield sample((4, 7), starts=(2, 7), limits=(2, 7), strides=(1, 1), dtypes=("f32",))
        yield sample((9,), starts=(1,), limits=(8,), strides=(3,), dtypes=("f32", "i32"))
        yield sample(("n", 7), starts=(0, 1), limits=("n", 6), strides=(1, 2), dtypes=("f32",))
        yield sample(("n+5", 3), starts=(2, 0), limits=("n+4", 3), strides=(2, 1), dtypes=("f32",))


def _spaced(b: Builder, x: Tensor, strides: Sequence[int]) -> Tensor:
    """Return `x` with `stride - 1` zeros after each entry of an axis."""
    if all(s == 1 for s in strides):
        return x
    parted = [part for d in x.shape.dims for part in (d, 1)]
    room = [pair for s in strides for pair in ((0, 0), (0, s - 1))]
    spread = b.pad(b.reshape(x, parted), room)
    return b.reshape(spread, [d * s for d, s in zip(x.shape.dims, strides, strict=True)])


def _cut(b: Builder, x: Tensor, sizes: Sequence[Dim]) -> Tensor:
    """Return `x` with each axis cut or padded with zeros at its end to the given sizes."""
    for axis, (d, size) in enumerate(zip(x.shape.dims, sizes, strict=True)):
        if d != size:
            x = b.narrow(x, axis, 0, size)
    return x


def _run(x: Shape, starts: Sequence[int], limits: Sequence[int]) -> tuple[int, int] | None:
    """Return the first element of a range per axis if all of its elements are contiguous, else None; see `Card.aliases`."""
    first, stride, is_full = 0, 1, True
    for low, high, size in zip(reversed(starts), reversed(limits), reversed(x.static), strict=True):
        if high - low > 1 and not is_full:
            return None
        is_full = is_full and low == 0 and high == size
        first += low * stride
        stride *= size
    return 0, first


class Concat(_Movement, op="concat"):
    def infer(self, lhs: Shape, rhs: Shape, *, axis: int) -> Shape:
        same_dtype(lhs, rhs)
        check_axis(axis, lhs.rank)
        if lhs.rank != rhs.rank or any(
            d != e for i, (d, e) in enumerate(zip(lhs.dims, rhs.dims, strict=True)) if i != axis
        ):
            raise ShapeError(f"{lhs} and {rhs} differ on an axis other than {axis}")
        return lhs.with_dims(d + rhs.dims[axis] if i == axis else d for i, d in enumerate(lhs.dims))

    def evaluate(self, lhs: np.ndarray, rhs: np.ndarray, *, axis: int) -> np.ndarray:
        return np.concatenate([lhs, rhs], axis)

    def parts(self, operands: Shapes, attributes: Attributes) -> list[int | None]:
        dims = operands[0].static
        outer = dims[: attributes["axis"]]
        return [0, math.prod(dims)] if all(d == 1 for d in outer) else [None, None]

    def build(self, b: Builder, xs: TensorLike | Sequence[TensorLike], axis: int = 0) -> Tensor:
        result, *remaining = common(b, *as_tensors(xs))
        axis = axis_of(axis, result.rank)
        for tensor in remaining:
            result = b.emit("concat", (result, tensor), axis=axis)
        return result

    linear = ("lhs rhs",)

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors, *, axis: int
    ) -> rules.Cotangents:
        (lhs, rhs), (dy,) = operands, cotangents
        border, rhs_size = lhs.shape.dims[axis], rhs.shape.dims[axis]
        return lambda: b.narrow(dy, axis, 0, border), lambda: b.narrow(dy, axis, border, rhs_size)

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, axis: int) -> Tensor:
        parts = [rules.batch(b, x, is_batched, size) for x, is_batched in zip(operands, batched, strict=True)]
        return b.emit("concat", parts, axis=axis + 1)

    def samples(self) -> Iterable[OpSample]:
        yield sample((2, 3), (2, 4), axis=1, dtypes=EVERY)
        yield sample((2, 3), (1, 3), axis=0, dtypes=("f32", "bool"))
        yield sample((0, 3), (2, 3), axis=0, dtypes=("f32",))
        yield sample(("n", 3), (2, 3), axis=0, dtypes=("f32",))
        yield sample(("n", 3), ("n", 2), axis=1, dtypes=("f32",))


class Expand(_Movement, op="expand"):
    def infer(self, x: Shape, *, shape: tuple[Dim, ...]) -> Shape:
        if len(shape) < x.rank or broadcast(x.dims, shape) != tuple(shape):
            raise ShapeError(f"{x} does not broadcast to [{', '.join(map(str, shape))}]")
        return x.with_dims(shape)

    def evaluate(self, x: np.ndarray, *, shape: tuple[int, ...]) -> np.ndarray:
        return np.broadcast_to(x, shape)

    def aliases(self, operands: Shapes, results: Shapes, attributes: Attributes) -> list[tuple[int, int] | None]:
        return [(0, 0) if operands[0].num_elements == results[0].num_elements else None]

    def build(self, b: Builder, x: Tensor, shape: ShapeLike) -> Tensor:
        given: Any = shape
        entries: list[Any] = list(shape.dims if isinstance(shape, Shape) else given)
        missing = len(entries) - x.rank
        dims = [x.shape.dims[i - missing] if d == -1 and i >= missing else d for i, d in enumerate(entries)]
        return b.emit("expand", (x,), shape=tuple(dims))

    linear = ("x",)

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors, *, shape: tuple[Dim, ...]
    ) -> tuple[Tensor]:
        return (rules.unbroadcast(b, cotangents[0], operands[0].shape),)

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, shape: tuple[Dim, ...]) -> Tensor:
        return b.emit("expand", (rules.aligned(b, operands[0], True, len(shape)),), shape=(size, *shape))

    def samples(self) -> Iterable[OpSample]:
        yield sample((3, 1), shape=(2, 3, 4), dtypes=EVERY)
        yield sample((), shape=(2, 3), dtypes=("f32",))
        yield sample((3,), shape=(3,), dtypes=("f32",))
        yield sample((1, 3), shape=(0, 3), dtypes=("f32",))
        yield sample(
            (1, 3),
            shape=("n", 3),
            dtypes=("f32",),
        )
        yield sample(("n", 1), shape=(2, "n", 4), dtypes=("f32",))


class Reverse(_Movement, op="reverse"):
    def infer(self, x: Shape, *, axes: tuple[int, ...]) -> Shape:
        check_axes(axes, x.rank)
        return x

    def evaluate(self, x: np.ndarray, *, axes: tuple[int, ...]) -> np.ndarray:
        return np.flip(x, axes)

    def build(self, b: Builder, x: Tensor, axes: int | Sequence[int] | None = None) -> Tensor:
        return b.emit("reverse", (x,), axes=axes_of(axes, x.rank))

    linear = ("x",)

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors, *, axes: tuple[int, ...]
    ) -> tuple[Tensor]:
        return (b.emit("reverse", cotangents, axes=axes),)

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, axes: tuple[int, ...]) -> Tensor:
        return b.emit("reverse", operands, axes=tuple(a + 1 for a in axes))

    def samples(self) -> Iterable[OpSample]:
        yield sample((2, 5), axes=(1,), dtypes=EVERY)
        yield sample((3, 4, 2), axes=(0, 2), dtypes=("f32",))
        yield sample((3, 4), axes=(), dtypes=("f32",))
        yield sample((2, 0), axes=(0, 1), dtypes=("f32",))
        yield sample(("n", 3), axes=(0,), dtypes=("f32",))

"""Reductions, softmax, running sums, positions of extremes, and top-k."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np

from rlx.ir.dims.dim import Dim, product
from rlx.ir.dtype import COMPLEXES, FLOATS, NUMBERS, REAL, i32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import Flags, Tangents, Tensors
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.ir.op.card import Attributes, Card, Cost, OpSample, SampleOperand, Shapes, moved_bytes, sample
from rlx.ir.op.results import TopKResult
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.lift import axes_of, axis_of, cast, check_axes, check_axis, inexact
from rlx.ops.shape.index import put_back
from rlx.support.errors import ShapeError
from rlx.support.guards import is_integer, is_truth_value

T = TypeVar("T")


def _lowest(dtype: np.dtype, kind: str) -> float:
    """Return the neutral element of max (or min)."""
    if dtype == np.bool_:
        return kind == "min"
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return limits.min if kind == "max" else limits.max
    return -np.inf if kind == "max" else np.inf


def _divided(total: Any, count: float) -> np.ndarray:
    """Return a sum divided by a count, in both parts of complex numbers. NumPy's complex division turns inf into NaN."""
    if total.dtype.kind != "c":
        return total / count
    mean: Any = np.empty_like(total)
    mean.real, mean.imag = total.real / count, total.imag / count
    return mean


def one_of(name: str, value: T, numpy_name: str, numpy_value: T | None) -> T:
    """Return the value of an argument with two names, RLX's and NumPy's. A call may only use one of them.

    Raises:
        ShapeError: Both are given.
    """
    if numpy_value is None:
        return value
    if value is not None and value is not False:
        raise ShapeError(f"{name} and {numpy_name} are two names of one argument, and both are given")
    return numpy_value


def flag(name: str, value: object) -> bool:
    """Return an argument that must be True or False.

    Raises:
        ShapeError: It is something else, for example a dtype, which NumPy has in this position.
    """
    if not is_truth_value(value):
        hint = "cast the operand to compute in another dtype"
        raise ShapeError(f"{name} must be True or False, got {value!r:.60}", hint=hint)
    return bool(value)


@dataclass(frozen=True)
class Reduction(ArgumentGroup):
    """The attributes of a `reduce`: the kind, the axes, and whether they are kept with size 1."""

    kind: str
    axes: tuple[int, ...]
    keep_dims: bool


class Reduce(Card, op="reduce"):
    def infer(self, x: Shape, *, kind: str, axes: tuple[int, ...], keep_dims: bool) -> Shape:
        check_axes(axes, x.rank)
        if x.dtype.is_bool and kind not in ("max", "min"):
            raise ShapeError(f"{kind} is not defined for bool", hint="cast to an integer dtype first")
        if x.dtype.is_complex and kind in ("max", "min"):
            raise ShapeError(f"{kind} is not defined for {x.dtype.name}: complex numbers have no order")
        if x.dtype.is_integer and kind == "mean":
            raise ShapeError(f"mean takes floats, not {x.dtype.name}", hint="cast to a float dtype first")
        return x.with_dims(1 if i in axes else d for i, d in enumerate(x.dims) if keep_dims or i not in axes)

    def evaluate(self, x: np.ndarray, *, kind: str, axes: tuple[int, ...], keep_dims: bool) -> np.ndarray:
        if kind in ("max", "min"):
            function = np.max if kind == "max" else np.min
            return function(x, axis=axes, keepdims=keep_dims, initial=_lowest(x.dtype, kind)).astype(x.dtype)
        wide = x.astype({"f": np.float64, "c": np.complex128}.get(x.dtype.kind, x.dtype))
        if x.dtype.kind not in "iufc":  # bfloat16 has another kind in NumPy
            wide = x.astype(np.float64)
        if kind == "mean":
            count = np.prod([x.shape[a] for a in axes], dtype=np.float64)
            return _divided(wide.sum(axis=axes, keepdims=keep_dims), count).astype(x.dtype)
        function = np.sum if kind == "sum" else np.prod
        return function(wide, axis=axes, keepdims=keep_dims, dtype=wide.dtype).astype(x.dtype)

    def build(
        self,
        b: Builder,
        kind: str,
        x: Tensor,
        axes: int | Sequence[int] | None = None,
        keep_dims: bool = False,
        *,
        axis: int | None = None,
        keepdims: bool | None = None,
    ) -> Tensor:
        axes, keep_dims = (
            one_of("axes", axes, "axis", axis),
            flag("keep_dims", one_of("keep_dims", keep_dims, "keepdims", keepdims)),
        )
        name = getattr(kind, "value", kind)
        if name in ("sum", "prod"):
            x = counted(b, x)
        if name == "mean":
            x = inexact(b, x)
        return b.emit("reduce", (x,), kind=name, axes=axes_of(axes, x.rank), keep_dims=keep_dims)

    def jvp(
        self,
        b: Builder,
        operands: Tensors,
        tangents: Tensors,
        results: Tensors,
        *,
        reduction: Reduction,
    ) -> Tensor:
        (x,), (dx,), (y,) = operands, tangents, results
        kind, axes = reduction.kind, reduction.axes
        if kind in ("max", "min"):
            dx = dx * _shares(b, x, y, axes)
        elif kind == "prod":
            dx = dx * _product_of_others(b, x, axes)
        return b.emit(
            "reduce", (dx,), kind="mean" if kind == "mean" else "sum", axes=axes, keep_dims=reduction.keep_dims
        )

    def vjp(
        self,
        b: Builder,
        operands: Tensors,
        results: Tensors,
        cotangents: Tensors,
        *,
        reduction: Reduction,
    ) -> tuple[Tensor]:
        (x,), (y,), (dy,) = operands, results, cotangents
        kind, axes = reduction.kind, reduction.axes
        dy = _with_kept_axes(b, dy, x, axes)
        if kind == "mean":
            wide = b.cast(dy, dy.dtype.compute)  # f16 cannot represent counts above 65504
            dy = b.cast(wide / _count(b, wide, x, axes), dy.dtype)
        if kind in ("max", "min"):
            return (dy * _shares(b, x, y, axes),)
        if kind == "prod":
            cofactors = _product_of_others(b, x, axes)
            return (dy * (b.conjugate(cofactors) if x.dtype.is_complex else cofactors),)
        return (b.expand(dy, x.shape),)

    def vmap(
        self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, axes: tuple[int, ...], **attributes: Any
    ) -> Tensor:
        return b.emit("reduce", operands, axes=tuple(a + 1 for a in axes), **attributes)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(operands[0].num_elements, moved_bytes(operands, results))

    def samples(self) -> Iterable[OpSample]:
        for kind in ("sum", "mean", "max", "min", "prod"):
            dtypes = FLOATS if kind == "mean" else REAL
            dtypes += ("bool",) if kind in ("max", "min") else COMPLEXES
            yield sample((3, 4, 5), kind=kind, axes=(1,), dtypes=dtypes)
            yield sample((3, 4, 5), kind=kind, axes=(0, 2), keep_dims=True, dtypes=("f32",))
            yield sample((3, 4), kind=kind, axes=(0, 1), dtypes=("f32",))
            yield sample((3, 4), kind=kind, axes=(), dtypes=("f32",))
            yield sample((3, 0), kind=kind, axes=(1,), dtypes=("f32",))
            yield sample(("n", 4), kind=kind, axes=(0,), dtypes=("f32",))
        yield sample((), kind="sum", axes=(), dtypes=("f32",))
        yield sample((2, "n", 3), kind="sum", axes=(2,), keep_dims=True, dtypes=("f32",))


def _with_kept_axes(b: Builder, y: Tensor, x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Return a reduced tensor with axes of size 1 where `x` was reduced."""
    return b.reshape(y, [1 if i in axes else d for i, d in enumerate(x.shape.dims)])


def _count(b: Builder, beside: Tensor, x: Tensor, axes: tuple[int, ...]) -> float | Tensor:
    """Return the number of elements of `x` per result element: an integer, or a scalar in the dtype of `beside`."""
    count = product(x.shape.dims[a] for a in axes)
    return max(count, 1) if type(count) is int else b.cast(b.dim_size(count), beside.dtype)


def _shares(b: Builder, x: Tensor, y: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Return the share of each element in the gradient of a maximum (or minimum) `y`, equal among all that attain it."""
    attains = b.cast(x == _with_kept_axes(b, y, x, axes), x.dtype.compute)
    return b.cast(attains / b.sum(attains, axes, keep_dims=True), x.dtype)


def _product_of_others(b: Builder, x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Return for each element the product of all other elements in its reduction.

    It does not divide, so factors may be zero.
    """
    other_axes = [i for i in range(x.rank) if i not in axes]
    order = (*other_axes, *axes)
    rows = b.transpose(x, order)
    line = b.reshape(rows, (*(x.shape.dims[i] for i in other_axes), product(x.shape.dims[i] for i in axes)))
    last = len(other_axes)
    before = b.cumprod(line, last, exclusive=True)
    after = b.reverse(b.cumprod(b.reverse(line, last), last, exclusive=True), last)
    return b.transpose(b.reshape(before * after, rows.shape.dims), [order.index(i) for i in range(x.rank)])


class Softmax(Card, op="softmax"):
    def infer(self, x: Shape, *, axis: int) -> Shape:
        check_axis(axis, x.rank)
        return x

    def evaluate(self, x: np.ndarray, *, axis: int) -> np.ndarray:
        wide = x.astype(np.float64)
        shifted = np.exp(wide - np.max(wide, axis, keepdims=True, initial=-np.inf))
        return (shifted / shifted.sum(axis, keepdims=True)).astype(x.dtype)

    def decompose(self, b: Builder, x: Tensor, *, axis: int) -> Tensor:
        wide = cast(b, x, x.dtype.compute)
        shifted = b.exp(wide - b.max(wide, axis, keep_dims=True))
        return b.cast(shifted / b.sum(shifted, axis, keep_dims=True), x.dtype)

    def build(self, b: Builder, x: Tensor, axis: int = -1) -> Tensor:
        return b.emit("softmax", (x,), axis=axis_of(axis, x.rank))

    def jvp(self, b: Builder, operands: Tensors, tangents: Tensors, results: Tensors, *, axis: int) -> Tensor:
        return _softmax_product(b, results[0], tangents[0], axis)

    def vjp(self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors, *, axis: int) -> tuple[Tensor]:
        return (_softmax_product(b, results[0], cotangents[0], axis),)

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, axis: int) -> Tensor:
        return b.emit("softmax", operands, axis=axis + 1)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(14 * operands[0].num_elements, moved_bytes(operands, results))

    def samples(self) -> Iterable[OpSample]:
        yield sample(SampleOperand((3, 5), low=-9, high=9), axis=1, dtypes=FLOATS)
        yield sample((3, 5, 2), axis=0, dtypes=("f32",))
        yield sample((2, 1), axis=1, dtypes=("f32",))
        yield sample((0, 3), axis=1, dtypes=("f32",))
        yield sample(("n", 6), axis=1, dtypes=("f32",))
        yield sample((3, "n"), axis=1, dtypes=("f32",))


def _softmax_product(b: Builder, y: Tensor, d: Tensor, axis: int) -> Tensor:
    """Return `(diag(y) - y·yᵀ)·d`: the symmetric Jacobian of softmax times a vector."""
    wide, weighted = (cast(b, t, t.dtype.compute) for t in (y, d))
    product_ = wide * weighted
    return b.cast(product_ - wide * b.sum(product_, axis, keep_dims=True), y.dtype)


def counted(b: Builder, x: Tensor) -> Tensor:
    """Return the operand of sums and products. Bools become 0 and 1 in i32."""
    return cast(b, x, i32) if x.dtype.is_bool else x


def running(function: np.ufunc, x: np.ndarray, axis: int, exclusive: bool) -> np.ndarray:
    """Return running sums or products along an axis, in f64 (or c128) for floats. `exclusive` excludes the element itself."""
    kind = x.dtype.kind
    wide = x if kind in "iu" else x.astype(np.complex128 if kind == "c" else np.float64)
    total = function.accumulate(wide, axis, dtype=wide.dtype)
    if exclusive:
        total = np.roll(total, 1, axis)
        total[(slice(None),) * axis + (slice(0, 1),)] = function.identity
    return total.astype(x.dtype)


class Cumsum(Card, op="cumsum"):
    def infer(self, x: Shape, *, axis: int, exclusive: bool) -> Shape:
        check_axis(axis, x.rank)
        return x

    def evaluate(self, x: np.ndarray, *, axis: int, exclusive: bool) -> np.ndarray:
        return running(np.add, x, axis, exclusive)

    def build(self, b: Builder, x: Tensor, axis: int, exclusive: bool = False) -> Tensor:
        return b.emit("cumsum", (counted(b, x),), axis=axis_of(axis, x.rank), exclusive=exclusive)

    linear = ("x",)

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors, *, axis: int, exclusive: bool
    ) -> rules.Cotangents:
        from_end = b.cumsum(b.reverse(cotangents[0], axes=(axis,)), axis=axis, exclusive=exclusive)
        return (b.reverse(from_end, axes=(axis,)),)

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, axis: int, exclusive: bool) -> Tensor:
        return b.emit("cumsum", operands, axis=axis + 1, exclusive=exclusive)

    def samples(self) -> Iterable[OpSample]:
        yield sample((3, 5), axis=1, dtypes=NUMBERS)
        yield sample((5, 3), axis=0, exclusive=True, dtypes=("f32", "i32"))
        yield sample((2, 33), axis=1, dtypes=("f32",))
        yield sample((2, 0), axis=1, dtypes=("f32",))
        yield sample((2, 1), axis=1, exclusive=True, dtypes=("f32",))
        yield sample((2, "n"), axis=1, dtypes=("f32",))


def order_key(x: np.ndarray) -> np.ndarray:
    """Return values in a dtype in which they are compared exactly, with NaN above all numbers."""
    return x.astype(np.float64) if x.dtype.kind not in "iub" else x


class _Position(Card):
    """The position of the first extreme element."""

    extreme: ClassVar[str]
    found: ClassVar[Callable[..., Any]]

    def infer(self, x: Shape, *, axis: int, keep_dims: bool) -> Shape:
        check_axis(axis, x.rank)
        if x.dims[axis] == 0:
            raise ShapeError(f"axis {axis} of {x} is empty: it has no {self.extreme} element")
        return Shape((1 if i == axis else d for i, d in enumerate(x.dims) if keep_dims or i != axis), "i32")

    def requires(self, x: Shape, *, axis: int, keep_dims: bool) -> list[tuple[Dim, str]]:
        return [(x.dims[axis] - 1, f"axis {axis} is empty: it has no {self.extreme} element")]

    def evaluate(self, x: np.ndarray, *, axis: int, keep_dims: bool) -> np.ndarray:
        return self.found(order_key(x), axis, keepdims=keep_dims).astype(np.int32)

    def build(
        self, b: Builder, x: Tensor, axis: int | None = None, keep_dims: bool = False, *, keepdims: bool | None = None
    ) -> Tensor:
        """Without an axis, the result is the position among all elements in row-major order, as in NumPy."""
        keep_dims = flag("keep_dims", one_of("keep_dims", keep_dims, "keepdims", keepdims))
        if axis is None:
            found = b.emit(self.name, (b.reshape(x, (-1,)),), axis=0, keep_dims=False)
            return b.reshape(found, (1,) * x.rank) if keep_dims else found
        return b.emit(self.name, (x,), axis=axis_of(axis, x.rank), keep_dims=keep_dims)

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, axis: int, keep_dims: bool) -> Tensor:
        return b.emit(self.name, operands, axis=axis + 1, keep_dims=keep_dims)

    def samples(self) -> Iterable[OpSample]:
        few: Attributes = {"low": 0, "high": 3}  # ties
        yield sample(SampleOperand((4, 7), **few), axis=1, dtypes=(*REAL, "bool"))
        yield sample(SampleOperand((4, 7), **few), axis=0, keep_dims=True, dtypes=("f32",))
        yield sample((1,), axis=0, dtypes=("f32",))
        yield sample(("n", 7), axis=1, dtypes=("f32",))
        yield sample((3, "n"), axis=1, dtypes=("f32",))


class Argmax(_Position, op="argmax"):
    extreme = "largest"
    found = staticmethod(np.argmax)


class Argmin(_Position, op="argmin"):
    extreme = "smallest"
    found = staticmethod(np.argmin)


def _smallest(b: Builder, x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the `k` smallest elements of the last axis in order, and their positions. Ties are in index order; NaN is last."""
    if x.dtype.is_integer:  # ~x reverses the order without overflow of -x at the lowest number
        values, indices = b.emit("topk", (b.bitwise_not(x),), k=k)
        return b.bitwise_not(values), indices
    size = x.shape.dims[-1]
    if not is_integer(k) or k < 0 or (type(size) is int and k > size):
        raise ShapeError(f"k = {k!r:.60} does not fit an axis of size {size}")
    indices = b.narrow(b.argsort(x, axis=-1), x.rank - 1, 0, int(k))
    return b.gather_batched(x, indices, axis=x.rank - 1), indices


class Topk(Card, op="topk"):
    named = TopKResult

    def infer(self, x: Shape, *, k: int) -> tuple[Shape, Shape]:
        if x.rank < 1:
            raise ShapeError("expected rank 1 or more")
        size = x.dims[-1]
        if k < 0 or (type(size) is int and k > size):
            raise ShapeError(f"k = {k} does not fit a last axis of size {size}")
        values = x.with_dims((*x.dims[:-1], k))
        return values, values.with_dtype("i32")

    def requires(self, x: Shape, *, k: int) -> list[tuple[Dim, str]]:
        return [(x.dims[-1] - k, f"k = {k} does not fit the last axis of size {x.dims[-1]}")]

    def evaluate(self, x: np.ndarray, *, k: int) -> tuple[np.ndarray, np.ndarray]:
        if k > x.shape[-1]:
            raise ShapeError(f"k = {k} does not fit a last axis of size {x.shape[-1]}")
        # A stable sort of the reversed axis, reversed, is descending with ties in index order; NaN sorts last.
        order = np.argsort(order_key(x)[..., ::-1], axis=-1, kind="stable")[..., ::-1]
        indices = (x.shape[-1] - 1 - order)[..., :k].astype(np.int32)
        return np.take_along_axis(x, indices, -1), indices

    def build(self, b: Builder, x: Tensor, k: int, axis: int = -1, largest: bool = True) -> tuple[Tensor, Tensor]:
        """`axis` may be any axis. Without `largest`, the smallest elements are returned in ascending order, with NaN last."""
        last = x.rank - 1
        place = axis_of(axis, x.rank) if x.rank else last
        if largest and place == last:
            return b.emit("topk", (x,), k=k)
        order = [last if i == place else place if i == last else i for i in range(x.rank)]
        rows = b.transpose(x, order)
        values, indices = b.emit("topk", (rows,), k=k) if largest else _smallest(b, rows, k)
        return b.transpose(values, order), b.transpose(indices, order)

    def jvp(
        self, b: Builder, operands: Tensors, tangents: Tensors, results: Tensors, *, k: int
    ) -> tuple[Tensor | None, ...]:
        return b.gather_batched(tangents[0], results[1], axis=-1), None

    def vjp(self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tangents, *, k: int) -> rules.Cotangents:
        (x,), (dy, _) = operands, cotangents
        assert dy is not None  # positions have no cotangent
        return (put_back(b, dy, results[1], x.shape, x.rank - 1),)

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, k: int) -> tuple[Tensor, ...]:
        return b.emit("topk", operands, k=k)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(operands[0].num_elements * attributes["k"], moved_bytes(operands, results))

    def samples(self) -> Iterable[OpSample]:
        few: Attributes = {"low": 0, "high": 4}  # ties
        yield sample(SampleOperand((3, 9), **few), k=4, dtypes=REAL)
        yield sample((2, 3, 8), k=8, dtypes=("f32",))
        yield sample((6,), k=1, dtypes=("f32",))
        yield sample((2, 6), k=0, dtypes=("f32",))
        yield sample(("n", 6), k=2, dtypes=("f32",))

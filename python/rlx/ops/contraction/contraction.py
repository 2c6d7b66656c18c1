"""Contractions: matmul and dot_general."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rlx.ir.dims.dim import Dim, product
from rlx.ir.dtype import NUMBERS, bf16, f16, f32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import Flags, TensorLike, Tensors
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.ir.op.card import Attributes, Card, Cost, OpSample, SampleOperand, Shapes, moved_bytes, sample
from rlx.ir.shape import DimLike, Shape
from rlx.ops import rules
from rlx.ops.lift import axis_of, broadcast, cast, check_axis, common, same_dtype, tensor_like
from rlx.support.errors import ShapeError

READ_IN_PLACE = f32, f16, bf16  # dtypes of the weights that `matmul_transposed` reads


@dataclass(frozen=True)
class DotDims(ArgumentGroup):
    """The axes of a `dot_general`, by position in each operand."""

    lhs_contracting: Sequence[int]
    rhs_contracting: Sequence[int]
    lhs_batch: Sequence[int] = ()
    rhs_batch: Sequence[int] = ()

    def free(self, lhs_rank: int, rhs_rank: int) -> tuple[list[int], list[int]]:
        """The axes of both operands that are neither contracted nor batch, in order."""
        return (
            free_axes(lhs_rank, self.lhs_contracting, self.lhs_batch),
            free_axes(rhs_rank, self.rhs_contracting, self.rhs_batch),
        )


def _exact(x: np.ndarray) -> np.ndarray:
    """Return operands in a dtype that is wide enough to make the evaluator's rounding errors negligible."""
    if x.dtype.kind == "c":
        return x.astype(np.complex128)
    return x if x.dtype.kind in "iu" else x.astype(np.float64)


class Matmul(Card, op="matmul"):
    def infer(self, lhs: Shape, rhs: Shape) -> Shape:
        shared = same_dtype(lhs, rhs)
        if lhs.rank < 2 or rhs.rank < 2:
            raise ShapeError(f"both operands need rank 2 or more, got {lhs} and {rhs}")
        if lhs.dims[-1] != rhs.dims[-2]:
            raise ShapeError(f"{lhs} @ {rhs}: {lhs.dims[-1]} columns against {rhs.dims[-2]} rows")
        batch = broadcast(lhs.dims[:-2], rhs.dims[:-2])
        return Shape((*batch, lhs.dims[-2], rhs.dims[-1]), shared)

    def evaluate(self, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
        return np.matmul(_exact(lhs), _exact(rhs)).astype(lhs.dtype)

    def build(self, b: Builder, lhs: TensorLike, rhs: TensorLike) -> Tensor:
        lhs, rhs = common(b, lhs, rhs)
        if lhs.rank and rhs.rank and min(lhs.rank, rhs.rank) == 1:
            return _vector_matmul(b, lhs, rhs)
        return b.emit("matmul", (lhs, rhs))

    linear = ("lhs", "rhs")

    def vjp(self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors) -> rules.Cotangents:
        (lhs, rhs), (dy,) = operands, cotangents
        if rhs.rank == 2:  # one product for all rows; no sum is needed afterwards
            rows = tuple(range(lhs.rank - 1))
            return (
                lambda: dots(b, dy, adjoint(b, rhs), DotDims((dy.rank - 1,), (1,))),
                lambda: dots(b, adjoint(b, lhs), dy, DotDims(rows, rows)),
            )
        return (
            lambda: rules.unbroadcast(b, b.emit("matmul", (dy, adjoint(b, swap_last_axes(b, rhs)))), lhs.shape),
            lambda: rules.unbroadcast(b, b.emit("matmul", (adjoint(b, swap_last_axes(b, lhs)), dy)), rhs.shape),
        )

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim) -> Tensor:
        rank = max(x.rank - is_batched for x, is_batched in zip(operands, batched, strict=True))
        return b.emit(
            "matmul", [rules.aligned(b, x, is_batched, rank) for x, is_batched in zip(operands, batched, strict=True)]
        )

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        flops = 2 * results[0].num_elements * operands[0].dims[-1]
        return Cost(flops, moved_bytes(operands, results))

    def samples(self) -> Iterable[OpSample]:
        yield sample((3, 4), (4, 5), dtypes=NUMBERS)
        yield sample((2, 3, 4), (4, 5), dtypes=("f32", "f16"))
        yield sample((2, 1, 3, 4), (5, 4, 2), dtypes=("f32",))
        yield sample((5, 3, 4), (5, 4, 2), dtypes=("f32", "bf16", "i32"))
        yield sample((1, 4), (4, 1), dtypes=("f32",))
        yield sample((3, 0), (0, 2), dtypes=("f32",))
        yield sample((0, 3), (3, 2), dtypes=("f32",))
        yield sample((16, 32), (32, 24), dtypes=("f32", "f16", "bf16"))
        yield sample(("n", 4), (4, 5), dtypes=("f32",))
        yield sample(("batch", "seq", 8), (8, 4), dtypes=("f32",))
        yield sample(("batch", 3, "k"), ("batch", "k", 2), dtypes=("f32",))


def _vector_matmul(b: Builder, lhs: Tensor, rhs: Tensor) -> Tensor:
    """Apply NumPy's rule for vectors: a row on the left, a column on the right; the added axis is dropped from the result."""
    left = b.reshape(lhs, (1, *lhs.shape)) if lhs.rank == 1 else lhs
    right = b.reshape(rhs, (*rhs.shape, 1)) if rhs.rank == 1 else rhs
    product_ = b.emit("matmul", (left, right))
    dims = list(product_.shape.dims)
    if rhs.rank == 1:
        dims.pop(-1)
    if lhs.rank == 1:
        dims.pop(-1 if rhs.rank == 1 else -2)
    return b.reshape(product_, dims)


class MatmulTransposed(Card, op="matmul_transposed"):
    def infer(self, x: Shape, w: Shape) -> Shape:
        if not x.rank or w.rank != 2 or x.dims[-1] != w.dims[-1]:
            raise ShapeError(f"expected x […, K] and w [N, K], got {x} and {w}")
        if w.dtype not in READ_IN_PLACE:
            raise ShapeError(f"w must be f32, f16 or bf16, got {w}")
        return x.with_dims((*x.dims[:-1], w.dims[0]))

    def evaluate(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return np.matmul(_exact(x), _exact(w).T).astype(x.dtype)

    def decompose(self, b: Builder, x: Tensor, w: Tensor) -> Tensor:
        return b.matmul(x, swap_last_axes(b, cast(b, w, f32)))

    def build(self, b: Builder, x: TensorLike, w: TensorLike) -> Tensor:
        return b.emit("matmul_transposed", (tensor_like(b, x, f32), tensor_like(b, w, f32)))

    linear = ("x", "w")

    def vjp(self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors) -> rules.Cotangents:
        (x, w), (dy,) = operands, cotangents
        rows = tuple(range(x.rank - 1))
        return (
            lambda: b.matmul(dy, cast(b, w, f32)),
            lambda: cast(b, dots(b, dy, x, DotDims(rows, rows)), w.dtype),
        )

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim) -> Tensor:
        return NotImplemented if batched[1] else b.emit("matmul_transposed", operands)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(2 * results[0].num_elements * operands[0].dims[-1], moved_bytes(operands, results))

    def samples(self) -> Iterable[OpSample]:
        for dtype in READ_IN_PLACE:
            yield sample((3, 6), SampleOperand((5, 6), dtype.name), dtypes=("f32",))
            yield sample(("n", 17), SampleOperand((4, 17), dtype.name), dtypes=("f32",))
        yield sample((6,), (5, 6), dtypes=("f32",))
        yield sample((2, 3, 8), (4, 8), dtypes=("f32",))
        yield sample((2, 8), ("n", 8), dtypes=("f32",))
        yield sample((3, 0), (2, 0), dtypes=("f32",))


class DotGeneral(Card, op="dot_general"):
    def infer(self, lhs: Shape, rhs: Shape, *, dims: DotDims) -> Shape:
        shared = same_dtype(lhs, rhs)
        contracting, batch = (dims.lhs_contracting, dims.rhs_contracting), (dims.lhs_batch, dims.rhs_batch)
        for name, (left, right) in (("contracting", contracting), ("batch", batch)):
            if len(left) != len(right):
                raise ShapeError(f"{len(left)} {name} axes of lhs against {len(right)} of rhs")
            for i, j in zip(left, right, strict=True):
                check_axis(i, lhs.rank, f"lhs {name} axis")
                check_axis(j, rhs.rank, f"rhs {name} axis")
                if lhs.dims[i] != rhs.dims[j]:
                    raise ShapeError(
                        f"{name} axis {i} of {lhs} is {lhs.dims[i]}, but axis {j} of {rhs} is {rhs.dims[j]}"
                    )
        for side, summed, shared_axes in zip(("lhs", "rhs"), contracting, batch, strict=True):
            axes = (*summed, *shared_axes)
            if len(set(axes)) != len(axes):
                raise ShapeError(f"an axis of {side} is named twice: {axes}")
        left, right = dims.free(lhs.rank, rhs.rank)
        sizes = [lhs.dims[i] for i in (*dims.lhs_batch, *left)] + [rhs.dims[i] for i in right]
        return Shape(sizes, shared)

    def evaluate(self, lhs: np.ndarray, rhs: np.ndarray, *, dims: DotDims) -> np.ndarray:
        left, right = dims.free(lhs.ndim, rhs.ndim)
        lhs_labels = list(range(lhs.ndim))
        rhs_labels = [lhs.ndim + i for i in range(rhs.ndim)]
        pairs = zip((*dims.lhs_contracting, *dims.lhs_batch), (*dims.rhs_contracting, *dims.rhs_batch), strict=True)
        for i, j in pairs:
            rhs_labels[j] = lhs_labels[i]
        result_labels = [*(lhs_labels[i] for i in (*dims.lhs_batch, *left)), *(rhs_labels[i] for i in right)]
        return np.einsum(_exact(lhs), lhs_labels, _exact(rhs), rhs_labels, result_labels).astype(lhs.dtype)

    def build(
        self,
        b: Builder,
        lhs: TensorLike,
        rhs: TensorLike,
        lhs_contracting: Sequence[int],
        rhs_contracting: Sequence[int],
        lhs_batch: Sequence[int] = (),
        rhs_batch: Sequence[int] = (),
    ) -> Tensor:
        lhs, rhs = common(b, lhs, rhs)
        return b.emit(
            "dot_general",
            (lhs, rhs),
            lhs_contracting=[axis_of(a, lhs.rank) for a in lhs_contracting],
            rhs_contracting=[axis_of(a, rhs.rank) for a in rhs_contracting],
            lhs_batch=[axis_of(a, lhs.rank) for a in lhs_batch],
            rhs_batch=[axis_of(a, rhs.rank) for a in rhs_batch],
        )

    linear = ("lhs", "rhs")

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors, *, dims: DotDims
    ) -> rules.Cotangents:
        (lhs, rhs), (dy,) = operands, cotangents
        of_lhs, of_rhs = (lhs, dims.lhs_contracting, dims.lhs_batch), (rhs, dims.rhs_contracting, dims.rhs_batch)
        rhs_start = lhs.rank - len(dims.lhs_contracting)
        return (
            lambda: _dot_adjoint(b, dy, range(rhs_start, dy.rank), of_lhs, of_rhs),
            lambda: _dot_adjoint(b, dy, range(len(dims.lhs_batch), rhs_start), of_rhs, of_lhs),
        )

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, dims: DotDims) -> Tensor:
        (lhs, rhs), (lhs_batched, rhs_batched) = operands, batched

        def moved(axes: Sequence[int], is_batched: bool) -> tuple[int, ...]:
            return tuple(a + is_batched for a in axes)

        contracting = (moved(dims.lhs_contracting, lhs_batched), moved(dims.rhs_contracting, rhs_batched))
        batch = (moved(dims.lhs_batch, lhs_batched), moved(dims.rhs_batch, rhs_batched))
        if lhs_batched and rhs_batched:
            return dots(b, lhs, rhs, DotDims(*contracting, (0, *batch[0]), (0, *batch[1])))
        result = dots(b, lhs, rhs, DotDims(*contracting, *batch))
        # The batch is now a free axis: the first free axis of its side.
        position = len(dims.lhs_batch) if lhs_batched else lhs.rank - len(dims.lhs_contracting)
        order = (position, *(i for i in range(result.rank) if i != position))
        return result if position == 0 else b.emit("transpose", (result,), perm=order)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        axes: tuple[int, ...] = attributes["lhs_contracting"]
        summed: Dim = product(operands[0].dims[i] for i in axes)
        return Cost(2 * results[0].num_elements * summed, moved_bytes(operands, results))

    def samples(self) -> Iterable[OpSample]:
        yield _dots((3, 4), (4, 5), (1,), (0,), dtypes=NUMBERS)
        yield _dots((3, 4), (5, 4), (1,), (1,), dtypes=("f32", "bf16"))
        yield _dots((2, 3, 4), (4, 2, 5), (2,), (0,), (0,), (1,), dtypes=("f32", "f16", "i32"))
        yield _dots((2, 3, 4, 5), (5, 3, 6, 2), (1, 3), (1, 0), (0,), (3,), dtypes=("f32",))
        yield _dots((3,), (4,), (), (), dtypes=("f32",))
        yield _dots((3,), (3,), (0,), (0,), dtypes=("f32",))
        yield _dots((3, 4), (3, 4), (), (), (0, 1), (0, 1), dtypes=("f32",))
        yield _dots((2, 0), (0, 3), (1,), (0,), dtypes=("f32",))
        yield _dots(("n", 4), (5, 4), (1,), (1,), dtypes=("f32",))
        yield _dots(("b", 4, "s", 6), ("b", 4, "t", 6), (3,), (3,), (0, 1), (0, 1), dtypes=("f32",))


def dots(b: Builder, lhs: Tensor, rhs: Tensor, dims: DotDims) -> Tensor:
    """Emit `dot_general` with its axes in order of position: batch, free axes of lhs, free axes of rhs."""
    return b.emit("dot_general", (lhs, rhs), **{name: tuple(axes) for name, axes in dims.named.items()})


def adjoint(b: Builder, x: Tensor) -> Tensor:
    """Return the factor that adjoints multiply by: the conjugate of a complex `x`, else `x`."""
    return b.conjugate(x) if x.dtype.is_complex else x


def swap_last_axes(b: Builder, x: Tensor) -> Tensor:
    """Return `x` with its last two axes swapped."""
    return b.emit("transpose", (x,), perm=(*range(x.rank - 2), x.rank - 1, x.rank - 2))


# An operand of a dot product, its contracted axes, and its batch axes.
_DotSide = tuple[Tensor, Sequence[int], Sequence[int]]


def _dot_adjoint(b: Builder, dy: Tensor, summed: Sequence[int], side: _DotSide, other_side: _DotSide) -> Tensor:
    """Return the cotangent of one side of a `dot_general`: `dy` contracted with the free axes of the other side.

    Args:
        b: The builder that emits the ops.
        dy: The cotangent of the result.
        summed: The axes of `dy` that come only from the other side.
        side: The side, with its contracting and batch axes.
        other_side: The other side, with its contracting and batch axes.
    """
    (x, contracting, batch), (y, y_contracting, y_batch) = side, other_side
    y_free = free_axes(y.rank, y_contracting, y_batch)
    result = dots(b, dy, adjoint(b, y), DotDims(summed, y_free, range(len(batch)), y_batch))
    # The result has the batch axes, the free axes of x, then the contracted axes in y's order.
    order = sorted(range(len(y_contracting)), key=lambda i: y_contracting[i])
    axes = [*batch, *free_axes(x.rank, contracting, batch), *(contracting[i] for i in order)]
    perm = tuple(axes.index(i) for i in range(x.rank))
    return result if perm == tuple(range(x.rank)) else b.emit("transpose", (result,), perm=perm)


def _dots(
    lhs: tuple[DimLike, ...], rhs: tuple[DimLike, ...], *axes: tuple[int, ...], dtypes: Sequence[str]
) -> OpSample:
    return sample(lhs, rhs, **DotDims(*axes).named, dtypes=dtypes)


def free_axes(rank: int, contracting: Sequence[int], batch: Sequence[int]) -> list[int]:
    """Return the axes that are neither contracted nor batch, in order."""
    return [i for i in range(rank) if i not in contracting and i not in batch]

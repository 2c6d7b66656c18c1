"""Products with sparse matrices in rows (CSR): `csr_matmul`, its transpose, and products sampled at the entries."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from rlx.ir.dims.dim import Dim, product
from rlx.ir.dtype import NUMBERS, bf16, f16, f32, i32, i64
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import Flags, ShapeLike, TensorLike, Tensors
from rlx.ir.op.card import Attributes, Card, Cost, OpSample, SampleOperand, Shapes, moved_bytes, sample
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.contraction.contraction import adjoint
from rlx.ops.lift import cast, common, constant_scalar, same_dtype, tensor_like
from rlx.ops.shape.index import extent
from rlx.support.errors import ShapeError

# Rows are padded if that gives at most this many times the entries. Measured on XLA, where a scattered addition takes
# 13 ns for an entry and a gathered one 5 ns.
_MOST_PADDING = 2.5


class _Csr(Card):
    """The checks and batching that the products with a matrix in rows share."""

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        entries = next(s for s in operands if s.dtype in (i32, i64)).num_elements
        return Cost(2 * entries * product(operands[3].dims[1:]), moved_bytes(operands, results))


def _check(indices: Shape, indptr: Shape, width: int, x: Shape, *others: Shape) -> None:
    """Check the pattern, and that the dense operands have rows.

    Raises:
        ShapeError: A shape does not fit.
    """
    if indices.rank != 1 or indptr.rank != 1:
        raise ShapeError(f"indices and indptr must be vectors, got {indices} and {indptr}")
    if indptr.dims[0] == 0:
        raise ShapeError("indptr has one offset more than the matrix has rows, and so at least one")
    entries = indices.dims[0]
    if isinstance(entries, int) and width > max(entries, 1):
        raise ShapeError(f"width = {width}, but there are only {entries} entries")
    for dense in (x, *others):
        if dense.rank < 1:
            raise ShapeError(f"the dense operand must have rows, got the scalar {dense}")


def _check_data(data: Shape, indices: Shape) -> None:
    if data.dims != indices.dims:
        raise ShapeError(f"data {data} must have one number for each of the indices {indices}")


def entry_rows(b: Builder, indptr: Tensor, entries: Dim) -> Tensor:
    """Return the row of each entry: -1 before the first row, and M after the last one."""
    ones = b.expand(constant_scalar(b, 1, indptr.dtype), indptr.shape.dims)
    starts = b.scatter_add(ones, b.maximum(indptr, 0), size=entries)
    return b.cumsum(starts, axis=0) - 1


def _is_inside(b: Builder, positions: Tensor, size: Dim) -> Tensor:
    wide = cast(b, positions, i64)
    return b.logical_and(b.compare("ge", positions, 0), b.compare("lt", wide, extent(b, size)))


def _over(b: Builder, x: Tensor, like: Tensor) -> Tensor:
    """Return `x [Z…]` with axes of size 1 added up to the rank of `like [Z…, b…]`."""
    return b.reshape(x, (*x.shape.dims, *(1,) * (like.rank - x.rank)))


def _terms(b: Builder, data: Tensor, rows: Tensor, is_valid: Tensor) -> Tensor:
    """Return `data·rows`, and 0 for entries that are not valid."""
    products = _over(b, data, rows) * rows
    return b.where(_over(b, is_valid, rows), products, rules.zeros(b, products.shape))


def _wide(b: Builder, *tensors: Tensor) -> list[Tensor]:
    return [cast(b, t, f32) if t.dtype in (f16, bf16) else t for t in tensors]


def _exact(x: np.ndarray) -> np.ndarray:
    if x.dtype.kind == "c":
        return x.astype(np.complex128)
    return x if x.dtype.kind in "iub" else x.astype(np.float64)


def _numpy_rows(indices: np.ndarray, indptr: np.ndarray, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the row of each entry, and whether the entry is in the matrix."""
    entries = np.arange(indices.size)
    rows = np.searchsorted(indptr, entries, side="right") - 1
    is_valid = (rows >= 0) & (rows < indptr.size - 1) & (indices >= 0) & (indices < columns)
    return rows, is_valid


def _numpy_sums(data: np.ndarray, x: np.ndarray, source: np.ndarray, target: np.ndarray, size: int) -> np.ndarray:
    result = np.zeros((size, *x.shape[1:]), _exact(x[:0]).dtype)
    scale = _exact(data).reshape(-1, *(1,) * (x.ndim - 1))
    with np.errstate(all="ignore"):
        np.add.at(result, target, scale * _exact(x[source]))
        return result.astype(x.dtype)


class CsrMatmul(_Csr, op="csr_matmul"):
    def infer(self, data: Shape, indices: Shape, indptr: Shape, x: Shape, *, width: int) -> Shape:
        kind = same_dtype(data, x)
        _check(indices, indptr, width, x)
        _check_data(data, indices)
        return Shape((indptr.dims[0] - 1, *x.dims[1:]), kind)

    def evaluate(
        self, data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, x: np.ndarray, *, width: int
    ) -> np.ndarray:
        rows, is_valid = _numpy_rows(indices, indptr, x.shape[0])
        return _numpy_sums(data[is_valid], x, indices[is_valid], rows[is_valid], indptr.size - 1)

    def decompose(self, b: Builder, data: Tensor, indices: Tensor, indptr: Tensor, x: Tensor, *, width: int) -> Tensor:
        kind, (columns, *_) = x.dtype, x.shape.dims
        data, x = _wide(b, data, x)
        (entries,), rows = data.shape.dims, indptr.shape.dims[0] - 1
        if 0 in (entries, rows, columns):
            return rules.zeros(b, Shape((rows, *x.shape.dims[1:]), kind))
        if _pays_padding(rows, entries, width):
            return cast(b, _padded(b, (data, indices, indptr, x), rows, width), kind)
        terms = _terms(b, data, b.gather(x, indices, axis=0), _is_inside(b, indices, columns))
        return cast(b, b.scatter_add(terms, entry_rows(b, indptr, entries), size=rows), kind)

    def build(
        self, b: Builder, data: TensorLike, indices: TensorLike, indptr: TensorLike, x: TensorLike, width: int = 0
    ) -> Tensor:
        data, x = common(b, data, x)
        return b.emit("csr_matmul", (data, tensor_like(b, indices, i32), tensor_like(b, indptr, i32), x), width=width)

    linear = ("data", "x")

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors, *, width: int
    ) -> rules.Cotangents:
        (data, indices, indptr, x), (dy,) = operands, cotangents
        return (
            lambda: b.csr_sampled_matmul(indices, indptr, dy, adjoint(b, x), width=width),
            None,
            None,
            lambda: b.csr_matmul_transposed(
                adjoint(b, data), indices, indptr, dy, columns=x.shape.dims[0], width=width
            ),
        )

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, width: int) -> Tensor:
        data, indices, indptr, x = operands
        if not any(batched[:3]):
            y = b.emit("csr_matmul", (data, indices, indptr, rules.move_axis(b, x, 0, x.rank - 1)), width=width)
            return rules.move_axis(b, y, y.rank - 1, 0)
        data, indices, indptr, x = (rules.batch(b, t, f, size) for t, f in zip(operands, batched, strict=True))
        columns, offsets = x.shape.dims[1], indptr.shape.dims[1]
        joined = _block_diagonal(b, indices, indptr, columns, size)
        x = b.reshape(x, (size * columns, *x.shape.dims[2:]))
        y = b.emit("csr_matmul", (b.ravel(data), *joined, x), width=width)  # the added rows are dropped
        return b.narrow(b.reshape(y, (size, offsets, *y.shape.dims[1:])), 1, 0, offsets - 1)

    def samples(self) -> Iterable[OpSample]:
        wide: Attributes = {"low": -1, "high": 6}
        offsets = SampleOperand((4,), "i32", low=-1, high=9, ascending=True)
        yield sample((7,), SampleOperand((7,), "i32", **wide), offsets, (5,), dtypes=NUMBERS)
        yield sample((7,), SampleOperand((7,), "i32", **wide), offsets, (5, 2), dtypes=("f32", "f16"))
        yield sample(
            (7,),
            SampleOperand((7,), "i64", **wide),
            SampleOperand((4,), "i64", high=8, ascending=True),
            (5, 2, 3),
            dtypes=("f32",),
        )
        yield sample(
            (0,),
            SampleOperand((0,), "i32"),
            SampleOperand((3,), "i32", low=0, high=1),
            (5, 2),
            width=1,
            dtypes=("f32",),
        )
        names = SampleOperand(("z",), "i32", **wide), SampleOperand(("m",), "i32", low=0, high=4, ascending=True)
        yield sample(("z",), *names, (5, "k"), dtypes=("f32",))


def _pays_padding(rows: Dim, entries: Dim, width: int) -> bool:
    return width > 0 and isinstance(rows, int) and isinstance(entries, int) and rows * width <= _MOST_PADDING * entries


def _padded(b: Builder, operands: Tensors, rows: Dim, width: int) -> Tensor:
    """Return the product as sums over rows that are padded to one length (the format ELL)."""
    data, indices, indptr, x = operands
    starts, stops = (b.reshape(b.narrow(indptr, 0, i, rows), (rows, 1)) for i in (0, 1))
    starts = b.minimum(b.maximum(starts, 0), cast(b, extent(b, data.shape.dims[0]), starts.dtype))
    positions = starts + b.reshape(b.iota((width,), dtype=indptr.dtype), (1, width))
    columns = b.gather(indices, positions, axis=0)
    limit = b.minimum(cast(b, stops, i64), extent(b, data.shape.dims[0]))
    is_entry = b.compare("lt", cast(b, positions, i64), limit)
    is_valid = b.logical_and(is_entry, _is_inside(b, columns, x.shape.dims[0]))
    terms = _terms(b, b.gather(data, positions, axis=0), b.gather(x, columns, axis=0), is_valid)
    return b.sum(terms, axes=[1])


class CsrMatmulTransposed(_Csr, op="csr_matmul_transposed"):
    def infer(
        self, data: Shape, indices: Shape, indptr: Shape, x: Shape, *, columns: tuple[Dim, ...], width: int
    ) -> Shape:
        kind = same_dtype(data, x)
        _check(indices, indptr, width, x)
        _check_data(data, indices)
        if len(columns) != 1:
            raise ShapeError(f"columns is a list of one dimension, got {len(columns)}")
        _check_rows(x, indptr)
        return Shape((columns[0], *x.dims[1:]), kind)

    def evaluate(
        self,
        data: np.ndarray,
        indices: np.ndarray,
        indptr: np.ndarray,
        x: np.ndarray,
        *,
        columns: tuple[int, ...],
        width: int,
    ) -> np.ndarray:
        rows, is_valid = _numpy_rows(indices, indptr, columns[0])
        return _numpy_sums(data[is_valid], x, rows[is_valid], indices[is_valid], columns[0])

    def decompose(
        self,
        b: Builder,
        data: Tensor,
        indices: Tensor,
        indptr: Tensor,
        x: Tensor,
        *,
        columns: tuple[Dim, ...],
        width: int,
    ) -> Tensor:
        kind = x.dtype
        data, x = _wide(b, data, x)
        (entries,), rows = data.shape.dims, x.shape.dims[0]
        if 0 in (entries, rows, columns[0]):
            return rules.zeros(b, Shape((columns[0], *x.shape.dims[1:]), kind))
        row = entry_rows(b, indptr, entries)
        terms = _terms(b, data, b.gather(x, row, axis=0), _is_inside(b, row, rows))
        return cast(b, b.scatter_add(terms, indices, size=columns[0]), kind)

    def build(
        self,
        b: Builder,
        data: TensorLike,
        indices: TensorLike,
        indptr: TensorLike,
        x: TensorLike,
        columns: ShapeLike,
        width: int = 0,
    ) -> Tensor:
        data, x = common(b, data, x)
        operands = data, tensor_like(b, indices, i32), tensor_like(b, indptr, i32), x
        return b.emit("csr_matmul_transposed", operands, columns=(columns,), width=width)

    linear = ("data", "x")

    def vjp(
        self,
        b: Builder,
        operands: Tensors,
        results: Tensors,
        cotangents: Tensors,
        *,
        columns: tuple[Dim, ...],
        width: int,
    ) -> rules.Cotangents:
        (data, indices, indptr, x), (dy,) = operands, cotangents
        return (
            lambda: b.csr_sampled_matmul(indices, indptr, adjoint(b, x), dy, width=width),
            None,
            None,
            lambda: b.csr_matmul(adjoint(b, data), indices, indptr, dy, width=width),
        )

    def vmap(
        self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, columns: tuple[Dim, ...], width: int
    ) -> Tensor:
        data, indices, indptr, x = operands
        if not any(batched[:3]):
            moved = rules.move_axis(b, x, 0, x.rank - 1)
            y = b.emit("csr_matmul_transposed", (data, indices, indptr, moved), columns=columns, width=width)
            return rules.move_axis(b, y, y.rank - 1, 0)
        data, indices, indptr, x = (rules.batch(b, t, f, size) for t, f in zip(operands, batched, strict=True))
        joined = _block_diagonal(b, indices, indptr, columns[0], size)
        operands = b.ravel(data), *joined, _joined_rows(b, x)
        y = b.emit("csr_matmul_transposed", operands, columns=(size * columns[0],), width=width)
        return b.reshape(y, (size, columns[0], *y.shape.dims[1:]))

    def samples(self) -> Iterable[OpSample]:
        wide: Attributes = {"low": -1, "high": 6}
        offsets = SampleOperand((4,), "i32", low=-1, high=9, ascending=True)
        yield sample((7,), SampleOperand((7,), "i32", **wide), offsets, (3,), columns=(5,), dtypes=NUMBERS)
        yield sample(
            *((7,), SampleOperand((7,), "i64", **wide), offsets, (3, 2, 2)), columns=(5,), dtypes=("f32", "bf16")
        )
        empty = SampleOperand((0,), "i32"), SampleOperand((3,), "i32", low=0, high=1)
        yield sample((0,), *empty, (2, 2), columns=(4,), width=1, dtypes=("f32",))
        yield sample(*(("z",), SampleOperand(("z",), "i32", **wide), offsets, (3, 2)), columns=("n",), dtypes=("f32",))


class CsrSampledMatmul(_Csr, op="csr_sampled_matmul"):
    def infer(self, indices: Shape, indptr: Shape, x: Shape, y: Shape, *, width: int) -> Shape:
        kind = same_dtype(x, y)
        _check(indices, indptr, width, x, y)
        _check_rows(x, indptr)
        if x.dims[1:] != y.dims[1:]:
            raise ShapeError(f"x {x} and y {y} must have equal axes after the first")
        return Shape(indices.dims, kind)

    def evaluate(
        self, indices: np.ndarray, indptr: np.ndarray, x: np.ndarray, y: np.ndarray, *, width: int
    ) -> np.ndarray:
        rows, is_valid = _numpy_rows(indices, indptr, y.shape[0])
        result = np.zeros(indices.shape, _exact(x[:0]).dtype)
        with np.errstate(all="ignore"):
            products = _exact(x[rows[is_valid]]) * _exact(y[indices[is_valid]])
            result[is_valid] = products.reshape(len(products), -1).sum(1) if products.size else 0
            return result.astype(x.dtype)

    def decompose(self, b: Builder, indices: Tensor, indptr: Tensor, x: Tensor, y: Tensor, *, width: int) -> Tensor:
        kind = x.dtype
        x, y = _wide(b, x, y)
        (entries,), rows, columns = indices.shape.dims, x.shape.dims[0], y.shape.dims[0]
        if 0 in (entries, rows, columns):
            return rules.zeros(b, Shape((entries,), kind))
        row = entry_rows(b, indptr, entries)
        is_valid = b.logical_and(_is_inside(b, row, rows), _is_inside(b, indices, columns))
        products = b.gather(x, row, axis=0) * b.gather(y, indices, axis=0)
        sums = b.sum(products, axes=range(1, products.rank)) if products.rank > 1 else products
        return cast(b, b.where(is_valid, sums, rules.zeros(b, sums.shape)), kind)

    def build(
        self, b: Builder, indices: TensorLike, indptr: TensorLike, x: TensorLike, y: TensorLike, width: int = 0
    ) -> Tensor:
        x, y = common(b, x, y)
        return b.emit(
            "csr_sampled_matmul", (tensor_like(b, indices, i32), tensor_like(b, indptr, i32), x, y), width=width
        )

    linear = ("x", "y")

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors, *, width: int
    ) -> rules.Cotangents:
        (indices, indptr, x, y), (d,) = operands, cotangents
        columns = y.shape.dims[0]
        return (
            None,
            None,
            lambda: b.csr_matmul(d, indices, indptr, adjoint(b, y), width=width),
            lambda: b.csr_matmul_transposed(d, indices, indptr, adjoint(b, x), columns=columns, width=width),
        )

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, width: int) -> Tensor:
        indices, indptr, x, y = (rules.batch(b, t, f, size) for t, f in zip(operands, batched, strict=True))
        joined = _block_diagonal(b, indices, indptr, y.shape.dims[1], size)
        y = b.reshape(y, (size * y.shape.dims[1], *y.shape.dims[2:]))
        sampled = b.emit("csr_sampled_matmul", (*joined, _joined_rows(b, x), y), width=width)
        return b.reshape(sampled, indices.shape.dims)

    def samples(self) -> Iterable[OpSample]:
        wide: Attributes = {"low": -1, "high": 6}
        offsets = SampleOperand((4,), "i32", low=-1, high=9, ascending=True)
        yield sample(SampleOperand((7,), "i32", **wide), offsets, (3,), (5,), dtypes=NUMBERS)
        yield sample(SampleOperand((7,), "i64", **wide), offsets, (3, 2, 2), (5, 2, 2), dtypes=("f32", "f16"))
        empty = SampleOperand((0,), "i32"), SampleOperand((3,), "i32", low=0, high=1)
        yield sample(*empty, (2, 2), (4, 2), width=1, dtypes=("f32",))
        yield sample(SampleOperand(("z",), "i32", **wide), offsets, (3, "k"), (5, "k"), dtypes=("f32",))


def _check_rows(x: Shape, indptr: Shape) -> None:
    if x.dims[0] != indptr.dims[0] - 1:
        raise ShapeError(f"x {x} must have a row for each of the {indptr.dims[0] - 1} rows of the matrix")


# --- batches: one matrix with the matrices of the batch on its diagonal -------------------------------


def _block_diagonal(b: Builder, indices: Tensor, indptr: Tensor, columns: Dim, size: Dim) -> tuple[Tensor, Tensor]:
    """Return the pattern of the matrix with a batch of matrices on its diagonal.

    Each matrix is followed by one more row, with the entries that are outside of its rows.

    Args:
        b: The builder that emits the ops.
        indices: The columns `[B, Z]`.
        indptr: The offsets `[B, M + 1]`.
        columns: The number of columns of one matrix.
        size: The number of matrices B.
    """
    entries = indices.shape.dims[1]
    kind = i64 if not (isinstance(size, int) and size * _greatest(columns, entries) < 2**31) else i32
    number = b.iota((size, 1), axis=0, dtype=kind)
    shifted = cast(b, indices, kind) + number * cast(b, extent(b, columns), kind)
    inside = b.where(_is_inside(b, indices, columns), shifted, -1)
    total = cast(b, extent(b, entries), kind)
    offsets = b.minimum(b.maximum(cast(b, indptr, kind), 0), total) + number * total
    last = b.reshape(cast(b, extent(b, size), kind) * total, (1,))
    return b.ravel(inside), b.concat([b.ravel(offsets), last], axis=0)


def _greatest(*dims: Dim) -> float:
    """Return the greatest of sizes; infinity if one is a symbol."""
    return max(d if isinstance(d, int) else math.inf for d in dims)


def _joined_rows(b: Builder, x: Tensor) -> Tensor:
    """Return `x [B, M, b…]` as `[B·(M + 1), b…]`, where each matrix is followed by a row of zeros."""
    size, rows, *others = x.shape.dims
    padded = b.concat([x, rules.zeros(b, Shape((size, 1, *others), x.dtype))], axis=1)
    return b.reshape(padded, (size * (rows + 1), *others))

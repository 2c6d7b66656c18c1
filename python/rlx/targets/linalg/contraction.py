"""Lowering rules for contractions: named linalg ops where possible, accumulated in the dtype of the factors' computation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rlx import mlir
from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import DType
from rlx.ir.shape import Shape
from rlx.numerics.scalars import Scalars, storage_type
from rlx.ops.contraction.contraction import DotDims
from rlx.targets.linalg.loops import PARALLEL, REDUCTION, Indexed, LoopEmitter, product_of
from rlx.targets.linalg.rules import Lowered, lowers


def accumulator(dtype: DType) -> DType:
    """The dtype in which a contraction accumulates."""
    return dtype.compute


def round_to_result(low: LoopEmitter, value: mlir.Value, dims: Sequence[Dim], dtype: DType) -> mlir.Value:
    """Convert an accumulated result to its dtype."""
    wide = accumulator(dtype)
    if wide is dtype:
        return value
    element = storage_type(dtype)
    return low.map(dims, element, [Lowered(value, Shape(dims, wide))], lambda v: low.arith.truncf(element, v))


def factor(s: Scalars, value: mlir.Value) -> mlir.Value:
    """Convert a stored scalar to a factor of a sum in the dtype of `s`. An integer may be shorter."""
    return s.arith.extsi(s.element, value) if s.dtype.is_integer and value.type != s.element else s.enter(value)


def is_empty(*dims: Dim) -> bool:
    """Whether a contraction has size 0. Tiling divides by the sizes of a contraction."""
    return 0 in dims


@lowers("matmul")
def matmul(low: LoopEmitter, results: list[Shape], lhs: Lowered, rhs: Lowered) -> mlir.Value:
    dims, dtype = results[0].dims, results[0].dtype
    if dtype.is_complex:
        return _of_parts(low, results[0], lhs, rhs, partial(matmul, low, [results[0].with_dtype(dtype.part)]))
    if rhs.shape.rank == 2:
        rows, (k, n) = product_of(lhs.shape.dims[:-1]), rhs.shape.dims
        flat = low.reshape(lhs.value, lhs.shape.dims, (rows, k))
        product = matmul_2d(low, flat, rhs.value, rows, n, dtype)
        return low.reshape(product, (rows, n), dims)
    if lhs.shape.dims[:-2] == rhs.shape.dims[:-2]:
        return _batched(low, lhs, rhs, dims)
    return _broadcast_matmul(low, lhs, rhs, results[0])


def matmul_2d(low: LoopEmitter, lhs: mlir.Value, rhs: mlir.Value, m: Dim, n: Dim, dtype: DType) -> mlir.Value:
    """`[M, K]·[K, N]`. Factors with shorter integers than `dtype` are sign-extended."""
    if is_empty(m, n, lhs.type.shape[-1]):
        return low.filled((m, n), storage_type(dtype), 0)
    wide = accumulator(dtype)
    out = low.filled((m, n), storage_type(wide), 0)
    return round_to_result(low, low.linalg.matmul(lhs, rhs, outs=[out]), (m, n), dtype)


def _batched(low: LoopEmitter, lhs: Lowered, rhs: Lowered, dims: Sequence[Dim]) -> mlir.Value:
    batch = product_of(dims[:-2])
    m, n, k = dims[-2], dims[-1], lhs.shape.dims[-1]
    left = low.reshape(lhs.value, lhs.shape.dims, (batch, m, k))
    right = low.reshape(rhs.value, rhs.shape.dims, (batch, k, n))
    product = batch_matmul(low, left, right, (batch, m, n), k, lhs.shape.dtype)
    return low.reshape(product, (batch, m, n), dims)


def batch_matmul(
    low: LoopEmitter, lhs: mlir.Value, rhs: mlir.Value, dims: tuple[Dim, Dim, Dim], k: Dim, dtype: DType
) -> mlir.Value:
    """`[B, M, K]·[B, K, N]`."""
    if is_empty(*dims, k):
        return low.filled(dims, storage_type(dtype), 0)
    out = low.filled(dims, storage_type(accumulator(dtype)), 0)
    return round_to_result(low, low.linalg.batch_matmul(lhs, rhs, outs=[out]), dims, dtype)


def contraction_loop(
    low: LoopEmitter,
    inputs: Sequence[Indexed],
    dims: Sequence[Dim],
    axes: tuple[int, ...],
    rank: int,
    dtype: DType,
) -> mlir.Value:
    """A contraction as a generic loop nest: loops in `axes` are kept, the others are reduced. Factors are as in `matmul_2d`."""
    wide = accumulator(dtype)
    s = Scalars(dtype)

    def body(a: mlir.Value, b: mlir.Value, total: mlir.Value) -> mlir.Value:
        return s.add(total, s.mul(factor(s, a), factor(s, b)))

    out = low.filled(dims, storage_type(wide), 0)
    iterators = [PARALLEL if i in axes else REDUCTION for i in range(rank)]
    return round_to_result(low, low.generic(inputs, [(out, axes)], iterators, body), dims, dtype)


def _of_parts(low: LoopEmitter, result: Shape, lhs: Lowered, rhs: Lowered, product: Callable[..., Any]) -> mlir.Value:
    """A product of complex matrices as four products of real matrices, which compile to fast code."""
    dialect, element, parts = mlir.dialect("complex"), storage_type(result.dtype), result.dtype.part

    def part(x: Lowered, of: Callable[[mlir.Value], mlir.Value]) -> Lowered:
        return Lowered(low.map(x.shape.dims, storage_type(parts), [x], of), x.shape.with_dtype(parts))

    def term(left: Callable[[mlir.Value], mlir.Value], right: Callable[[mlir.Value], mlir.Value]) -> Lowered:
        return Lowered(product(part(lhs, left), part(rhs, right)), result.with_dtype(parts))

    re, im = dialect.re, dialect.im
    terms = [term(re, re), term(im, im), term(re, im), term(im, re)]
    s = Scalars(parts)
    return low.map(result.dims, element, terms, lambda a, b, c, d: dialect.create_(element, s.sub(a, b), s.add(c, d)))


def _broadcast_matmul(low: LoopEmitter, lhs: Lowered, rhs: Lowered, result: Shape) -> mlir.Value:
    """A batched product that reads broadcast batch axes in place, without copies."""
    rank = result.rank + 1  # the batch loops, m, n, k
    m, n, k = rank - 3, rank - 2, rank - 1

    def operand(x: Lowered, row: int, column: int) -> tuple[mlir.Value, tuple[int, ...]]:
        offset = result.rank - x.shape.rank
        stretched = [i for i in range(x.shape.rank - 2) if x.shape.dims[i] == 1 and result.dims[i + offset] != 1]
        axes = tuple(i + offset for i in range(x.shape.rank - 2) if i not in stretched)
        return low.squeeze(x.value, x.shape.dims, stretched), (*axes, row, column)

    inputs = [operand(lhs, m, k), operand(rhs, k, n)]
    return contraction_loop(low, inputs, result.dims, tuple(range(rank - 1)), rank, result.dtype)


@lowers("dot_general")
def dot_general(low: LoopEmitter, results: list[Shape], lhs: Lowered, rhs: Lowered, *, dims: DotDims) -> mlir.Value:
    left_free, right_free = dims.free(lhs.rank, rhs.rank)

    def size(x: Lowered, axes: Sequence[int]) -> Dim:
        return product_of([x.shape.dims[a] for a in axes])

    def arranged(x: Lowered, *groups: Sequence[int]) -> mlir.Value:
        perm = [a for group in groups for a in group]
        moved = low.transpose(x.value, x.shape.dims, perm)
        return low.reshape(moved, [x.shape.dims[p] for p in perm], [size(x, g) for g in groups])

    batch, m, n = size(lhs, dims.lhs_batch), size(lhs, left_free), size(rhs, right_free)
    dtype = lhs.shape.dtype
    if dtype.is_complex:
        real = partial(dot_general, low, [results[0].with_dtype(dtype.part)], dims=dims)
        return _of_parts(low, results[0], lhs, rhs, real)
    if dims.lhs_batch:
        left = arranged(lhs, dims.lhs_batch, left_free, dims.lhs_contracting)
        right = arranged(rhs, dims.rhs_batch, dims.rhs_contracting, right_free)
        product = batch_matmul(low, left, right, (batch, m, n), size(lhs, dims.lhs_contracting), dtype)
        return low.reshape(product, (batch, m, n), results[0].dims)
    left, right = arranged(lhs, left_free, dims.lhs_contracting), arranged(rhs, dims.rhs_contracting, right_free)
    return low.reshape(matmul_2d(low, left, right, m, n, dtype), (m, n), results[0].dims)

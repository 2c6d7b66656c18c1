"""Shared base of the functions of matrices: operands of any inexact dtype, adjoints, right-hand sides."""

from __future__ import annotations

from rlx.ir.dims.dim import Dim, product
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike
from rlx.ops.factorization.matrices import as_floats
from rlx.ops.lift import broadcast, common, dtype_of, tensor_like
from rlx.support.errors import ShapeError


def as_inexact(b: Builder, value: TensorLike) -> Tensor:
    """Return an operand as floats or complex numbers; integers become f32."""
    kind = dtype_of(value)
    return tensor_like(b, value, kind) if kind.is_complex else as_floats(b, value)


def as_system(b: Builder, a: TensorLike, x: TensorLike) -> tuple[Tensor, Tensor]:
    """Return the operands of a linear system in one inexact dtype."""
    matrix, right = (as_inexact(b, t) for t in common(b, a, x))
    return matrix, right


def transposed(b: Builder, a: Tensor) -> Tensor:
    """Return the transposes of matrices `[…, M, N]`."""
    return b.swapaxes(a, -1, -2)


def conjugated(b: Builder, a: Tensor) -> Tensor:
    """Return the complex conjugate; real tensors unchanged."""
    return b.conjugate(a) if a.dtype.is_complex else a


def adjoint(b: Builder, a: Tensor) -> Tensor:
    """Return the conjugate transposes of matrices `[…, M, N]`."""
    return conjugated(b, transposed(b, a))


def unit(b: Builder, size: int, a: Tensor) -> Tensor:
    """Return the identity matrix in the dtype of `a`."""
    return b.eye(size, dtype=a.dtype)


def as_columns(b: Builder, x: Tensor, size: int, of: Tensor) -> Tensor:
    """Return a right-hand side `[size]` or `[…, size, K]` as `[…, size, K]`.

    Raises:
        ShapeError: It has another size.
    """
    if not x.rank or (x.shape.dims[0] if x.rank == 1 else x.shape.dims[-2]) != size:
        raise ShapeError(f"expected a right-hand side [{size}] or […, {size}, K] for {of.shape}, got {x.shape}")
    return b.expand_dims(x, -1) if x.rank == 1 else x


def one_batch(b: Builder, a: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Broadcast the batches of two groups of matrices."""
    batch = broadcast(a.shape.dims[:-2], x.shape.dims[:-2])
    first, second = (b.broadcast_to(t, (*batch, *t.shape.dims[-2:])) for t in (a, x))
    return first, second


def batch_in_columns(b: Builder, x: Tensor) -> tuple[Tensor, tuple[Dim, ...]]:
    """Return right-hand sides `[…, N, K]` of one matrix as `[N, columns]`, and the batch for `columns_in_batch`."""
    *batch, rows, columns = x.shape.dims
    moved = b.moveaxis(x, -2, 0)
    return b.reshape(moved, (rows, product(batch) * columns)), (*batch, columns)


def columns_in_batch(b: Builder, x: Tensor, batch: tuple[Dim, ...]) -> Tensor:
    """Undo `batch_in_columns`."""
    return b.moveaxis(b.reshape(x, (x.shape.dims[0], *batch)), 0, -2)


def scaled_columns(b: Builder, vectors: Tensor, values: Tensor) -> Tensor:
    """Return `vectors·diag(values)` for vectors `[…, M, N]` and real values `[…, N]`."""
    return vectors * b.cast(b.expand_dims(values, -2), vectors.dtype)

"""Shared base of the factorisations: matrices in the last two axes, one batch axis, and matrices that are not finite."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from rlx.ir.dims.dim import Dim, product
from rlx.ir.dtype import f32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import Flags, TensorLike, Tensors
from rlx.ir.op.card import Attributes, Card, Cost, Shapes, moved_bytes
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.contraction.contraction import swap_last_axes
from rlx.ops.lift import cast, dtype_of, tensor_like
from rlx.ops.norm import statistics_input
from rlx.support.errors import ShapeError


def order_of(a: Shape, *, square: bool) -> tuple[int, int]:
    """Return the number of rows and columns of matrices.

    Raises:
        ShapeError: The operand has no matrices, their sizes are symbolic, or they are not square although they must be.
    """
    if a.rank < 2 or (square and a.dims[-1] != a.dims[-2]):
        raise ShapeError(f"expected {'square ' if square else ''}matrices […, {'N, N' if square else 'M, N'}], got {a}")
    rows, columns = a.dims[-2:]
    if type(rows) is not int or type(columns) is not int:
        raise ShapeError(f"the sizes of the matrices of {a} must be numbers", hint="only the batch may be symbolic")
    return rows, columns


def widest(a: np.ndarray) -> np.ndarray:
    """Return a copy in the dtype in which evaluators compute: f64 or c128."""
    return a.astype(np.complex128 if a.dtype.kind == "c" else np.float64)


def all_finite(a: np.ndarray) -> np.ndarray:
    """Return whether all elements of each matrix are finite."""
    return np.asarray(np.isfinite(a).all((-2, -1)))


def with_nan(finite: np.ndarray, *factors: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the factors, with NaN where the matrix was not finite."""
    return tuple(np.where(finite.reshape(*finite.shape, *(1,) * (f.ndim - finite.ndim)), f, np.nan) for f in factors)


class Factorization(Card):
    """A factorisation of `a […, M, N]`.

    The factors of a matrix that contains NaN or infinities are NaN. Subclasses implement the factors of finite
    matrices: `factors` in NumPy, for f64 and c128, and `emitted` in ops, for a batch `[B, M, N]` of f32, f64, c64 or c128.
    """

    def factors(self, a: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the factors of finite matrices of f64 or c128."""
        raise NotImplementedError

    def emitted(self, b: Builder, a: Tensor) -> tuple[Tensor, ...]:
        """Emit the factors of a batch of finite, nonempty matrices."""
        raise NotImplementedError

    def read(self, b: Builder | ModuleType, a: Tensor | np.ndarray) -> Any:
        """Return the elements that the factorisation reads; the others are 0 or copies. `b` is a builder, or NumPy."""
        return a

    def evaluate(self, a: np.ndarray) -> np.ndarray | tuple[np.ndarray, ...]:
        given = self.read(np, widest(a))
        finite = all_finite(given)
        factors = self.factors(np.where(finite[..., None, None], given, 0))
        part = np.real(a).dtype
        dtypes = {"i": np.int32, "f": part, "c": a.dtype}
        found = [f if f.dtype.kind == "i" else with_nan(finite, f)[0].astype(dtypes[f.dtype.kind]) for f in factors]
        return found[0] if len(found) == 1 else tuple(found)

    def decompose(self, b: Builder, a: Tensor) -> Tensor | tuple[Tensor, ...]:
        shapes = self.infer(a.shape)
        results: Sequence[Shape] = [shapes] if isinstance(shapes, Shape) else shapes
        *batch, rows, columns = a.shape.dims
        if 0 in (rows, columns) or 0 in batch:
            found = [self._of_empty(b, s) for s in results]
        else:
            matrices = self.read(b, statistics_input(b, b.reshape(a, (product(batch), rows, columns))))
            # A finite number minus itself is 0, anything else is NaN.
            finite = b.sum(b.abs(matrices - matrices), axes=(1, 2), keep_dims=True) == 0.0
            factors = self.emitted(b, b.where(finite, matrices, 0.0))
            found = [
                b.reshape(f if f.dtype.is_integer else cast(b, self._marked(b, finite, f), s.dtype), s.dims)
                for f, s in zip(factors, results, strict=True)
            ]
        return found[0] if len(found) == 1 else tuple(found)

    def _marked(self, b: Builder, finite: Tensor, factor: Tensor) -> Tensor:
        finite = finite if factor.rank == 3 else b.squeeze(finite, -1)
        return b.where(finite, factor, float("nan"))

    def _of_empty(self, b: Builder, shape: Shape) -> Tensor:
        """Return a factor of matrices without elements: ones on the diagonal, or nothing."""
        if shape.dtype.is_integer:
            return b.expand(b.iota((shape.dims[-1],), dtype="i32"), shape.dims)
        if shape.rank >= 2 and type(shape.dims[-2]) is int:
            return b.expand(b.eye(*order_of(shape, square=False), dtype=shape.dtype), shape.dims)
        return rules.zeros(b, shape)

    def build(self, b: Builder, a: TensorLike) -> Tensor | tuple[Tensor, ...]:
        return b.emit(self.name, (as_inexact(b, a),))

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim) -> Tensor | tuple[Tensor, ...]:
        return b.emit(self.name, operands)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        """Return the cost as in LAPACK, to the leading term. Iterative methods count ten times that."""
        rows, columns = order_of(operands[0], square=False)
        return Cost(self.work * min(rows, columns) * operands[0].num_elements, moved_bytes(operands, results))

    work: int = 2


def as_inexact(b: Builder, value: TensorLike) -> Tensor:
    """Return an operand as floats or complex numbers; integers become f32."""
    x = tensor_like(b, value, dtype_of(value) if dtype_of(value).is_inexact else f32)
    return x if x.dtype.is_inexact else b.cast(x, f32)


def as_floats(b: Builder, value: TensorLike) -> Tensor:
    """Return an operand as floats; integers become f32.

    Raises:
        ShapeError: The operand is complex.
    """
    x = tensor_like(b, value, dtype_of(value) if dtype_of(value).is_float else f32)
    if x.dtype.is_complex:
        raise ShapeError(
            "complex matrices have no factorisation here", hint="of hermitian ones factor [[re, -im], [im, re]]"
        )
    return x if x.dtype.is_float else b.cast(x, f32)


def adjoint(b: Builder, a: Tensor) -> Tensor:
    """Return the conjugate transposes of matrices."""
    return b.conjugate(swap_last_axes(b, a))


def hermitian(b: Builder | ModuleType, a: Tensor | np.ndarray) -> Any:
    """Return the Hermitian matrix of a lower triangle: symmetric if it is real. `b` is a builder, or NumPy."""
    below = b.tril(a, -1)
    diagonal = b.real(b.triu(b.tril(a)))  # imaginary parts are not read
    return below + diagonal + b.conjugate(b.swapaxes(below, -1, -2))


def identities(b: Builder, a: Tensor) -> Tensor:
    """Return the identity of the last size of matrices `[B, M, N]`, `[B, N, N]`."""
    batch, size = a.shape.dims[0], order_of(a.shape, square=False)[1]
    return b.expand(b.eye(size, dtype=a.dtype), (batch, size, size))


def precision(x: Tensor) -> float:
    """Return the relative precision of elements: that of f64 for c128."""
    return float(np.finfo(x.dtype.numpy).eps)


def columns_of(b: Builder, a: Tensor, order: Tensor) -> Tensor:
    """Return the columns of matrices `[B, M, N]` in the order `[B, N]`."""
    return b.swapaxes(b.gather_batched(b.swapaxes(a, 1, 2), order, axis=1), 1, 2)

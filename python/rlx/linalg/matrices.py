"""Functions of the last two axes with the names and arguments of `numpy.linalg` and `scipy.linalg`."""

from __future__ import annotations

from collections.abc import Sequence

from rlx.functions.factorization.norms import matrix_norm, vector_norm
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike
from rlx.linalg.call import of_tensors
from rlx.ops.lift import axes_of, axis_of, common
from rlx.support.errors import ShapeError
from rlx.support.guards import is_integer, is_iterable
from rlx.support.short import short_repr


@of_tensors
def trace(b: Builder, x: TensorLike, offset: int = 0) -> Tensor:
    """NumPy's `linalg.trace`: the sum `[…]` of diagonal `offset` of the matrices `[…, M, N]`.

    `g.trace` is NumPy's `trace`, which takes the first two axes.
    """
    return b.trace(_matrices(b, x), offset, -2, -1)


@of_tensors
def diagonal(b: Builder, x: TensorLike, offset: int = 0) -> Tensor:
    """NumPy's `linalg.diagonal`: the elements `[…, K]` of diagonal `offset` of the matrices `[…, M, N]`.

    `g.diagonal` is NumPy's `diagonal`, which takes the first two axes.
    """
    return b.diagonal(_matrices(b, x), offset, -2, -1)


def _matrices(b: Builder, x: TensorLike) -> Tensor:
    (x,) = common(b, x)
    if x.rank < 2:
        raise ShapeError(f"expected matrices […, M, N], got {x.shape}")
    return x


@of_tensors
def expm(b: Builder, a: TensorLike) -> Tensor:
    """SciPy's `linalg.expm`: the exponential of the matrices `[…, N, N]`; `g.matrix_exp`.

    It is NaN for norms above `5·2^32`.
    """
    return b.matrix_exp(a)


@of_tensors
def norm(
    b: Builder,
    x: TensorLike,
    ord: float | str | None = None,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
) -> Tensor:
    """NumPy's `linalg.norm`: the norm of vectors along one axis, or of matrices in two axes.

    Args:
        b: The builder.
        x: Numbers.
        ord: Of vectors a number, inf, -inf or 0; of matrices "fro", "nuc", 1, -1, 2, -2, inf or -inf. None is the
            Euclidean norm, of matrices the Frobenius norm.
        axis: The axis of vectors, or the two axes of matrices. None is the only axis of a vector, or both of a matrix;
            without `ord`, all axes.
        keepdims: Whether to keep the reduced axes, with size 1.

    Raises:
        ShapeError: There is no such norm, or the axes are neither one nor two.
    """
    (x,) = common(b, x)
    if axis is None and ord is None:
        return b.norm(x, keepdims=keepdims)
    axes = [axis] if is_integer(axis) else list(axis) if is_iterable(axis) else list(range(x.rank))
    if len(axes) not in (1, 2):
        raise ShapeError(
            f"a norm with ord={short_repr(ord)} is one of vectors or of matrices: expected one or two axes, got {axes}",
            hint="axis=… names them; rlx.linalg.vector_norm takes any axes",
        )
    axes_of(axes, x.rank, "axis")  # they are different, and in range
    if len(axes) == 1:
        if isinstance(ord, str):
            raise ShapeError(f"the order of a norm of vectors is a number, not {short_repr(ord)}")
        return vector_norm(b, x, 2 if ord is None else ord, axes[0], keepdims)
    first, second = (axis_of(i, x.rank) for i in axes)
    result = matrix_norm(b, b.moveaxis(x, (first, second), (-2, -1)), "fro" if ord is None else ord)
    if not keepdims:
        return result
    return b.reshape(result, [1 if i in (first, second) else d for i, d in enumerate(x.shape.dims)])

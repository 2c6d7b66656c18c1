"""The Schur form of matrices, as a function without derivatives."""

from __future__ import annotations

from rlx.functions.factorization.operands import as_inexact
from rlx.ir.dims.dim import product
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike
from rlx.ops.factorization.jacobi import scale_of
from rlx.ops.factorization.matrices import identities, order_of
from rlx.ops.factorization.schur import schur
from rlx.ops.lift import cast
from rlx.ops.norm import statistics_input

_NAN = float("nan")


def schur_form(b: Builder, a: TensorLike) -> tuple[Tensor, Tensor]:
    """Return upper triangular `t` and unitary `z` with `a = z·t·zᴴ` for `a […, N, N]`; both are complex.

    The eigenvalues on the diagonal of `t` are in no particular order. Both are NaN for matrices that are not finite, and
    where the QR algorithm does not converge.
    """
    a = statistics_input(b, as_inexact(b, a))
    kind, shape = a.dtype.complex, a.shape.dims
    size, _ = order_of(a.shape, square=True)
    count = product(shape[:-2])
    if 0 in (size, count):
        return cast(b, a, kind), b.broadcast_to(b.eye(size, dtype=kind), shape)

    def factors(a: Tensor) -> tuple[Tensor, Tensor]:
        b = a.builder
        matrices = cast(b, b.reshape(a, (count, size, size)), kind)
        is_finite = b.sum(b.abs(matrices - matrices), axes=(1, 2), keep_dims=True) == 0.0
        matrices = b.where(is_finite, matrices, 0.0)
        scale = scale_of(b, matrices)
        if size == 1:
            t, z, is_done = matrices / scale, identities(b, matrices), is_finite
        else:
            t, z, is_done = schur(b, matrices / scale)
            is_done = b.logical_and(is_finite, b.reshape(is_done, (count, 1, 1)))
        found = [b.reshape(b.where(is_done, x, _NAN), shape) for x in (t * scale, z)]
        return found[0], found[1]

    return b.custom_fn(factors, a, no_derivative="the Schur form has no derivative rule; rlx.linalg.eig has one")

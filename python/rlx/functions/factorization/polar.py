"""Polar factors of matrices."""

from __future__ import annotations

from collections.abc import Sequence

from rlx.functions.factorization.hermitian import symmetric_sylvester, with_rules
from rlx.functions.factorization.operands import adjoint, as_inexact, scaled_columns, transposed
from rlx.functions.factorization.systems import solve
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike
from rlx.ir.op.results import PolarResult
from rlx.ops.factorization.matrices import order_of
from rlx.ops.lift import cast
from rlx.ops.norm import statistics_input
from rlx.ops.surface import helper
from rlx.support.errors import ShapeError
from rlx.support.short import short_repr

# The number of derivatives that hold for equal singular values.
_ORDERS = 2


@helper
def polar(b: Builder, a: TensorLike, side: str = "right") -> PolarResult:
    """SciPy's `linalg.polar`: `a = u·p` (or `a = p·u`) for `a […, M, N]`, with orthonormal u and positive semi-definite p.

    The first two derivatives hold where the rank is `min(M, N)`, also for equal singular values.

    Args:
        b: The builder.
        a: Matrices.
        side: "right" for `a = u·p`, p `[…, N, N]`; "left" for `a = p·u`, p `[…, M, M]`.

    Returns:
        `u […, M, N]`, whose columns (or, for `M < N`, rows) are orthonormal, and `p`.

    Raises:
        ShapeError: `side` is another value.
    """
    _check_side(side)
    a = as_inexact(b, a)
    rows, columns = order_of(a.shape, square=False)
    if 0 in (rows, columns, *a.shape.dims[:-2]):
        size = columns if side == "right" else rows
        return PolarResult(a, b.zeros((*a.shape.dims[:-2], size, size), a.dtype))
    wide = statistics_input(b, a)
    if rows >= columns:
        u, p = _of_tall(b, wide, _ORDERS)
        p = p if side == "right" else b.matmul(u, b.matmul(p, adjoint(b, u)))
    else:
        u, p = _of_tall(b, adjoint(b, wide), _ORDERS)
        u = adjoint(b, u)
        p = p if side == "left" else b.matmul(adjoint(b, u), b.matmul(p, u))
    return PolarResult(cast(b, u, a.dtype), cast(b, p, a.dtype))


def _check_side(side: object) -> None:
    if isinstance(side, str):
        if side not in ("right", "left"):
            raise ShapeError(f"side is 'right' or 'left', not {short_repr(side)}")
        return
    raise ShapeError(  # `torch.polar` takes magnitudes and angles
        f"side is 'right' or 'left', not {short_repr(side)}",
        hint="instead: g.complex(r * g.cos(angle), r * g.sin(angle)) for complex numbers",
    )


def _of_tall(b: Builder, a: Tensor, orders: int) -> tuple[Tensor, Tensor]:
    """Return u and p with `a = u·p` for matrices with at least as many rows as columns."""

    def factors(a: Tensor) -> tuple[Tensor, Tensor]:
        b = a.builder
        w, s, vh = b.svd(a, full_matrices=False)
        return b.matmul(w, vh), b.matmul(scaled_columns(b, adjoint(b, vh), s), vh)

    def pushed(args: Sequence[Tensor], tangents: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return the tangents by `uᴴ·da = k·p + dp`, where `k = uᴴ·du` is skew: `k·p + p·k = uᴴ·da - daᴴ·u`."""
        (a,), (da,) = args, tangents
        b = a.builder
        u, p = _of_tall(b, a, orders - 1)
        along = b.matmul(adjoint(b, u), da)
        k = symmetric_sylvester(b, p, along - adjoint(b, along), orders - 1)
        du = b.matmul(u, k)
        if a.shape.dims[-1] != a.shape.dims[-2]:
            outside = da - b.matmul(u, along)
            du = du + adjoint(b, solve(b, p, adjoint(b, outside)))
        return du, along - b.matmul(k, p)

    def pulled(args: Sequence[Tensor], results: Sequence[Tensor], cotangents: Sequence[Tensor]) -> Tensor:
        (a,), (u, p), (du, dp) = args, results, cotangents
        b, ut = a.builder, transposed(a.builder, u)
        along = b.matmul(ut, du)
        k = symmetric_sylvester(b, p, along - b.matmul(dp, p), orders - 1)
        result = b.matmul(u, dp + k - transposed(b, k))
        if a.shape.dims[-1] != a.shape.dims[-2]:
            outside = du - b.matmul(u, along)
            result = result + transposed(b, solve(b, p, transposed(b, outside)))
        return result

    return with_rules(b, factors, [a], pushed, pulled) if orders else factors(a)

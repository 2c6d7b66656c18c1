"""Linear systems, inverses, and factors of matrices that solve systems."""

from __future__ import annotations

from rlx.functions.factorization.operands import adjoint as adjoint_of
from rlx.functions.factorization.operands import one_batch, transposed
from rlx.functions.factorization.systems import row_order
from rlx.importers.torch.rules import Results, aten, static_size
from rlx.ir.dims.dim import product
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph


@aten("linalg_solve", "linalg_solve_ex")
def solve(
    g: Graph, a: Tensor, b: Tensor, *, left: bool = True, check_errors: bool = False, results: Results
) -> list[Tensor]:
    """Return the solution, and the status codes for success."""
    vector = b.rank == 1 or (b.rank == a.rank - 1 and b.shape.dims == a.shape.dims[:-1])
    b = g.expand_dims(b, -1) if vector else b
    sides = (a, b) if left else (g.swapaxes(a, -1, -2), g.swapaxes(b, -1, -2))
    made = g.solve(*sides)
    made = made if left else g.swapaxes(made, -1, -2)
    made = g.squeeze(made, made.rank - 1) if vector else made
    return [made, *(g.zeros(r.dims, dtype=r.dtype) for r in results[1:])]


@aten("linalg_inv", "linalg_inv_ex")
def inverse(g: Graph, a: Tensor, *, check_errors: bool = False, results: Results) -> list[Tensor]:
    return [g.inv(a), *(g.zeros(r.dims, dtype=r.dtype) for r in results[1:])]


@aten("linalg_tensorinv")
def tensor_inverse(g: Graph, a: Tensor, ind: int = 2) -> Tensor:
    """Return the inverse of the matrix from the axes after the first `ind` to these. PyTorch's own rule has effects."""
    rows, columns = a.shape.dims[:ind], a.shape.dims[ind:]
    return g.reshape(g.inv(g.reshape(a, (product(rows), product(columns)))), (*columns, *rows))


@aten("linalg_solve_triangular")
def solve_triangular(
    g: Graph, a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    a, b = one_batch(g, a, b)
    return g.solve_triangular(a, b, lower=not upper, unit_diagonal=unitriangular, left=left)


@aten("triangular_solve")
def triangular_solve(
    g: Graph, b: Tensor, a: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> list[Tensor]:
    """Return the solution, and a copy of the matrix."""
    a, b = one_batch(g, a, b)
    kind = "T" if transpose else "N"
    return [g.solve_triangular(a, b, kind, lower=not upper, unit_diagonal=unitriangular), a]


@aten("linalg_lu_solve")
def lu_solve(g: Graph, lu: Tensor, pivots: Tensor, b: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """Solve with the factors of `lu_factor`. Rows are counted from 1."""
    if left:
        return g.lu_solve((lu, g.sub(pivots, 1)), b, "C" if adjoint else "N")
    factors = lu, g.sub(pivots, 1)
    if adjoint:  # x·aᴴ = b is a·xᴴ = bᴴ
        return adjoint_of(g, g.lu_solve(factors, adjoint_of(g, b), "N"))
    return transposed(g, g.lu_solve(factors, transposed(g, b), "T"))  # x·a = b is aᵀ·xᵀ = bᵀ


@aten("lu_unpack")
def lu_unpack(
    g: Graph, lu: Tensor, pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True, *, results: Results
) -> list[Tensor]:
    """Return the permutation matrix and both factors; what is not asked for is empty."""
    found = [g.zeros(r.dims, dtype=r.dtype) for r in results]
    rows, columns = static_size(lu, lu.rank - 2), static_size(lu, lu.rank - 1)
    if unpack_pivots:
        found[0] = _permutation(g, g.sub(pivots, 1), rows, lu)
    if unpack_data:
        least = min(rows, columns)
        lower = g.tril(g.narrow(lu, lu.rank - 1, 0, least), -1)
        found[1:] = [g.add(lower, g.eye(rows, least, dtype=lu.dtype)), g.triu(g.narrow(lu, lu.rank - 2, 0, least))]
    return found


def _permutation(g: Graph, exchanges: Tensor, rows: int, of: Tensor) -> Tensor:
    """Return the matrix p `[…, M, M]` of the exchanges of rows `[…, K]`, with `a = p·l·u`."""
    order = row_order(g, exchanges, rows)
    return g.swapaxes(g.one_hot(order, rows, dtype=of.dtype), -1, -2)


@aten("linalg_pinv")
def pinv(g: Graph, a: Tensor, rcond: float | Tensor, hermitian: bool = False) -> Tensor:
    return g.pinv(a, rcond, hermitian=hermitian)


@aten("linalg_pinv.atol_rtol_float", "linalg_pinv.atol_rtol_tensor")
def pinv_of_tolerances(
    g: Graph,
    a: Tensor,
    *,
    atol: float | Tensor | None = None,
    rtol: float | Tensor | None = None,
    hermitian: bool = False,
) -> Tensor:
    """Return the pseudo-inverse. Singular values up to `max(atol, rtol·largest)` count as zero."""
    if atol is None or 0 in a.shape.dims:
        return g.pinv(a, rtol, hermitian=hermitian)
    if rtol is None:  # the default counts only where atol is zero
        default = max(static_size(a, -1), static_size(a, -2)) * a.dtype.part.eps
        rtol = g.where(g.gt(atol, 0.0), 0.0, default) if isinstance(atol, Tensor) else 0.0 if atol > 0 else default
    largest = g.max(g.abs(g.eigvalsh(a)) if hermitian else g.svdvals(a), axes=-1)
    of_atol = g.div(atol, g.where(g.gt(largest, 0.0), largest, 1.0))
    return g.pinv(a, g.stop_gradient(g.maximum(of_atol, rtol)), hermitian=hermitian)


@aten("cholesky_solve")
def cholesky_solve(g: Graph, b: Tensor, a: Tensor, upper: bool = False) -> Tensor:
    return g.cho_solve((a, not upper), b)


@aten("cholesky_inverse")
def cholesky_inverse(g: Graph, a: Tensor, upper: bool = False) -> Tensor:
    size = static_size(a, a.rank - 1)
    return g.cho_solve((a, not upper), g.expand(g.eye(size, dtype=a.dtype), a.shape.dims))

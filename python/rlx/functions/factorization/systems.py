"""Linear systems: solutions, inverses, and factors that are computed once and used for many right-hand sides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.functions.factorization.operands import (
    adjoint,
    as_columns,
    as_inexact,
    as_system,
    batch_in_columns,
    columns_in_batch,
    conjugated,
    one_batch,
    transposed,
    unit,
)
from rlx.ir.dims.dim import product
from rlx.ir.dtype import i32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike
from rlx.ir.op.results import ChoFactorResult, LUFactorResult
from rlx.ops.factorization.matrices import order_of
from rlx.ops.lift import cast, tensor_like
from rlx.ops.norm import statistics_input
from rlx.ops.surface import helper
from rlx.support.errors import ShapeError
from rlx.support.guards import is_sequence
from rlx.support.short import short_repr


@helper
def solve(builder: Builder, a: TensorLike, b: TensorLike) -> Tensor:
    """NumPy's `linalg.solve`: the solution of `a·x = b`, `a […, N, N]` and `b [N]` or `[…, N, K]`; batches broadcast.

    The solution of a singular system is NaN or infinite.
    """
    a, b = as_system(builder, a, b)
    size, _ = order_of(a.shape, square=True)
    columns = as_columns(builder, b, size, a)
    matrices, right = one_batch(builder, a, columns)
    *batch, _, width = right.shape.dims
    count = product(batch)
    x = builder.batched_dense_solve(
        builder.reshape(matrices, (count, size, size)), builder.reshape(right, (count, size, width))
    )
    return _as_given(builder, builder.reshape(x, right.shape.dims), b)


def _as_given(b: Builder, x: Tensor, right: Tensor) -> Tensor:
    """Return solutions `[…, N, K]` without the axis that a vector as the right-hand side got."""
    return b.squeeze(x, -1) if right.rank == 1 else x


@helper
def inv(b: Builder, a: TensorLike) -> Tensor:
    """NumPy's `linalg.inv`: the inverse of the matrices `[…, N, N]`; NaN or infinite for singular ones."""
    a = as_inexact(b, a)
    size, _ = order_of(a.shape, square=True)
    return solve(b, a, b.broadcast_to(unit(b, size, a), a.shape.dims))


@helper
def solve_triangular(
    builder: Builder,
    a: TensorLike,
    b: TensorLike,
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    *,
    left: bool = True,
) -> Tensor:
    """SciPy's `linalg.solve_triangular`: the solution of `op(a)·x = b` for triangular `a […, N, N]`; batches broadcast.

    The other triangle of `a` is not read. Zeros on the diagonal give infinities or NaN.

    Args:
        builder: The builder.
        a: Triangular matrices.
        b: `[N]` or `[…, N, K]`; without `left` `[N]` or `[…, K, N]`.
        trans: 0 or "N" for `a`, 1 or "T" for its transpose, 2 or "C" for its conjugate transpose.
        lower: Whether `a` is lower triangular.
        unit_diagonal: Whether the diagonal counts as ones and is not read.
        left: Whether to solve `op(a)·x = b`, else `x·op(a) = b`.

    Raises:
        ShapeError: The shapes do not fit together, or `trans` is another value.
    """
    kind = _transposition(trans)
    a, b = as_system(builder, a, b)
    size, _ = order_of(a.shape, square=True)
    right = b if left or b.rank < 2 else transposed(builder, b)
    right = as_columns(builder, right, size, a)
    if not left:  # x·op(a) = b is op(a)ᵀ·xᵀ = bᵀ
        a = conjugated(builder, a) if kind == "C" else a
        kind = "T" if kind == "N" else "N"
    x = _substituted(builder, a, right, kind, lower, unit_diagonal)
    return _as_given(builder, x if left or b.rank < 2 else transposed(builder, x), b)


def _transposition(trans: object) -> str:
    """Return "N", "T" or "C".

    Raises:
        ShapeError: It is not one of SciPy's values.
    """
    names: dict[object, str] = {0: "N", 1: "T", 2: "C", "N": "N", "T": "T", "C": "C"}
    if isinstance(trans, bool) or not isinstance(trans, (int, str)) or trans not in names:
        raise ShapeError(f"trans is 0, 1, 2, 'N', 'T' or 'C', not {short_repr(trans)}")
    return names[trans]


def _substituted(b: Builder, a: Tensor, x: Tensor, kind: str, lower: bool, unit_diagonal: bool) -> Tensor:
    """Return the solution of `op(a)·result = x` for matrices `[…, N, N]` and `[…, N, K]`."""
    if kind != "N":
        a, lower = (adjoint if kind == "C" else transposed)(b, a), not lower
    if a.rank == 2 and x.rank > 2:  # one matrix for all right-hand sides
        columns, batch = batch_in_columns(b, x)
        solved = b.triangular_solve(a, columns, lower=lower, unit_diagonal=unit_diagonal)
        return columns_in_batch(b, solved, batch)
    a, x = one_batch(b, a, x)
    return b.triangular_solve(a, x, lower=lower, unit_diagonal=unit_diagonal)


@helper
def lu_factor(b: Builder, a: TensorLike) -> LUFactorResult:
    """SciPy's `linalg.lu_factor`: both triangular factors of `a […, M, N]` in one matrix, and the exchanged rows.

    `piv […, min(M, N)]` is i32: in step `k`, row `k` was exchanged with row `piv[k]`. A singular matrix has a zero on the
    diagonal of its upper factor.
    """
    packed, pivots, _ = b.lu(as_inexact(b, a))
    return LUFactorResult(packed, pivots)


def lu_factors(b: Builder, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the order of the rows `[…, M]`, `L […, M, K]` and `U […, K, N]` of matrices `[…, M, N]`: `a[order] = L·U`."""
    rows, columns = order_of(a.shape, square=False)
    steps = min(rows, columns)
    packed, _, order = b.lu(a)
    lower = b.tril(b.narrow(packed, -1, 0, steps), -1) + b.eye(rows, steps, dtype=a.dtype)
    return order, lower, b.triu(b.narrow(packed, -2, 0, steps))


@helper
def lu_solve(builder: Builder, lu_and_piv: Sequence[TensorLike], b: TensorLike, trans: int | str = 0) -> Tensor:
    """SciPy's `linalg.lu_solve`: the solution of `op(a)·x = b` by the factors of `lu_factor`; batches broadcast.

    Args:
        builder: The builder.
        lu_and_piv: The pair that `lu_factor` returned for square matrices: `[…, N, N]`, and i32 `[…, N]`.
        b: `[N]` or `[…, N, K]`.
        trans: 0 or "N" for `a`, 1 or "T" for its transpose, 2 or "C" for its conjugate transpose.

    Raises:
        ShapeError: The shapes do not fit together, or `trans` is another value.
    """
    given, piv = _pair(lu_and_piv, "(lu, piv)", "lu_factor")
    lu, b = as_system(builder, given, b)
    size, _ = order_of(lu.shape, square=True)
    piv = tensor_like(builder, piv, i32)
    if piv.shape.dims != lu.shape.dims[:-1] or not piv.dtype.is_integer:
        raise ShapeError(f"expected piv i32{list(lu.shape.dims[:-1])} for lu {lu.shape}, got {piv.shape}")
    right, kind = as_columns(builder, b, size, lu), _transposition(trans)
    order = row_order(builder, cast(builder, piv, i32), size)
    if kind == "N":
        x = _substituted(builder, lu, _reordered(builder, right, order), "N", True, True)
        x = _substituted(builder, lu, x, "N", False, False)
    else:
        x = _substituted(builder, lu, right, kind, False, False)
        x = _substituted(builder, lu, x, kind, True, True)
        x = _reordered(builder, x, builder.argsort(order, axis=-1))
    return _as_given(builder, x, b)


def _pair(value: Any, what: str, source: str) -> tuple[Any, Any]:
    """Return the two members of a pair.

    Raises:
        ShapeError: It is something else, for example a tensor.
    """
    if isinstance(value, Tensor) or not is_sequence(value) or len(value) != 2:
        raise ShapeError(f"expected the pair {what}, got {short_repr(value)}", hint=f"the pair that {source} returned")
    return value[0], value[1]


def row_order(b: Builder, piv: Tensor, size: int) -> Tensor:
    """Return the order of `size` rows `[…, M]` that exchanges `[…, K]` lead to."""
    batch, places = piv.shape.dims[:-1], b.iota((size,), dtype="i32")
    start = b.broadcast_to(places, (*batch, size))
    steps = piv.shape.dims[-1]
    assert type(steps) is int
    if 0 in (size, steps):
        return start
    swaps = b.expand_dims(b.moveaxis(piv, -1, 0), -1)  # [K, …, 1]

    def exchange(order: Tensor, step: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[()]]:
        place, other = step
        is_place, is_other = places == place, places == other
        here = b.sum(b.where(is_place, order, 0), axes=-1, keep_dims=True)
        there = b.sum(b.where(is_other, order, 0), axes=-1, keep_dims=True)
        return b.where(is_place, there, b.where(is_other, here, order)), ()

    return b.scan(exchange, start, (b.narrow(places, 0, 0, steps), swaps))[0]


def _reordered(b: Builder, x: Tensor, order: Tensor) -> Tensor:
    """Return the rows of `x […, N, K]` in the order `[…, N]`; batches broadcast."""
    if order.rank == 1:
        return b.gather(x, order, axis=x.rank - 2)
    order, x = one_batch(b, b.expand_dims(order, -1), x)
    return b.gather_batched(x, b.squeeze(order, -1), axis=x.rank - 2)


@helper
def cho_factor(b: Builder, a: TensorLike, lower: bool = False) -> ChoFactorResult:
    """SciPy's `linalg.cho_factor`: the Cholesky factor of hermitian positive definite `a […, N, N]`, and `lower`.

    Only the triangle of `a` that `lower` selects is read. The other triangle of the factor is 0. The factor of a matrix
    that is not positive definite is NaN.
    """
    return ChoFactorResult(cholesky_factor(b, as_inexact(b, a), not lower), bool(lower))


def cholesky_factor(b: Builder, a: Tensor, upper: bool) -> Tensor:
    """Return the lower factor of the lower triangle, or the upper one of the upper triangle."""
    return adjoint(b, b.cholesky(adjoint(b, a))) if upper else b.cholesky(a)


@helper
def cho_solve(builder: Builder, c_and_lower: Sequence[Any], b: TensorLike) -> Tensor:
    """SciPy's `linalg.cho_solve`: the solution of `a·x = b` by the factor of `cho_factor`; batches broadcast.

    Args:
        builder: The builder.
        c_and_lower: The pair that `cho_factor` returned: the factor `[…, N, N]`, and whether it is the lower one.
        b: `[N]` or `[…, N, K]`.

    Raises:
        ShapeError: The shapes do not fit together.
    """
    given, lower = _pair(c_and_lower, "(c, lower)", "cho_factor")
    if isinstance(lower, Tensor):
        raise ShapeError("lower of the pair (c, lower) is True or False, not a tensor")
    c, b = as_system(builder, given, b)
    size, _ = order_of(c.shape, square=True)
    x = as_columns(builder, b, size, c)
    for kind in ("N", "C") if lower else ("C", "N"):
        x = _substituted(builder, c, x, kind, bool(lower), False)
    return _as_given(builder, x, b)


@helper
def solve_sylvester(builder: Builder, a: TensorLike, b: TensorLike, q: TensorLike) -> Tensor:
    """SciPy's `linalg.solve_sylvester`: the solution of `a·x + x·b = q`; batches broadcast.

    It solves one system of M·N equations, which takes `(M·N)²` elements of memory. The solution is NaN or infinite
    where an eigenvalue of `a` is the negative of one of `b`.

    Args:
        builder: The builder.
        a: `[…, M, M]`.
        b: `[…, N, N]`.
        q: `[…, M, N]`.

    Raises:
        ShapeError: The shapes do not fit together.
    """
    a, q = as_system(builder, a, q)
    b, q = as_system(builder, b, q)
    a = cast(builder, a, q.dtype)
    (rows, _), (columns, _) = order_of(a.shape, square=True), order_of(b.shape, square=True)
    if q.rank < 2 or q.shape.dims[-2:] != (rows, columns):
        raise ShapeError(f"expected q […, {rows}, {columns}] for a {a.shape} and b {b.shape}, got {q.shape}")
    a, b, q = (statistics_input(builder, t) for t in (a, b, q))
    size = rows * columns
    # The elements of x in row order: (a ⊗ I + I ⊗ bᵀ)·x = q.
    of_a = builder.reshape(a, (*a.shape.dims[:-1], 1, rows, 1)) * builder.reshape(
        unit(builder, columns, a), (1, columns, 1, columns)
    )
    bt = transposed(builder, b)
    of_b = builder.reshape(bt, (*bt.shape.dims[:-2], 1, columns, 1, columns)) * builder.reshape(
        unit(builder, rows, b), (rows, 1, rows, 1)
    )
    whole = of_a + of_b
    whole = builder.reshape(whole, (*whole.shape.dims[:-4], size, size))
    x = solve(builder, whole, builder.reshape(q, (*q.shape.dims[:-2], size, 1)))
    return cast(builder, builder.reshape(x, (*x.shape.dims[:-2], rows, columns)), q.dtype)

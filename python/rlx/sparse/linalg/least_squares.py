"""Iterative least squares with SciPy's names, differentiated by the implicit function theorem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import f32, i32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.eager import EAGER
from rlx.ir.promotion import promote
from rlx.ir.shape import Shape
from rlx.ops.lift import tensor_like
from rlx.sparse.computing import located
from rlx.sparse.linalg import krylov
from rlx.sparse.linalg.golub_kahan import Bidiagonal, Limits, lsmr_loop, lsqr_loop
from rlx.sparse.linalg.operators import (
    Operator,
    builder_for,
    count_of,
    guess_of,
    operator_of,
    result_shape,
    size_of,
    tolerance_of,
)
from rlx.sparse.linalg.solvers import Method, iterate, known
from rlx.support.errors import Error, ShapeError


class LsqrResult(NamedTuple):
    """The result of `lsqr`, with SciPy's names. All are estimates of the recurrence, as in SciPy; `var` is zeros."""

    x: Any
    istop: Any
    itn: Any
    r1norm: Any
    r2norm: Any
    anorm: Any
    acond: Any
    arnorm: Any
    xnorm: Any
    var: Any


class LsmrResult(NamedTuple):
    """The result of `lsmr`, with SciPy's names. All are estimates of the recurrence, as in SciPy."""

    x: Any
    istop: Any
    itn: Any
    normr: Any
    normar: Any
    norma: Any
    conda: Any
    normx: Any


@located
def lsqr(
    A: Any,
    b: Any,
    damp: float = 0.0,
    atol: float = 1e-6,
    btol: float = 1e-6,
    conlim: float = 1e8,
    iter_lim: int | None = None,
    x0: Any = None,
) -> LsqrResult:
    """Minimise `‖A·x - b‖² + damp²·‖x - x0‖²` (C. Paige, M. Saunders, 1982).

    Args:
        A: A matrix `[M, N]`, a sparse matrix, or a linear function of a tensor. The domain of a function is shaped like
            `x0`, or without it like `b`.
        b: The right-hand side `[M]`.
        damp: The damping.
        atol: The tolerance of the gradient, relative to `‖A‖·‖r‖`, and the relative error of `A`.
        btol: The relative error of `b`.
        conlim: The largest estimate of the condition number; 0 for no limit.
        iter_lim: The largest number of iterations; by default 2·N.
        x0: The first guess, by default zeros. It has no derivative.

    Returns:
        SciPy's tuple `x, istop, itn, r1norm, r2norm, anorm, acond, arnorm, xnorm, var`. `istop` is 1 for a solution of
        `A·x = b`, 2 for a least-squares solution, 3 beyond `conlim`, 4 to 6 for the same at the precision of the dtype, 7
        at `iter_lim`, 0 if `x0` is the solution, and -1 for numbers that are not finite. Derivatives exist for matrices of
        full rank, or with damping.

    Raises:
        Error: An argument does not fit, or the function `A` has no adjoint.
    """
    limits = Limits(_damp(damp), tolerance_of("atol", atol), tolerance_of("btol", btol), tolerance_of("conlim", conlim))
    g = builder_for(b, A, x0)
    x, numbers = _least_squares(g, A, b, x0, limits, count_of("iter_lim", iter_lim), lsqr_loop, lambda m, n: 2 * n)
    return LsqrResult._make([x, *numbers, g.zeros_like(x)])


@located
def lsmr(
    A: Any,
    b: Any,
    damp: float = 0.0,
    atol: float = 1e-6,
    btol: float = 1e-6,
    conlim: float = 1e8,
    maxiter: int | None = None,
    x0: Any = None,
) -> LsmrResult:
    """Minimise `‖A·x - b‖² + damp²·‖x - x0‖²`, with a gradient that never grows (D. Fong, M. Saunders, 2011).

    Arguments and errors are those of `lsqr`; by default `maxiter` is min(M, N).

    Returns:
        SciPy's tuple `x, istop, itn, normr, normar, norma, conda, normx`, with the `istop` of `lsqr`.
    """
    limits = Limits(_damp(damp), tolerance_of("atol", atol), tolerance_of("btol", btol), tolerance_of("conlim", conlim))
    g = builder_for(b, A, x0)
    least = lambda m, n: min(m, n) if type(m) is int and type(n) is int else n  # noqa: E731
    x, numbers = _least_squares(g, A, b, x0, limits, count_of("maxiter", maxiter), lsmr_loop, least)
    return LsmrResult(x, *numbers)


def _damp(damp: object) -> float:
    return tolerance_of("damp", damp)


def _domain(g: Builder, operator: Operator, b: Tensor, x0: Any) -> Shape:
    """Return the shape of the solution.

    Raises:
        Error: It does not fit `b`.
    """
    if operator.shape is not None:
        rows, columns = operator.shape
        if b.shape.dims != (rows,):
            raise ShapeError(f"b must be a vector [{rows}] to go with A [{rows}, {columns}], got {b.shape}")
        return Shape((columns,), b.dtype)
    domain = Shape(
        b.shape.dims if x0 is None else np.shape(x0) if not isinstance(x0, Tensor) else x0.shape.dims, b.dtype
    )
    result = result_shape(g, operator.apply, domain)
    if result.dims != b.shape.dims:
        hint = "x0= gives the shape of the solution" if x0 is None else None
        raise ShapeError(f"A maps {domain} to {result}; expected the shape of b, {b.shape}", hint=hint)
    return domain


def _least_squares(
    g: Builder,
    matrix: Any,
    side: Any,
    x0: Any,
    limits: Limits,
    most: int | None,
    loop: Callable[..., tuple[Tensor, Tensor, Sequence[Tensor]]],
    default: Callable[[Dim, Dim], Dim],
) -> tuple[Tensor, Sequence[Tensor]]:
    """Return the solution and the other results of a method.

    With at least as many rows as columns, `x` is a root of `Aᴴ·(A·x - b) + damp²·(x - x0)`. With fewer rows the matrix
    `A·Aᴴ` is the one that may have full rank: `x = x0 + Aᴴ·y`, and `y` is a root of `A·x + damp²·y - b`.
    """
    b = tensor_like(g, np.asarray(side) if isinstance(side, (list, tuple)) else side, f32)  # pyright: ignore[reportUnknownArgumentType]
    b = b if b.dtype.is_inexact else g.cast(b, f32)
    rough = operator_of(g, matrix)
    kind = promote(b.dtype.compute, b.dtype.compute if rough.dtype is None else rough.dtype.compute)
    b = b if b.dtype is kind else g.cast(b, kind)
    domain = _domain(g, rough, b, x0)
    operator = operator_of(g, matrix, columns=domain)
    guess = guess_of(g, None if x0 is None and operator.shape is None else x0, domain)
    if guess is not None:
        guess = g.stop_gradient(guess)
    transpose, square = operator.adjoint, limits.damp**2
    if transpose is None or (operator.shape is None and g is EAGER):
        raise Error("a function has no adjoint inside of `with rlx.eager():`", hint="use rlx.jit, or pass a matrix")
    m, n = size_of(b.shape.dims), size_of(domain.dims)
    wide = type(m) is int and type(n) is int and m < n
    bound: Any = default(m, n) if most is None else most
    bound = g.constant(np.array(bound, i32.numpy)) if type(bound) is int else g.emit("dim_size", (), size=(bound,))
    bidiagonal = Bidiagonal(g, operator.apply, transpose, domain, wide)

    def primal() -> list[Tensor]:
        x, y, numbers = loop(bidiagonal, b, guess, limits, bound)
        return [y if wide else x, *numbers]

    def normal(x: Tensor) -> Tensor:
        twice = operator.apply(transpose(x)) if wide else transpose(operator.apply(x))
        return twice + square * x if square else twice

    def residual(x: Tensor) -> Tensor:
        if wide:
            known_part = b if guess is None else b - operator.apply(guess)
            return normal(x) - known_part
        left = transpose(operator.apply(x) - b)
        return left + square * (x if guess is None else x - guess) if square else left

    eps = float(np.finfo(b.dtype.part.numpy).eps)
    rtol = max(0.01 * min(limits.atol, limits.btol), 10.0 * eps)

    def solve(_: Any, c: Any) -> Tensor:
        return known(g, iterate(g, Method(krylov.cg, symmetric=True), normal, None, c[0], None, rtol, 0.0, None), c[0])

    root, *numbers = g.custom_root(residual, primal, solve, symmetric=True)
    if not wide:
        return root, numbers
    x = transpose(root)
    return (x if guess is None else guess + x), numbers

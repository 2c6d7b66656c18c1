"""Iterative solvers of linear systems with SciPy's names, differentiated by the implicit function theorem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import i32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.eager import EAGER
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.lift import tensor_like
from rlx.sparse.computing import located
from rlx.sparse.linalg import gmres as gmres_module
from rlx.sparse.linalg import krylov
from rlx.sparse.linalg.krylov import Cycle, Problem, Solved, restarted
from rlx.sparse.linalg.operators import (
    Operator,
    builder_for,
    count_of,
    guess_of,
    is_finite,
    norm2,
    preconditioner_of,
    size_of,
    system,
    tolerance_of,
)
from rlx.sparse.linalg.results import UnpackedResult
from rlx.support.errors import Error

# The number of iterations that the solves of derivatives may take, even if `maxiter` is less.
_AT_LEAST = 1000


@dataclass(frozen=True)
class SolveResult(UnpackedResult):
    """The result of an iterative solver. It unpacks as SciPy's: `x, info = cg(A, b)`.

    Attributes:
        x: The solution, shaped like `b`.
        info: 0 if the residual is small enough; the number of iterations done without success; less than 0 after a
            breakdown: a division by zero, a number that is not finite, or a singular matrix. i32.
        iterations: The number of iterations done, i32. An iteration of bicgstab has two products with `A`.
        residual_norm: `‖b - A·x‖` of this `x`, computed from it.
        converged: Whether `residual_norm <= max(rtol·‖b‖, atol)`.
    """

    unpacked = ("x", "info")

    x: Any
    info: Any
    iterations: Any
    residual_norm: Any
    converged: Any


@dataclass(frozen=True)
class Method:
    """A method with its limits.

    Attributes:
        cycle: Its cycle.
        symmetric: Whether the operator is its own adjoint.
        default: The limit by default, in multiples of the number of unknowns.
        restart: The iterations in a cycle, if `maxiter` counts cycles.
    """

    cycle: Cycle
    symmetric: bool = False
    default: int = 10
    restart: int | None = None


@located
def cg(
    A: Any, b: Any, x0: Any = None, *, rtol: float = 1e-5, atol: float = 0.0, maxiter: int | None = None, M: Any = None
) -> SolveResult:
    """Solve `A·x = b` by conjugate gradients, for a symmetric (Hermitian) positive definite `A`.

    Args:
        A: A matrix `[N, N]`, a sparse matrix, or a linear function of a tensor shaped like `b`. Floats or complex numbers.
        b: The right-hand side `[N]`; for a function `A` a tensor of any shape.
        x0: The first guess, by default zeros. It has no derivative.
        rtol: The relative tolerance.
        atol: The absolute tolerance.
        maxiter: The largest number of iterations; by default 10·N.
        M: An approximate inverse of `A`, itself symmetric positive definite, in one of the forms of `A`, or an object with
            a method `solve`. It has no derivative.

    Returns:
        A `SolveResult`. It ends when the residual computed from `x` has a norm of at most `max(rtol·‖b‖, atol)`.

    Raises:
        Error: An argument does not fit. Failures to converge are results: see `SolveResult.info`.
    """
    return _solve(Method(krylov.cg, symmetric=True), A, b, x0, rtol, atol, maxiter, M)


@located
def bicgstab(
    A: Any, b: Any, x0: Any = None, *, rtol: float = 1e-5, atol: float = 0.0, maxiter: int | None = None, M: Any = None
) -> SolveResult:
    """Solve `A·x = b` by stabilised biconjugate gradients, for any square `A`.

    Arguments, results and errors are those of `cg`, without a condition on `A` and `M`.
    """
    return _solve(Method(krylov.bicgstab), A, b, x0, rtol, atol, maxiter, M)


@located
def minres(
    A: Any, b: Any, x0: Any = None, *, rtol: float = 1e-5, atol: float = 0.0, maxiter: int | None = None, M: Any = None
) -> SolveResult:
    """Solve `A·x = b` by minimal residuals, for a symmetric (Hermitian) `A`, which may be indefinite or singular.

    Arguments, results and errors are those of `cg`. By default `maxiter` is 5·N. If `A` is singular and the system has no
    solution, `x` has the least residual, and `info` is not 0.
    """
    return _solve(Method(krylov.minres, symmetric=True, default=5), A, b, x0, rtol, atol, maxiter, M)


@located
def gmres(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
    restart: int = 20,
) -> SolveResult:
    """Solve `A·x = b` by generalised minimal residuals, for any square `A`.

    Arguments, results and errors are those of `cg`, without a condition on `A` and `M`.

    Args:
        A: See `cg`.
        b: See `cg`.
        x0: See `cg`.
        rtol: See `cg`.
        atol: See `cg`.
        maxiter: The largest number of restarts, as in SciPy; by default 10·N.
        M: See `cg`.
        restart: The number of iterations after which the method restarts. It keeps this number of vectors.
    """
    steps = count_of("restart", restart, 1)
    assert steps is not None
    return _solve(Method(_gmres_cycle(steps), restart=steps), A, b, x0, rtol, atol, maxiter, M)


def _gmres_cycle(restart: int) -> Cycle:
    def cycle(p: Problem, x: Tensor, r: Tensor, norm: Tensor, k: Tensor) -> Any:
        steps = min(restart, r.size) if type(r.size) is int else restart
        return gmres_module.cycle_of(max(steps, 1))(p, x, r, norm, k)

    return cycle


def _solve(
    method: Method, matrix: Any, side: Any, x0: Any, rtol: float, atol: float, maxiter: int | None, inverse: Any
) -> SolveResult:
    """Return the solution as a root of `A·x - b`. Derivatives use this function alone."""
    relative, absolute, limit = tolerance_of("rtol", rtol), tolerance_of("atol", atol), count_of("maxiter", maxiter)
    g = builder_for(side, matrix, x0, inverse)
    operator, b = system(g, matrix, side, x0)
    guess = guess_of(g, x0, b.shape)
    preconditioner = preconditioner_of(g, inverse, b.shape)
    shape, size = b.shape, size_of(b.shape.dims)

    def applied(x: Tensor) -> Tensor:
        return _in(g, operator.apply(x), shape)

    def primal() -> list[Tensor]:
        s = iterate(g, method, applied, _inverse(g, preconditioner, shape), b, guess, relative, absolute, limit)
        count = g.maximum(s.solved.iterations, 1)
        info = g.where(s.converged, 0, g.where(s.solved.broken, -1, count))
        return [s.solved.x, g.cast(info, i32), s.solved.iterations, s.solved.norm, s.converged]

    def solver(apply: Callable[[Tensor], Tensor], other: Operator | None) -> Callable[[Any, Any], Tensor]:
        def solve(_: Any, c: Any) -> Tensor:
            most = None if limit is None else max(limit, _least_limit(size, method))
            s = iterate(g, method, apply, _inverse(g, other, shape), c[0], None, relative, 0.0, most)
            return known(g, s, c[0])

        return solve

    adjoint = None
    if not method.symmetric and operator.adjoint is not None and g is not EAGER:
        transpose = operator.adjoint
        adjoint = solver(lambda y: _in(g, transpose(y), shape), _adjoint_of(g, preconditioner, shape))
    results = g.custom_root(
        lambda x: applied(x) - b, primal, solver(applied, preconditioner), adjoint, symmetric=method.symmetric
    )
    dtype = tensor_like(g, side, b.dtype).dtype if isinstance(side, Tensor) else b.dtype
    x = results[0] if dtype.compute is dtype or not dtype.is_inexact else g.cast(results[0], dtype)
    return SolveResult(x, *results[1:])


@dataclass(frozen=True)
class Iterated:
    """The result of `iterate`: the last approximation, whether it is good enough, and the norm that is."""

    solved: Solved
    converged: Tensor
    limit: Tensor


def iterate(
    g: Builder,
    method: Method,
    apply: Callable[[Tensor], Tensor],
    precondition: Callable[[Tensor], Tensor] | None,
    b: Tensor,
    x0: Tensor | None,
    rtol: float,
    atol: float,
    maxiter: int | None,
) -> Iterated:
    """Run a method. Right-hand sides whose squares would leave the range of the dtype are scaled."""
    scale = scale_of(g, b)
    side, guess = b / scale, None if x0 is None else x0 / scale
    limit = g.maximum(rtol * norm2(side), atol / scale)
    size = size_of(b.shape.dims)
    bound: Any = method.default * _count(g, size) if maxiter is None else maxiter
    if not isinstance(bound, Tensor):
        bound = g.constant(np.array(min(bound, 2**31 - 2), i32.numpy))
    if method.restart is None:
        problem = Problem(g, apply, precondition, limit, bound)
    else:
        everything = g.constant(np.array(2**31 - 2, i32.numpy))
        problem = Problem(g, apply, precondition, limit, everything, bound)
    solved = restarted(problem, side, guess, method.cycle)
    converged = (solved.norm <= limit) & is_finite(solved.norm)
    return Iterated(
        Solved(solved.x * scale, solved.iterations, solved.norm * scale, solved.broken), converged, limit * scale
    )


def scale_of(g: Builder, b: Tensor) -> Tensor:
    """Return 1, or the largest magnitude if the squares of the elements leave the range of the dtype."""
    if b.size == 0:
        return rules.zeros(g, Shape((), b.dtype.part)) + 1.0
    largest, root = g.max(g.abs(b)), float(np.finfo(b.dtype.part.numpy).max) ** 0.3
    outside = ((largest < 1.0 / root) & (largest > 0.0)) | ((largest > root) & (largest < np.inf))
    return g.where(outside, largest, 1.0)


def known(g: Builder, s: Iterated, c: Tensor) -> Tensor:
    """Return the solution of a derivative's system; NaN if its residual is far from the tolerance."""
    eps = float(np.finfo(c.dtype.part.numpy).eps)
    enough = g.maximum(10.0 * s.limit, eps**0.5 * norm2(c))
    return g.where(s.converged | (s.solved.norm <= enough), s.solved.x, float("nan"))


def _least_limit(size: Dim, method: Method) -> int:
    least = _AT_LEAST if type(size) is not int else min(method.default * size, _AT_LEAST)
    return least if method.restart is None else max(least // method.restart, 1)


def _count(g: Builder, size: Dim) -> Any:
    if type(size) is int:
        return size
    return g.emit("dim_size", (), size=(size,))


def _in(g: Builder, x: Tensor, like: Shape) -> Tensor:
    """Return a result of the operator in the dtype of the solution."""
    if x.shape.dims != like.dims:
        raise Error(f"A maps {like} to {x.shape}; expected a tensor like b")
    return x if x.dtype is like.dtype else g.cast(x, like.dtype)


def _inverse(g: Builder, operator: Operator | None, like: Shape) -> Callable[[Tensor], Tensor] | None:
    return None if operator is None else lambda r: _in(g, operator.apply(r), like)


def _adjoint_of(g: Builder, operator: Operator | None, like: Shape) -> Operator | None:
    """Return the adjoint of a preconditioner; None if it has none, because it is not a linear function of rlx's ops."""
    if operator is None or operator.adjoint is None:
        return None
    try:
        with g.scratchpad():
            g.scratch(operator.adjoint, [like])
    except Error:
        return None
    return Operator(operator.dtype, operator.shape, operator.adjoint, operator.apply)

"""Krylov methods for linear systems, as loops that restart from the true residual until it is small enough."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from rlx.ir.dtype import i32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ops import rules
from rlx.sparse.linalg.operators import Apply, dot, is_finite, norm2, real_dot

# The approximation, the number of iterations so far, the norm of the residual that the recurrence expects, and whether
# the recurrence can go on.
Cycle: TypeAlias = Callable[["Problem", Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor, Tensor]]


@dataclass(frozen=True)
class Problem:
    """A system to solve.

    Attributes:
        g: The builder.
        apply: The operator.
        precondition: The preconditioner; None without one.
        limit: The norm of the residual that is small enough.
        maxiter: The largest number of iterations, i32.
        cycles: The largest number of restarts, i32; None without a limit.
    """

    g: Builder
    apply: Apply
    precondition: Apply | None
    limit: Tensor
    maxiter: Tensor
    cycles: Tensor | None = None


@dataclass(frozen=True)
class Solved:
    """The last approximation, the number of iterations, the norm of its true residual, and whether the method broke down."""

    x: Tensor
    iterations: Tensor
    norm: Tensor
    broken: Tensor


def restarted(p: Problem, side: Tensor, x0: Tensor | None, cycle: Cycle) -> Solved:
    """Run cycles of a method from the true residual until that is small enough.

    A cycle that expects a small residual and leaves more than half of the residual that it started from cannot do more in
    this precision. A cycle that leaves all of it would be repeated. Then the loop ends as well.
    """
    g, eps = p.g, float(np.finfo(side.dtype.part.numpy).eps)
    x = rules.zeros(g, side.shape) if x0 is None else x0
    r = side if x0 is None else side - p.apply(x0)
    zero = g.constant(np.zeros((), i32.numpy))

    def holds(x: Tensor, r: Tensor, norm: Tensor, k: Tensor, cycles: Tensor, broken: Tensor, stuck: Tensor) -> Tensor:
        more = (norm > p.limit) & g.logical_not(broken | stuck) & (k < p.maxiter)
        return more if p.cycles is None else more & (cycles < p.cycles)

    def step(x: Tensor, r: Tensor, norm: Tensor, k: Tensor, cycles: Tensor, *_: Tensor) -> tuple[Tensor, ...]:
        after, k, expected, ok = cycle(p, x, r, norm, k)
        left = side - p.apply(after)
        left_norm = norm2(left)
        usable = is_finite(left_norm)
        enough = g.where(expected <= p.limit, 0.5, 1.0 - 4.0 * eps)
        stuck = g.logical_not(left_norm < enough * norm)
        return (
            g.where(usable, after, x),
            g.where(usable, left, r),
            g.where(usable, left_norm, norm),
            k,
            cycles + 1,
            g.logical_not(ok & usable),
            stuck,
        )

    false = g.constant(np.array(False))
    start = (x, r, norm2(r), zero, zero, false, false)
    x, _, norm, k, _, broken, _ = g.while_(holds, step, *start)
    return Solved(x, k, norm, broken | g.logical_not(is_finite(norm)))


def _goes_on(p: Problem, norm: Tensor, k: Tensor, ok: Tensor) -> Tensor:
    return ok & (norm > p.limit) & (k < p.maxiter)


def cg(p: Problem, x: Tensor, r: Tensor, norm: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Conjugate gradients (M. Hestenes, E. Stiefel, 1952)."""
    g, precondition = p.g, p.precondition
    z = r if precondition is None else precondition(r)
    true = g.constant(np.array(True))

    def holds(x: Tensor, r: Tensor, d: Tensor, rho: Tensor, norm: Tensor, k: Tensor, ok: Tensor) -> Tensor:
        return _goes_on(p, norm, k, ok)

    def step(x: Tensor, r: Tensor, d: Tensor, rho: Tensor, norm: Tensor, k: Tensor, ok: Tensor) -> tuple[Any, ...]:
        q = p.apply(d)
        alpha = rho / real_dot(d, q)
        ok = is_finite(alpha)
        alpha = g.where(ok, alpha, 0.0)
        x, r = x + alpha * d, r - alpha * q
        if precondition is None:
            after = real_dot(r, r)
            d, norm = r + (after / rho) * d, g.sqrt(after)
        else:
            z = precondition(r)
            after = real_dot(r, z)
            d, norm = z + (after / rho) * d, norm2(r)
        return x, r, d, after, norm, k + 1, ok

    rho = norm * norm if precondition is None else real_dot(r, z)
    x, _, _, _, norm, k, ok = g.while_(holds, step, x, r, z, rho, norm, k, true)
    return x, k, norm, ok


def bicgstab(p: Problem, x: Tensor, r: Tensor, norm: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Stabilised biconjugate gradients (H. van der Vorst, 1992), preconditioned from the right.

    A cycle ends when the new direction is nearly orthogonal to the shadow residual; the next one has another.
    """
    g, start, shadow = p.g, k, r
    tiny, size = float(np.finfo(r.dtype.part.numpy).eps), norm
    inverse: Apply = p.precondition or (lambda v: v)

    def holds(x: Tensor, r: Tensor, d: Tensor, rho: Tensor, norm: Tensor, k: Tensor, ok: Tensor) -> Tensor:
        return _goes_on(p, norm, k, ok)

    def step(x: Tensor, r: Tensor, d: Tensor, rho: Tensor, norm: Tensor, k: Tensor, ok: Tensor) -> tuple[Any, ...]:
        direction = inverse(d)
        v = p.apply(direction)
        alpha = rho / dot(shadow, v)
        ok = is_finite(alpha)
        alpha = g.where(ok, alpha, 0.0)
        s = r - alpha * v
        second = inverse(s)
        t = p.apply(second)
        square = real_dot(t, t)
        omega = dot(t, s) / g.where(square > 0.0, square, 1.0)
        omega = g.where(is_finite(omega) & ok, omega, 0.0)
        x, r = x + (alpha * direction + omega * second), s - omega * t
        norm, after = norm2(r), dot(shadow, r)
        beta = (after / rho) * (alpha / omega)
        follows = is_finite(beta) & (g.abs(after) > tiny * norm * size)
        d = r + g.where(follows, beta, 0.0) * (d - omega * v)
        return x, r, d, after, norm, k + 1, ok & follows

    rho = norm * norm
    rho = g.cast(rho, r.dtype) if r.dtype.is_complex else rho
    x, _, _, _, after, k, ok = g.while_(holds, step, x, r, r, rho, norm, k, g.constant(np.array(True)))
    # A cycle that made the residual smaller is restarted.
    return x, k, after, ok | (after < norm) & (k > start)


def minres(p: Problem, x: Tensor, r: Tensor, norm: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Minimal residuals of symmetric systems (C. Paige, M. Saunders, 1975), with the names of their paper.

    The method ends without success if the matrix is singular and the residual is the least.
    """
    g, precondition = p.g, p.precondition
    eps = float(np.finfo(r.dtype.part.numpy).eps)
    y = r if precondition is None else precondition(r)
    square = norm * norm if precondition is None else real_dot(r, y)
    beta = g.sqrt(square)
    zeros, zero = rules.zeros(g, r.shape), rules.zeros(g, norm.shape)

    def holds(*c: Tensor) -> Tensor:
        return _goes_on(p, c[-3], c[-2], c[-1])

    def step(
        x: Tensor, y: Tensor, r1: Tensor, r2: Tensor, w: Tensor, w2: Tensor, res: Tensor,
        oldb: Tensor, beta: Tensor, dbar: Tensor, epsln: Tensor, phibar: Tensor, cs: Tensor, sn: Tensor,
        scale: Tensor, norm: Tensor, k: Tensor, ok: Tensor,
    ) -> tuple[Any, ...]:  # fmt: skip
        v = y * (1.0 / beta)
        y = p.apply(v) - g.where(oldb > 0.0, beta / oldb, 0.0) * r1
        alfa = real_dot(v, y)
        y = y - (alfa / beta) * r2
        r1, r2 = r2, y
        y = r2 if precondition is None else precondition(r2)
        oldb, beta = beta, g.sqrt(real_dot(r2, y))
        scale = scale + alfa * alfa + oldb * oldb + beta * beta
        oldeps, delta, gbar = epsln, cs * dbar + sn * alfa, sn * dbar - cs * alfa
        epsln, dbar = sn * beta, -cs * beta
        gamma = g.sqrt(gbar * gbar + beta * beta)
        # ‖A·r‖ / ‖r‖ of the residual so far: if it vanishes, the residual is the least, and a step would be arbitrary.
        slope = g.sqrt(gbar * gbar + dbar * dbar)
        ok = is_finite(gamma) & (gamma > 10.0 * eps * g.sqrt(scale)) & (slope > eps**0.65 * g.sqrt(scale))
        cs, sn = g.where(ok, gbar / gamma, 0.0), g.where(ok, beta / gamma, 1.0)
        phi, phibar = cs * phibar, sn * phibar
        w2, w = w, g.where(ok, (v - oldeps * w2 - delta * w) / gamma, w)
        x = x + phi * w
        # Without a next vector the residual is the one that the rotation leaves.
        more = ok & (beta > 10.0 * eps * g.sqrt(scale))
        if precondition is None:
            norm = phibar
        else:
            res = sn * sn * res - g.where(more, phibar * cs / beta, 0.0) * r2
            norm = norm2(res)
        return x, y, r1, r2, w, w2, res, oldb, beta, dbar, epsln, phibar, cs, sn, scale, norm, k + 1, more

    res = r if precondition is not None else zero
    start = (x, y, r, r, zeros, zeros, res, zero, beta, zero, zero, beta, zero - 1.0, zero, zero, norm, k)
    results = g.while_(holds, step, *start, is_finite(beta))
    x, after, k, ok = results[0], *results[-3:]
    return x, k, after, ok | (after < 0.5 * norm)

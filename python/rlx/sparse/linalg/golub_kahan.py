"""Golub-Kahan bidiagonalisation and the loops of LSQR and LSMR on it, with the names of the papers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.sparse.linalg.operators import Apply, is_finite, norm2


@dataclass(frozen=True)
class Limits:
    """The damping and the tolerances of a method."""

    damp: float
    atol: float
    btol: float
    conlim: float


@dataclass(frozen=True)
class Bidiagonal:
    """A matrix to bidiagonalise: `A·v = ...`, `Aᴴ·u = ...`.

    Attributes:
        g: The builder.
        apply: The matrix.
        adjoint: Its adjoint.
        domain: The shape of its argument.
        dual: Whether to keep `y` with `x - x0 = Aᴴ·y` too. Each right vector `v` is then kept as `z` with `v = Aᴴ·z`.
    """

    g: Builder
    apply: Apply
    adjoint: Apply
    domain: Shape
    dual: bool

    def unit(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return a vector divided by its norm, and the norm; zeros stay zeros."""
        size = norm2(v)
        return v / self.g.where(size > 0.0, size, 1.0), size

    def start(self, b: Tensor, x0: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return the first vectors `u, v, z` and the numbers `alfa, beta`."""
        u, beta = self.unit(b if x0 is None else b - self.apply(x0))
        v, alfa = self.unit(self.adjoint(u))
        return u, v, self._divided(u, alfa), alfa, beta

    def step(self, u: Tensor, v: Tensor, z: Tensor, alfa: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return the next vectors and numbers."""
        u, beta = self.unit(self.apply(v) - alfa * u)
        v, after = self.unit(self.adjoint(u) - beta * v)
        return u, v, self._divided(u - beta * z, after) if self.dual else z, after, beta

    def _divided(self, u: Tensor, alfa: Tensor) -> Tensor:
        if not self.dual:
            return rules.zeros(self.g, Shape((), u.dtype))
        return u / self.g.where(alfa > 0.0, alfa, 1.0)


def _rotation(g: Builder, a: Tensor, b: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return cosine, sine and length of a rotation that makes `b` zero."""
    length = g.sqrt(a * a + b * b)
    divisor = g.where(length > 0.0, length, 1.0)
    return a / divisor, b / divisor, length


def _stops(
    g: Builder,
    limits: Limits,
    bnorm: Tensor,
    rnorm: Tensor,
    arnorm: Tensor,
    anorm: Tensor,
    acond: Tensor,
    xnorm: Tensor,
) -> Tensor:
    """Return SciPy's reason to stop, 0 to go on."""
    eps = float(np.finfo(rnorm.dtype.numpy).eps)
    test1, test3 = rnorm / bnorm, 1.0 / acond
    product = anorm * rnorm
    test2 = g.where(product > 0.0, arnorm / g.where(product > 0.0, product, 1.0), float("inf"))
    relative = anorm * xnorm / bnorm
    small = test1 / (1.0 + relative)
    ctol = 1.0 / limits.conlim if limits.conlim > 0.0 else 0.0
    reason = g.constant(np.zeros((), np.int32))
    tests = (
        (6, test3 <= eps), (5, test2 <= eps), (4, small <= eps), (3, test3 <= ctol), (2, test2 <= limits.atol),
        (1, test1 <= limits.btol + limits.atol * relative),
    )  # fmt: skip
    for number, holds in tests:
        reason = g.where(holds, number, reason)
    return g.cast(reason, "i32")


def _finished(g: Builder, reason: Tensor, k: Tensor, bound: Tensor, finite: Tensor, begun: Tensor) -> Tensor:
    """Return the final reason: SciPy's 7 at the limit of iterations, 0 without anything to do, -1 for NaN."""
    reason = g.where((reason == 0) & (k >= bound) & begun, 7, reason)
    return g.cast(g.where(finite, reason, -1), "i32")


def _scalars(g: Builder, like: Tensor, *values: float) -> list[Tensor]:
    return [rules.zeros(g, like.shape) + value for value in values]


def lsqr_loop(
    m: Bidiagonal, b: Tensor, x0: Tensor | None, limits: Limits, bound: Tensor
) -> tuple[Tensor, Tensor, Sequence[Tensor]]:
    """Run LSQR. Returns `x`, `y` with `x - x0 = Aᴴ·y`, and `istop, itn, r1norm, r2norm, anorm, acond, arnorm, xnorm`."""
    g, damp = m.g, limits.damp
    u, v, z, alfa, beta = m.start(b, x0)
    bnorm, begun = norm2(b), (alfa * beta) > 0.0
    x = rules.zeros(g, m.domain) if x0 is None else x0
    y = rules.zeros(g, z.shape)
    zero = rules.zeros(g, beta.shape)
    none = g.constant(np.zeros((), np.int32))

    def holds(*c: Tensor) -> Tensor:
        return (c[-1] == 0) & (c[-2] < bound) & begun & is_finite(c[-3])

    def step(
        x: Tensor, u: Tensor, v: Tensor, w: Tensor, y: Tensor, z: Tensor, q: Tensor, alfa: Tensor, rhobar: Tensor,
        phibar: Tensor, ddnorm: Tensor, res2: Tensor, xxnorm: Tensor, zeta: Tensor, cs2: Tensor, sn2: Tensor,
        anorm: Tensor, acond: Tensor, arnorm: Tensor, xnorm: Tensor, r1norm: Tensor, rnorm: Tensor, k: Tensor, _: Tensor,
    ) -> tuple[Any, ...]:  # fmt: skip
        before = alfa
        u, v, z, alfa, beta = m.step(u, v, z, alfa)
        anorm = g.sqrt(anorm * anorm + before * before + beta * beta + damp * damp)
        cs1, sn1, rhobar1 = _rotation(g, rhobar, damp) if damp else (zero + 1.0, zero, rhobar)
        psi, phibar = sn1 * phibar, cs1 * phibar
        cs, sn, rho = _rotation(g, rhobar1, beta)
        theta, rhobar, phi, phibar = sn * alfa, -cs * alfa, cs * phibar, sn * phibar
        size = norm2(w) / rho
        x, w = x + (phi / rho) * w, v - (theta / rho) * w
        y, q = (y + (phi / rho) * q, z - (theta / rho) * q) if m.dual else (y, q)
        ddnorm, res2 = ddnorm + size * size, res2 + psi * psi
        gambar, rhs = -cs2 * rho, phi - sn2 * rho * zeta
        zbar = rhs / gambar
        xnorm = g.sqrt(xxnorm + zbar * zbar)
        cs2, sn2, gamma = _rotation(g, gambar, theta)
        zeta = rhs / gamma
        xxnorm = xxnorm + zeta * zeta
        acond, rnorm = anorm * g.sqrt(ddnorm), g.sqrt(phibar * phibar + res2)
        arnorm = alfa * g.abs(sn * phi)
        first = rnorm * rnorm - damp * damp * xxnorm
        r1norm = g.sign(first) * g.sqrt(g.abs(first))
        reason = _stops(g, limits, bnorm, rnorm, arnorm, anorm, acond, xnorm)
        return (
            x, u, v, w, y, z, q, alfa, rhobar, phibar, ddnorm, res2, xxnorm, zeta, cs2, sn2, anorm, acond, arnorm, xnorm,
            r1norm, rnorm, k + 1, reason,
        )  # fmt: skip

    numbers = (zero, zero, zero, zero, zero - 1.0, zero, zero, zero, alfa * beta, zero, beta, beta)
    start = (x, u, v, v, y, z, z, alfa, alfa, beta, *numbers, none, none)
    r = g.while_(holds, step, *start)
    anorm, acond, arnorm, xnorm, r1norm, rnorm, k, reason = r[-8:]
    istop = _finished(g, reason, k, bound, is_finite(rnorm + alfa * beta), begun)
    return r[0], r[4], (istop, k, r1norm, rnorm, anorm, acond, arnorm, xnorm)


def lsmr_loop(
    m: Bidiagonal, b: Tensor, x0: Tensor | None, limits: Limits, bound: Tensor
) -> tuple[Tensor, Tensor, Sequence[Tensor]]:
    """Run LSMR. Returns `x`, `y` with `x - x0 = Aᴴ·y`, and `istop, itn, normr, normar, norma, conda, normx`."""
    g, damp = m.g, limits.damp
    u, v, z, alpha, beta = m.start(b, x0)
    bnorm, begun = norm2(b), (alpha * beta) > 0.0
    x = rules.zeros(g, m.domain) if x0 is None else x0
    y, none = rules.zeros(g, z.shape), g.constant(np.zeros((), np.int32))

    def holds(*c: Tensor) -> Tensor:
        return (c[-1] == 0) & (c[-2] < bound) & begun & is_finite(c[-3])

    def step(
        x: Tensor, u: Tensor, v: Tensor, h: Tensor, hbar: Tensor, y: Tensor, z: Tensor, q: Tensor, qbar: Tensor,
        alpha: Tensor, zetabar: Tensor, alphabar: Tensor, rho: Tensor, rhobar: Tensor, cbar: Tensor, sbar: Tensor,
        betadd: Tensor, betad: Tensor, rhodold: Tensor, tautilde: Tensor, thetatilde: Tensor, zeta: Tensor, d: Tensor,
        norma2: Tensor, maxrbar: Tensor, minrbar: Tensor, norma: Tensor, conda: Tensor, normar: Tensor, normx: Tensor,
        normr: Tensor, k: Tensor, _: Tensor,
    ) -> tuple[Any, ...]:  # fmt: skip
        u, v, z, alpha, beta = m.step(u, v, z, alpha)
        chat, shat, alphahat = _rotation(g, alphabar, damp)
        rhoold, (c, s, rho) = rho, _rotation(g, alphahat, beta)
        thetanew, alphabar = s * alpha, c * alpha
        rhobarold, zetaold, thetabar, rhotemp = rhobar, zeta, sbar * rho, cbar * rho
        cbar, sbar, rhobar = _rotation(g, rhotemp, thetanew)
        zeta, zetabar = cbar * zetabar, -sbar * zetabar
        turn, far, back = thetabar * rho / (rhoold * rhobarold), zeta / (rho * rhobar), thetanew / rho
        hbar = h - turn * hbar
        x, h = x + far * hbar, v - back * h
        if m.dual:
            qbar = q - turn * qbar
            y, q = y + far * qbar, z - back * q
        acute, check = chat * betadd, -shat * betadd
        betahat, betadd = c * acute, -s * acute
        thetaold = thetatilde
        ctilde, stilde, rhotilde = _rotation(g, rhodold, thetabar)
        thetatilde, rhodold = stilde * rhobar, ctilde * rhobar
        betad, tautilde = ctilde * betahat - stilde * betad, (zetaold - thetaold * tautilde) / rhotilde
        taud = (zeta - thetatilde * tautilde) / rhodold
        d = d + check * check
        normr = g.sqrt(d + (betad - taud) * (betad - taud) + betadd * betadd)
        norma2 = norma2 + beta * beta
        norma, norma2 = g.sqrt(norma2), norma2 + alpha * alpha
        maxrbar, minrbar = g.maximum(maxrbar, rhobarold), g.where(k > 0, g.minimum(minrbar, rhobarold), minrbar)
        conda = g.maximum(maxrbar, rhotemp) / g.minimum(minrbar, rhotemp)
        normar, normx = g.abs(zetabar), norm2(x)
        reason = _stops(g, limits, bnorm, normr, normar, norma, conda, normx)
        return (
            x, u, v, h, hbar, y, z, q, qbar, alpha, zetabar, alphabar, rho, rhobar, cbar, sbar, betadd, betad, rhodold,
            tautilde, thetatilde, zeta, d, norma2, maxrbar, minrbar, norma, conda, normar, normx, normr, k + 1, reason,
        )  # fmt: skip

    zero, one, large = _scalars(g, beta, 0.0, 1.0, float(np.finfo(beta.dtype.numpy).max))
    numbers = (alpha, alpha * beta, alpha, one, one, one, zero, beta, zero, one, zero, zero, zero, zero, alpha * alpha)
    ends = (zero, large, alpha, one, alpha * beta, norm2(x), beta, none, none)
    r = g.while_(holds, step, x, u, v, v, g.zeros_like(v), y, z, z, g.zeros_like(z), *numbers, *ends)
    norma, conda, normar, normx, normr, k, reason = r[-7:]
    istop = _finished(g, reason, k, bound, is_finite(normr + alpha * beta), begun)
    return r[0], r[5], (istop, k, normr, normar, norma, conda, normx)

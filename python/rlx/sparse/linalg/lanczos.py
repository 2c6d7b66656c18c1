"""Lanczos' method with thick restarts, for some eigenvalues of a symmetric (Hermitian) operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.sparse.linalg.operators import Apply, is_finite, norm2
from rlx.sparse.linalg.orthogonal import orthogonalised, random, row, with_row

# Which eigenvalues come first: those with the largest key.
KEYS: dict[str, Callable[[Builder, Tensor], Tensor]] = {
    "LM": lambda g, x: g.abs(x),
    "SM": lambda g, x: -g.abs(x),
    "LA": lambda g, x: x,
    "SA": lambda g, x: -x,
}
# Errors of the projected matrix's eigenvectors, in units of the precision and the norm of the operator.
_ROUNDING = 8.0


@dataclass(frozen=True)
class Spectrum:
    """The wanted part of a spectrum.

    Attributes:
        g: The builder.
        apply: The operator, of vectors `[N]`.
        domain: The shape of these vectors, in the dtype of the computation.
        count: The number of eigenvalues.
        which: The first ones by this key.
        tol: The residual, relative to the eigenvalue, that is small enough. Rounding errors count as zero.
        maxiter: The largest number of restarts.
    """

    g: Builder
    apply: Apply
    domain: Shape
    count: int
    which: str
    tol: float
    maxiter: int

    @property
    def size(self) -> int:
        """The number of rows of the operator."""
        (size,) = self.domain.dims
        assert isinstance(size, int)
        return size

    @property
    def basis(self) -> int:
        """The number of vectors between restarts."""
        return basis_of(self.count)

    @property
    def kept(self) -> int:
        """The number of vectors that a restart keeps."""
        return self.count + (self.basis - self.count) // 3

    @property
    def eps(self) -> float:
        """The precision of the dtype."""
        return float(np.finfo(self.domain.dtype.part.numpy).eps)


@dataclass(frozen=True)
class Pairs:
    """Approximate eigenvalues.

    Attributes:
        values: The eigenvalues `[K]`.
        rows: Their vectors as rows `[K, N]`.
        scale: The norm of the operator.
        iterations: The number of iterations or restarts, i32.
        done: Whether the method has found those that are wanted.
        limits: The norm of a residual that is small enough, of each pair or of all.
    """

    values: Tensor
    rows: Tensor
    scale: Tensor
    iterations: Tensor
    done: Tensor
    limits: Tensor


def basis_of(count: int) -> int:
    """Return the number of vectors between restarts for a number of eigenvalues."""
    return max(2 * count + 20, 32)


def lanczos(p: Spectrum, v0: Tensor | None) -> Pairs:
    """Run Lanczos' method with thick restarts (K. Wu, H. Simon, 2000) and full orthogonalisation.

    A Krylov space has one vector of each eigenspace, so that copies of a multiple eigenvalue may be missing. When the wanted
    vectors have converged, the method goes on with a random vector orthogonal to them. It ends when that has not changed the
    wanted eigenvalues, and the best other one is known well enough.
    """
    g, size = p.g, p.size
    zero = g.constant(np.zeros((), np.int32))
    vectors = rules.zeros(g, Shape((p.basis + 1, size), p.domain.dtype))
    projected = rules.zeros(g, Shape((p.basis, p.basis), p.domain.dtype.part))
    start = _start(g, vectors, v0, zero)
    first = g.max(g.abs(p.apply(start)))
    # Numbers near 1, whose squares are in the range of the dtype.
    unit = g.where(first > 0.0, first, 1.0)
    none = rules.zeros(g, unit.shape)

    def holds(*c: Tensor) -> Tensor:
        *_, cycles, scale, _, done = c
        return g.logical_not(done) & (cycles < p.maxiter) & is_finite(scale)

    def step(
        v: Tensor, t: Tensor, j: Tensor, cycles: Tensor, scale: Tensor, best: Tensor, _: Tensor
    ) -> tuple[Any, ...]:
        v, t, beta = _extended(p, unit, v, t, j, cycles)
        return _restarted(p, v, t, beta, cycles, scale, best)

    state = (with_row(g, vectors, start, zero), projected, zero, zero, none, none - np.inf, g.constant(np.array(False)))
    v, t, _, cycles, scale, _, done = g.while_(holds, step, *state)
    values = g.sum(t * g.eye(p.basis, dtype=t.dtype), axes=-1)[: p.count] * unit
    return Pairs(values, v[: p.count], scale * unit, cycles, done & is_finite(scale), 2.0 * p.tol * g.abs(values))


def _start(g: Builder, vectors: Tensor, v0: Tensor | None, seed: Tensor) -> Tensor:
    """Return the first vector: `v0`, or a random one without it or if it is zero."""
    other = random(g, vectors[0], seed)
    if v0 is None:
        return other / norm2(other)
    largest = g.max(g.abs(v0))
    scaled = g.where(largest > 0.0, v0 / g.where(largest > 0.0, largest, 1.0), other)
    return scaled / norm2(scaled)


def _extended(
    p: Spectrum, unit: Tensor, v: Tensor, t: Tensor, j: Tensor, cycles: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Extend the basis from `j` vectors to all. Returns it, the projected matrix, whose lower triangle counts, and the
    length of the residual, whose direction is the last row.
    """
    g, basis = p.g, p.basis

    def holds(v: Tensor, t: Tensor, j: Tensor, beta: Tensor) -> Tensor:
        return j < basis

    def step(v: Tensor, t: Tensor, j: Tensor, beta: Tensor) -> tuple[Any, ...]:
        h, w, beta = orthogonalised(g, v, p.apply(row(g, v, j)) / unit)
        seed = (cycles + 1) * (basis + 1) + j
        w = g.if_(beta > 0.0, lambda: w, lambda: orthogonalised(g, v, random(g, w, seed))[1])
        # The coefficients are real: the kept vectors are combinations with real factors.
        h = g.real(h) if h.dtype.is_complex else h
        return with_row(g, v, w, j + 1), with_row(g, t, h[:basis], j), j + 1, beta

    v, t, _, beta = g.while_(holds, step, v, t, j, rules.zeros(g, unit.shape))
    return v, t, beta


def _restarted(
    p: Spectrum, v: Tensor, t: Tensor, beta: Tensor, cycles: Tensor, scale: Tensor, best: Tensor
) -> tuple[Tensor, ...]:
    """Return the state after a restart: with the best vectors and the residual, or the wanted and a random vector."""
    g, basis, count, kept = p.g, p.basis, p.count, p.kept
    values, factors = g.eigh(t)
    order = g.argsort(KEYS[p.which](g, values), axis=0, descending=True)
    values, factors = g.gather(values, order, axis=0), g.gather(g.transpose(factors), order, axis=0)
    scale = g.maximum(scale, g.max(g.abs(values)))
    scale = g.where(is_finite(g.sum(values)), scale, float("nan"))
    residuals = g.abs(beta * factors[:, basis - 1])
    limits = g.maximum(p.tol * g.abs(values), _ROUNDING * p.eps * scale)
    keys = KEYS[p.which](g, values)
    quality, gap = g.sum(keys[:count]), keys[count - 1] - keys[count]
    converged = g.all(residuals[:count] <= limits[:count])
    checked = quality <= best + 10.0 * count * g.max(limits[:count])
    done = converged & checked & (residuals[count] <= g.maximum(limits[count], 0.01 * gap))
    check = converged & g.logical_not(checked)

    factors = factors[:kept] if factors.dtype is v.dtype else g.cast(factors[:kept], v.dtype)
    following = g.matmul(factors, v[:basis])
    empty = rules.zeros(g, Shape((basis + 1 - kept, p.size), v.dtype))
    after = with_row(g, g.concat([following, empty], 0), v[basis], g.constant(np.array(kept, np.int32)))

    def with_random() -> Tensor:
        wanted = g.concat(
            [following[:count], g.broadcast_to(rules.zeros(g, Shape((1, 1), v.dtype)), (basis + 1 - count, p.size))], 0
        )
        _, w, _ = orthogonalised(g, wanted, random(g, v[0], (cycles + 1) * (basis + 1)))
        return with_row(g, wanted, w, g.constant(np.array(count, np.int32)))

    after = g.if_(check, with_random, lambda: after)
    number = g.where(check, count, kept)
    number = number if number.dtype.name == "i32" else g.cast(number, "i32")
    remain = g.iota((basis,), dtype="i32") < number
    t = g.eye(basis, dtype=t.dtype) * g.where(remain, values, 0.0)
    return after, t, number, cycles + 1, scale, g.where(check, quality, best), done

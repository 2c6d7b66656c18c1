"""Jacobi rotations that diagonalise columns or a matrix, in rounds of disjoint pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.ir.graph.builder import Builder, Tensor
from rlx.ops.factorization.matrices import adjoint, precision

# The largest number of sweeps. Convergence is quadratic: 5 to 8 sweeps for up to 100 columns.
_MOST_SWEEPS = 30


def rounds(size: int) -> np.ndarray:
    """Return the partner of each index in each round, `[rounds, size]`. All pairs meet once.

    An index without a partner is its own partner. One position is fixed and the others rotate by one per round, as in a
    round-robin tournament.
    """
    places = size + size % 2
    moving = list(range(1, places))
    result = np.tile(np.arange(size, dtype=np.int32), (max(places - 1, 1), 1))
    for round_of in result:
        table = [0, *moving]
        for first, second in zip(table[: places // 2], reversed(table[places // 2 :]), strict=True):
            if max(first, second) < size:
                round_of[first], round_of[second] = second, first
        moving = moving[1:] + moving[:1]
    return result


def tolerance(x: Tensor, size: int) -> float:
    """Return the threshold up to which products of vectors of a size count as zero relative to 1."""
    return precision(x) * max(size, 2) ** 0.5


def orthonormalised(b: Builder, vectors: Tensor) -> Tensor:
    """Return columns that are orthonormal up to rounding, of columns that nearly are: a step of Newton and Schulz.

    The rounding errors of many rotations add up, while the error after this step is the square of the one before.
    """
    product = b.matmul(adjoint(b, vectors), vectors)
    return b.matmul(vectors, 1.5 * b.eye(product.shape.dims[-1], dtype=vectors.dtype) - 0.5 * product)


def scale_of(b: Builder, a: Tensor) -> Tensor:
    """Return the largest magnitude in matrices `[B, M, N]`, as `[B, 1, 1]`. Dividing by it avoids over- and underflow."""
    largest = b.max(b.abs(a), axes=(1, 2), keep_dims=True)
    return b.where(largest == 0.0, 1.0, largest)


def rotation(
    b: Builder, own: Tensor, products: Tensor, partners: Tensor, least: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return cosines and sines for each index, `[B, N]`, and whether there is any rotation.

    `c·x[i] - s·x[partner[i]]` makes the products vanish.

    Args:
        b: The builder that emits the ops.
        own: The diagonal, `[B, N]`, real.
        products: The off-diagonal element of each pair, `[B, N]`.
        partners: `[N]`.
        least: The magnitudes up to which products count as zero, `[B, N]` or `[B, 1]`. Their pairs are not rotated, because
            noise would rotate vectors of nearly equal lengths by any angle.
    """
    places = b.iota((own.shape.dims[1],), dtype="i32")
    shared = 0.5 * (
        products + b.conjugate(b.gather(products, partners, axis=1))
    )  # of the same magnitude for both indices
    length = b.abs(shared)
    turns = b.logical_and(length > least, places != partners)
    tau = (b.gather(own, partners, axis=1) - own) / b.where(turns, 2.0 * length, 1.0)
    size = b.abs(tau)
    # This form of the root does not square a large number.
    largest = b.maximum(size, 1.0)
    root = largest * b.sqrt(b.square(size / largest) + b.square(1.0 / largest))
    first = b.where(places < partners, 1.0, -1.0)
    sign = b.where(tau == 0.0, b.cast(first, tau.dtype), b.sign(tau))
    tangent = b.where(turns, sign / (size + root), 0.0)
    cosine = 1.0 / b.sqrt(1.0 + b.square(tangent))
    return cosine, b.conjugate(shared) * (tangent * cosine / b.where(turns, length, 1.0)), b.any(turns)


def turned(b: Builder, x: Tensor, cosine: Tensor, sine: Tensor, partners: Tensor, axis: int) -> Tensor:
    """Return `x [B, M, N]` with the pairs of columns rotated (axis 2), or those of rows by the adjoint rotation (axis 1)."""
    batch, size = cosine.shape.dims
    dims = (batch, size, 1) if axis == 1 else (batch, 1, size)
    factor = b.conjugate(sine) if axis == 1 else sine
    return x * b.reshape(cosine, dims) - b.gather(x, partners, axis=axis) * b.reshape(factor, dims)


def swept(
    b: Builder, start: tuple[Tensor, ...], step: Callable[[tuple[Tensor, ...], Tensor], Any], size: int
) -> tuple[Tensor, ...]:
    """Sweep over all pairs until a whole sweep changes nothing. Return the last carries.

    Args:
        b: The builder that emits the ops.
        start: The initial carries.
        step: Maps carries and partners `[N]` to the next carries, and whether any pair was rotated.
        size: The number of indices.
    """
    table = b.constant(rounds(size))

    def sweep(count: Tensor, _: Tensor, *carries: Tensor) -> tuple[Tensor, ...]:
        def one(carry: tuple[Tensor, ...], partners: Tensor) -> tuple[tuple[Tensor, ...], tuple[()]]:
            busy, *rest = carry
            following, found = step(tuple(rest), partners)
            return (b.logical_or(busy, found), *following), ()

        (busy, *rest), _ = b.scan(one, (b.constant(False), *carries), table)
        return (count + 1, busy, *rest)

    def goes_on(count: Tensor, busy: Tensor, *_: Tensor) -> Tensor:
        return b.logical_and(busy, count < _MOST_SWEEPS)

    _, _, *last = b.while_(goes_on, sweep, b.constant(0, dtype="i32"), b.constant(True), *start)
    return tuple(last)

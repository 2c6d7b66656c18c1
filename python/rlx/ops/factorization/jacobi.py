"""Rotations of Jacobi's that make columns or a matrix diagonal, in rounds of pairs that do not touch each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.ir.graph.builder import Builder, Tensor

# The largest number of sweeps; convergence is quadratic, and takes 5 to 8 of them up to 100 columns.
_MOST_SWEEPS = 30


def rounds(size: int) -> np.ndarray:
    """`[rounds, size]`: whom each index meets in each round, so that all pairs meet once; itself where it sits out.

    One place is fixed and the others move on by one in each round, as in a tournament.
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


def tolerance(b: Any, x: Tensor, size: int) -> float:
    """What counts as zero beside 1 in the products of vectors of a size."""
    return float(np.finfo(x.dtype.numpy).eps) * max(size, 2) ** 0.5


def scale_of(b: Builder, a: Tensor) -> Tensor:
    """The largest magnitude in matrices `[B, M, N]`, `[B, 1, 1]`; divided by it, no square overflows or vanishes."""
    largest = b.max(b.abs(a), axes=(1, 2), keep_dims=True)
    return b.where(largest == 0.0, 1.0, largest)


def rotation(b: Builder, own: Tensor, products: Tensor, partners: Tensor) -> tuple[Tensor, Tensor]:
    """The cosine and sine that each index `[B, N]` takes, so that `c·x[i] - s·x[partner[i]]` makes the products vanish.

    Args:
        b: Where to emit.
        own: The diagonal, `[B, N]`.
        products: The element outside of the diagonal of each pair, `[B, N]`.
        partners: `[N]`.
    """
    places = b.iota((own.shape.dims[1],), dtype="i32")
    shared = 0.5 * (products + b.gather(products, partners, axis=1))  # the very same for both of a pair
    is_zero = b.logical_or(shared == 0.0, places == partners)
    tau = (b.gather(own, partners, axis=1) - own) / b.where(is_zero, 1.0, 2.0 * shared)
    size = b.abs(tau)
    # The root without the square of a large number.
    largest = b.maximum(size, 1.0)
    root = largest * b.sqrt(b.square(size / largest) + b.square(1.0 / largest))
    first = b.where(places < partners, 1.0, -1.0)
    sign = b.where(tau == 0.0, b.cast(first, tau.dtype), b.sign(tau))
    tangent = b.where(is_zero, 0.0, sign / (size + root))
    cosine = 1.0 / b.sqrt(1.0 + b.square(tangent))
    return cosine, tangent * cosine


def turned(b: Builder, x: Tensor, cosine: Tensor, sine: Tensor, partners: Tensor, axis: int) -> Tensor:
    """`x [B, M, N]` with the pairs along an axis rotated."""
    batch, size = cosine.shape.dims
    dims = (batch, size, 1) if axis == 1 else (batch, 1, size)
    return x * b.reshape(cosine, dims) - b.gather(x, partners, axis=axis) * b.reshape(sine, dims)


def swept(
    b: Builder, start: tuple[Tensor, ...], step: Callable[[tuple[Tensor, ...], Tensor], Any], size: int
) -> tuple[Tensor, ...]:
    """Sweeps over all pairs, until a whole one finds nothing left to do.

    Args:
        b: Where to emit.
        start: The carries.
        step: Of carries and partners `[N]`: the next carries, and whether there was something to do.
        size: The number of indices.
    """
    table = b.constant(rounds(size))

    def sweep(count: Tensor, _: Tensor, *carries: Tensor) -> tuple[Tensor, ...]:
        def one(carry: tuple[Tensor, ...], partners: Tensor) -> Any:
            busy, *rest = carry
            following, found = step(tuple(rest), partners)
            return (b.logical_or(busy, found), *following), ()

        (busy, *rest), _ = b.scan(one, (b.constant(False), *carries), table)
        return (count + 1, busy, *rest)

    def goes_on(count: Tensor, busy: Tensor, *_: Tensor) -> Tensor:
        return b.logical_and(busy, count < _MOST_SWEEPS)

    _, _, *last = b.while_(goes_on, sweep, b.constant(0, dtype="i32"), b.constant(True), *start)
    return tuple(last)

"""The phases of eigenvectors and singular vectors: the element of largest magnitude is positive, and its derivative real."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from rlx.ir.graph.builder import Builder, Tensor


def phases(xp: Builder | ModuleType, a: Tensor | np.ndarray, where: Callable[..., Any]) -> Any:
    """Return the phase of the element with the largest magnitude in each column, `[…, 1, N]`: 1 or -1 in real matrices."""
    kept: dict[str, Any] = {"keepdims": True}
    if not is_complex(a):
        return where(xp.max(a, axis=-2, **kept) + xp.min(a, axis=-2, **kept) >= 0, 1.0, -1.0)
    if isinstance(a, np.ndarray):
        found = np.take_along_axis(a, np.argmax(np.abs(a), axis=-2, keepdims=True), -2)
    else:
        found = xp.sum(where(_largest(a), a, 0.0), axis=-2, **kept)
    length = xp.abs(found)
    return where(length > 0, found / where(length > 0, length, 1.0), 1.0)


def is_complex(a: Tensor | np.ndarray) -> bool:
    """Return whether the elements are complex numbers."""
    return bool(np.iscomplexobj(a)) if isinstance(a, np.ndarray) else a.dtype.is_complex


def _have_phases(vectors: Tensor) -> bool:
    """Return whether vectors are complex and have elements."""
    return vectors.dtype.is_complex and 0 not in vectors.shape.dims[-2:]


def _largest(a: Tensor) -> Tensor:
    """Return which element of each column has the largest magnitude; the first one of equals."""
    b, rows = a.builder, a.shape.dims[-2]
    place = b.argmax(b.stop_gradient(b.abs(a)), -2, keep_dims=True)
    return b.reshape(b.iota((rows,), dtype="i32"), (rows, 1)) == place


def turned_tangents(b: Builder, vectors: Tensor, *pairs: tuple[Tensor, Tensor]) -> list[Tensor]:
    """Return tangents of complex vectors whose phases are those of the columns of `vectors`. Real ones are unchanged.

    Args:
        b: The builder.
        vectors: The vectors that determine the phases, `[…, M, N]`.
        pairs: Vectors and their tangents, for any phases. The first ones are those of `vectors`.
    """
    if not _have_phases(vectors):
        return [tangent for _, tangent in pairs]
    largest = _largest(vectors)
    turn = b.sum(b.where(largest, b.imag(pairs[0][1]), 0.0), axes=-2, keep_dims=True) / _lengths(b, vectors, largest)
    return [tangent - x * b.complex(0.0, turn) for x, tangent in pairs]


def turned_cotangent(
    b: Builder, vectors: Tensor, cotangent: Tensor | None, *pairs: tuple[Tensor, Tensor | None]
) -> Tensor | None:
    """Return the cotangent of `vectors` for any phases: the adjoint of `turned_tangents`.

    Args:
        b: The builder.
        vectors: The vectors that determine the phases.
        cotangent: Their cotangent.
        pairs: Other vectors with the same phases, and their cotangents.
    """
    if not _have_phases(vectors):
        return cotangent
    turns = [
        b.sum(b.imag(b.conjugate(c) * x), axes=-2, keep_dims=True)
        for x, c in ((vectors, cotangent), *pairs)
        if c is not None
    ]
    if not turns:
        return None
    largest = _largest(vectors)
    turn = (turns[0] if len(turns) == 1 else turns[0] + turns[1]) / _lengths(b, vectors, largest)
    added = b.complex(0.0, b.where(largest, turn, 0.0))
    return added if cotangent is None else cotangent + added


def _lengths(b: Builder, vectors: Tensor, largest: Tensor) -> Tensor:
    """Return the magnitudes of the largest elements, `[…, 1, N]`, which are positive."""
    length = b.sum(b.where(largest, b.real(vectors), 0.0), axes=-2, keep_dims=True)
    return b.where(length == 0.0, 1.0, length)

"""Comparison of results with PyTorch's, with the limits of `tests/conformance/tolerance.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import rlx
from rlx.ir.dtype import dtype
from tests.conformance.functions import noise_of
from tests.conformance.tolerance import Comparison, flushed
from tests.peers.opinfo import Peer, Result


def as_dtype(values: np.ndarray, kind: rlx.DType) -> np.ndarray:
    """Return PyTorch's values, rounded once to RLX's dtype."""
    with np.errstate(all="ignore"):
        if values.dtype.kind == "c" and not kind.is_complex:
            values = np.real(values)
        return np.asarray(values.astype(kind.numpy))


def problems(peer: Peer, results: Sequence[np.ndarray], function: Any, factor: float = 1.0) -> list[str]:
    """Return the errors of results."""
    comparison = Comparison(factor=factor * peer.entry.tolerance)
    found = _problems(peer, comparison, results, [None] * len(results))
    if not found:
        return []
    with np.errstate(all="ignore"):
        noise = _noise(function, peer.arrays)
        if peer.formula is not None and any(a.dtype in (np.float64, np.complex128) for a in peer.arrays):
            noise = [np.fmax(*pair) for pair in zip(noise, _noise(peer.formula.function, peer.arrays), strict=True)]
    return _problems(peer, comparison, results, noise)


def _noise(function: Any, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    arrays = [np.ascontiguousarray(a).reshape(a.shape) for a in arrays]
    # With few trials, all may end where none began. With two sizes of noise that is rare.
    return [np.fmax(*pair) for pair in zip(*(noise_of(function, arrays, {}, a) for a in (1.0, 3.0)), strict=True)]


def _problems(peer: Peer, comparison: Comparison, results: Sequence[np.ndarray], noise: Sequence[Any]) -> list[str]:
    found = []
    for i, (got, expected, moved) in enumerate(zip(results, peer.expected, noise, strict=True)):
        problem = _problem(peer, comparison, got, expected, moved)
        if problem:
            found.append(f"result {i} {problem}")
    return found


def _problem(peer: Peer, comparison: Comparison, got: np.ndarray, expected: Result, noise: Any) -> str | None:
    if expected.dtype is rlx.f32 and got.dtype == np.float64:  # PyTorch converts i64 to f32 first, and rounds in f32
        got = as_dtype(got, rlx.f32)
        noise = None if noise is None else noise * (rlx.f32.eps / rlx.f64.eps)
    wanted = as_dtype(expected.values, dtype(got.dtype))
    if got.shape != wanted.shape:
        return f"is {list(got.shape)} instead of {list(wanted.shape)}"
    if peer.entry.finite and dtype(got.dtype).is_inexact:
        with np.errstate(all="ignore"):
            both = np.isfinite(got) & np.isfinite(wanted)
        got, wanted = np.where(both, got, 0).astype(got.dtype), np.where(both, wanted, 0).astype(got.dtype)
    if peer.entry.mixes and noise is not None:
        noise = noise + dtype(wanted.dtype).eps * np.max(np.abs(wanted), initial=0)
    return comparison.mismatch(got, wanted, noise, flushed(np.ascontiguousarray(wanted).reshape(wanted.shape)))

"""Matrices for the tests of `rlx.linalg`, and ways to run its functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import rlx

_RNG = np.random.default_rng(38)


def normal(*shape: int) -> np.ndarray:
    """Return normal numbers."""
    return _RNG.standard_normal(shape)


def positive(*shape: int) -> np.ndarray:
    """Return symmetric positive definite matrices."""
    a = normal(*shape)
    return a @ np.swapaxes(a, -1, -2) + np.eye(shape[-1])


def of_values(values: Any) -> np.ndarray:
    """Return a symmetric matrix with these eigenvalues."""
    q = np.linalg.qr(normal(len(values), len(values)))[0]
    a = q * np.asarray(values) @ q.T
    return (a + a.T) / 2


SQUARE, BATCH, TALL, WIDE = normal(4, 4), normal(2, 3, 3), normal(5, 3), normal(3, 5)
POSITIVE, POSITIVES = positive(4, 4), positive(2, 3, 3)
RANK_2 = normal(5, 2) @ normal(2, 4)
EQUAL = of_values([1.0, 1.0, 2.0, 5.0])  # two equal eigenvalues


def flat(results: Any) -> list[Any]:
    """Return the tensors or arrays among results."""
    if isinstance(results, (tuple, list)):
        return [x for r in results for x in flat(r)]
    return [] if isinstance(results, bool) else [results]


def graph_of(function: Callable[..., Any], *arrays: np.ndarray) -> rlx.Graph:
    """Return the graph of a function of tensors, with the inputs `x0`, `x1` and so on."""
    g = rlx.Graph()
    inputs = [g.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
    g.set_outputs(flat(function(*inputs)))
    return g


def evaluated(function: Callable[..., Any], *arrays: np.ndarray) -> list[np.ndarray]:
    """Return the results of a function of tensors on the evaluator."""
    return rlx.evaluate(graph_of(function, *arrays), {f"x{i}": a for i, a in enumerate(arrays)})


def agree(found: Any, wanted: Any, tolerance: float) -> None:
    """Check results against arrays, relative to the largest element."""
    for ours, theirs in zip(flat(found), flat(wanted), strict=True):
        theirs = np.asarray(theirs)
        assert ours.shape == theirs.shape
        finite = np.abs(theirs[np.isfinite(theirs)]) if theirs.dtype.kind in "fc" else np.zeros(0)
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance * (1 + finite.max(initial=0)))

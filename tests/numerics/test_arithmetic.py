"""Formulas of `rlx.numerics.arithmetic` give the same with every implementation of the protocol."""

from __future__ import annotations

import itertools
import math

import numpy as np

from rlx.numerics.arithmetic import NumpyArithmetic, OperatorSums, sum_error, with_infinite_quotients

EDGES = (0.0, -0.0, 1.0, -2.5, math.inf, -math.inf, math.nan)


def _parts(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.real(z), np.imag(z)


def test_infinite_quotients_are_those_of_c99() -> None:
    """C99, G.5.1: infinite over finite is infinite, finite over infinite is zero, everything else stays as it is."""
    numbers = np.array([complex(x, y) for x, y in itertools.product(EDGES, EDGES)])
    a, b = (n.ravel() for n in np.meshgrid(numbers, numbers))
    usual = np.full(len(a), 7.0), np.full(len(a), 8.0)
    with np.errstate(all="ignore"):
        real, imaginary = with_infinite_quotients(NumpyArithmetic(), _parts(a), _parts(b), usual)
    explodes = np.isinf(a) & np.isfinite(b) & (b != 0)
    vanishes = np.isfinite(a) & np.isinf(b)
    assert (np.isinf(real) | np.isinf(imaginary))[explodes].all()
    assert (real[vanishes] == 0).all() and (imaginary[vanishes] == 0).all()
    others = ~explodes & ~vanishes
    assert (real[others] == 7).all() and (imaginary[others] == 8).all()


def test_a_sum_and_its_error_are_exact() -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.normal(size=1000) * 2.0 ** rng.integers(-40, 40, 1000) for _ in range(2))
    total = a + b
    error = sum_error(OperatorSums(), a, b, total)
    assert np.array_equal(error, [math.fsum([x, y, -t]) for x, y, t in zip(a, b, total, strict=True)])

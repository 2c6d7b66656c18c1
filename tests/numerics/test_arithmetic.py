"""Formulas of `rlx.numerics` over protocols of arithmetic, with NumPy arrays as the implementation."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from rlx.numerics.arithmetic import (
    MAGNITUDES,
    Magnitudes,
    NumpyArithmetic,
    OperatorArithmetic,
    polynomial,
    sum_error,
)
from rlx.numerics.complex_formulas import FORMULAS, hypot, special_powers
from rlx.numerics.division import quotient, with_infinite_quotients

EDGES = (0.0, -0.0, 1.0, -2.5, math.inf, -math.inf, math.nan)


class NumpyReals(NumpyArithmetic):
    """`Functions` of arrays of f32 or f64."""

    def __init__(self, name: str):
        self.magnitudes: Magnitudes = MAGNITUDES[name]

    def size_squared_less_one(self, a: Any, b: Any) -> Any:
        wide, other = a.astype(np.longdouble), b.astype(np.longdouble)
        return np.asarray((wide - 1) * (wide + 1) + other * other).astype(a.dtype)

    def barrier(self, a: Any) -> Any:
        return a

    div: Any = staticmethod(np.divide)
    neg: Any = staticmethod(np.negative)
    max: Any = staticmethod(np.maximum)
    min: Any = staticmethod(np.minimum)
    sqrt: Any = staticmethod(np.sqrt)
    exp: Any = staticmethod(np.exp)
    expm1: Any = staticmethod(np.expm1)
    log: Any = staticmethod(np.log)
    log1p: Any = staticmethod(np.log1p)
    sin: Any = staticmethod(np.sin)
    cos: Any = staticmethod(np.cos)
    tan: Any = staticmethod(np.tan)
    atan2: Any = staticmethod(np.arctan2)


def _parts(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.real(z), np.imag(z)


def _complex(parts: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    z = np.empty(parts[0].shape, np.result_type(parts[0], np.complex64))
    z.real, z.imag = parts
    return z


def _grid(parts: Any) -> np.ndarray:
    """All complex numbers with these parts."""
    column = np.asarray(parts)
    real, imaginary = np.meshgrid(column, column)
    return _complex((real.ravel(), imaginary.ravel()))


def _edges(kind: type) -> np.ndarray:
    limits = np.finfo(kind)
    sizes = [0.0, 1.0, 0.3, 1e-8, 30.0, limits.max, limits.max / 2, limits.tiny, limits.tiny * 1.02, math.inf]
    sizes += [np.sqrt(limits.max), np.sqrt(limits.tiny)]
    return np.array([s * sign for s in sizes for sign in (1, -1)] + [math.nan], kind)


def test_infinite_quotients_are_those_of_c99() -> None:
    """C99, G.5.1: infinite over finite is infinite, finite over infinite is zero, everything else stays as it is."""
    numbers = _grid(EDGES)
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


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_quotients_are_accurate_at_edges(name: str) -> None:
    """Finite numbers other than 0: to 5 ulp of the modulus of the exact quotient, or beyond the range of the dtype."""
    kind = {"f32": np.float32, "f64": np.float64}[name]
    z = _grid(_edges(kind))
    z = z[np.isfinite(z)]
    rng = np.random.default_rng(3)
    a, b = rng.permutation(np.concatenate([z] * 4)), rng.permutation(np.concatenate([z] * 4))
    a, b = a[b != 0], b[b != 0]
    with np.errstate(all="ignore"):
        result = _complex(quotient(NumpyReals(name), _parts(a), _parts(b)))
    limits = np.finfo(kind)
    for x, y, got in zip(a, b, result, strict=True):
        exact = _exact_quotient(x, y)
        modulus = max(abs(part) for part in exact)
        excess = modulus / Fraction(float(limits.max)) - 1
        if abs(excess) < 5 * Fraction(float(limits.eps)):
            continue  # both infinity and a number are correct
        if excess > 0:
            assert not np.isfinite(got), f"{x}/{y} is {got}"
            continue
        error = max(abs(Fraction(float(p)) - q) for p, q in zip((got.real, got.imag), exact, strict=True))
        assert error <= 5 * Fraction(float(limits.eps)) * modulus + Fraction(float(limits.tiny)), f"{x}/{y} is {got}"


def _exact_quotient(x: complex, y: complex) -> tuple[Fraction, Fraction]:
    a, b, c, d = (Fraction(float(part)) for part in (x.real, x.imag, y.real, y.imag))
    under = c * c + d * d
    return (a * c + b * d) / under, (b * c - a * d) / under


@pytest.mark.parametrize("name", ["f32", "f64"])
@pytest.mark.parametrize("kind", ["hypot", *FORMULAS])
def test_functions_of_complex_numbers_are_accurate_at_edges(kind: str, name: str) -> None:
    """To 5 ulp of the modulus of NumPy's result in a wider format, with the same infinities and NaN in each part."""
    part = {"f32": np.float32, "f64": np.float64}[name]
    z = _grid(_edges(part))
    function = getattr(np, "abs" if kind == "hypot" else kind)
    with np.errstate(all="ignore"):
        formula = FORMULAS.get(kind, lambda r, x, y: (hypot(r, x, y), np.zeros_like(x)))
        got = _complex(formula(NumpyReals(name), *_parts(z)))
        wide = np.asarray(function(z.astype(np.complex128 if name == "f32" else np.clongdouble)), np.clongdouble)
        expected = wide.astype(z.dtype)
        limits = np.finfo(part)
        finite = np.isfinite(expected) & np.isfinite(got)
        error = np.where(finite, np.abs(got - expected), 0.0)
        near = error <= 5 * limits.eps * np.abs(np.where(finite, expected, 0)) + 2 * limits.tiny
    same = np.array([np.isnan(p) == np.isnan(q) for p, q in zip(_parts(got), _parts(expected), strict=True)]).all(0)
    same &= np.isinf(got) == np.isinf(expected)
    bad = np.flatnonzero(~(near & same))
    assert not len(bad), f"{kind} of {z[bad[:4]]} is {got[bad[:4]]} instead of {expected[bad[:4]]}"


def test_squares_neither_cancel_nor_overflow_early() -> None:
    a = np.array([3e30 + 3e30j, 1 + (1 + 2**-20) * 1j, 1e38 + 1e-3j, 2 + 1j], np.complex64)
    two = np.full(len(a), 2.0, np.float32), np.zeros(len(a), np.float32)
    with np.errstate(all="ignore"):
        real, imaginary = special_powers(NumpyReals("f32"), _parts(a), two, two)
        exact = a.astype(np.complex128) ** 2
        np.testing.assert_allclose(real, np.real(exact).astype(np.float32), rtol=4e-7)
        np.testing.assert_allclose(imaginary, np.imag(exact).astype(np.float32), rtol=4e-7)


def test_polynomials_start_with_the_constant() -> None:
    assert polynomial(OperatorArithmetic(), 10.0, [1.0, 2.0, 3.0]) == 321.0


def test_a_sum_and_its_error_are_exact() -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.normal(size=1000) * 2.0 ** rng.integers(-40, 40, 1000) for _ in range(2))
    total = a + b
    error = sum_error(OperatorArithmetic(), a, b, total)
    assert np.array_equal(error, [math.fsum([x, y, -t]) for x, y, t in zip(a, b, total, strict=True)])

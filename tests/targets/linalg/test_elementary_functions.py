"""Accuracy and special values of elementary functions, f32 and f64, compiled for this machine and for an older one."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from platform import machine
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.numerics.series import economise
from tests.conformance.compiled import compile_graphs
from tests.drawing import drawn, of_which
from tests.ops.references import of_mpmath
from tests.targets.linalg.helpers import assert_ulps, case, run

_DTYPES = (np.float32, np.float64)
WIDER = {np.float32: np.float64, np.float64: np.longdouble}
_COUNT = 6000
# f64 for a CPU without an instruction for `a*b + c`, and without one for rounding to an integer.
_ARCHS = {np.float32: None, np.float64: "x86-64" if machine() == "x86_64" else None}

# kind -> reference, greatest error in ulp
FUNCTIONS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float]] = {
    "sin": (np.sin, 1.0),
    "cos": (np.cos, 1.0),
    "tan": (np.tan, 2.5),
    "atan": (np.arctan, 1.0),
    "tanh": (np.tanh, 4.5),
    "exp": (np.exp, 4.5),
    "log": (np.log, 1.5),
    "sqrt": (np.sqrt, 0.51),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 2.0),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), 4.0),
    "round": (np.rint, 0.0),
    "floor": (np.floor, 0.0),
    "ceil": (np.ceil, 0.0),
    "exp2": (np.exp2, 1.0),
    "expm1": (np.expm1, 1.5),
    "log2": (np.log2, 1.0),
    "log10": (np.log10, 1.0),
    "log1p": (np.log1p, 1.0),
    "cbrt": (np.cbrt, 1.0),
    "erf": (of_mpmath("erf"), 2.0),
    "erfc": (of_mpmath("erfc"), 2.0),
    "asin": (np.arcsin, 1.7),
    "acos": (np.arccos, 1.5),
    "sinh": (np.sinh, 1.5),
    "cosh": (np.cosh, 1.5),
    "asinh": (np.arcsinh, 1.5),
    "acosh": (np.arccosh, 1.5),
    "atanh": (np.arctanh, 1.5),
}
# Functions that are tested only with non-negative arguments.
_OF_POSITIVE = ("log", "log2", "log10", "sqrt", "rsqrt", "acosh")


def arguments(kind: str, dtype: type) -> np.ndarray:
    """Small, medium and huge numbers of both signs, numbers that are difficult to reduce, and special values."""
    random = np.random.default_rng(7)
    limits = np.finfo(dtype)
    spread = np.exp2(random.uniform(limits.minexp, limits.maxexp - 1, _COUNT))
    near = [random.uniform(-bound, bound, _COUNT) for bound in (1, 10, 100)]
    multiples = np.arange(-200, 200) * (np.pi / 4)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, 1.5, 2.5, -2.5, limits.max, -limits.max, limits.tiny]
    special += [2.0**20, 1e6, 88.72283, -87.3, 709.78, -708.3]
    if dtype is np.float64:
        special += [6381956970095103 * 2.0**797]  # the f64 nearest to a multiple of π/2
    everything = np.concatenate([spread, -spread, *near, multiples, special])
    everything = np.abs(everything) if kind in _OF_POSITIVE else everything
    with np.errstate(over="ignore"):
        return everything.astype(dtype)


@pytest.fixture(scope="module")
def compiled(request) -> dict[tuple[str, type], tuple[np.ndarray, np.ndarray]]:
    """Arguments and results of all functions tested in this run."""
    tests = [
        item.callspec.params
        for item in request.session.items
        if item.path == request.path and hasattr(item, "callspec")
    ]
    found = {}
    for dtype, arch in _ARCHS.items():
        kinds = [kind for kind in FUNCTIONS if {"kind": kind, "dtype": dtype} in tests]
        cases = [case("activation", arguments(kind, dtype), kind=kind) for kind in kinds]
        results = run(cases, arch)
        found |= {(c.attributes["kind"], dtype): (c.arrays[0], r[0]) for c, r in zip(cases, results, strict=True)}
    return found


@drawn("dtype", _DTYPES)
@pytest.mark.parametrize("kind", FUNCTIONS)
def test_every_function_is_accurate_over_its_whole_range(kind, dtype, compiled):
    x, result = compiled[kind, dtype]
    reference, limit = FUNCTIONS[kind]
    with np.errstate(all="ignore"):
        exact = reference(x.astype(WIDER[dtype]))
    assert_ulps(result, exact, limit, x)


# tanh of f32 is the code generator's own.
_ODD_KINDS = ("sin", "tan", "atan", "cbrt", "erf", "asin", "sinh", "asinh", "atanh")
_ODD = [(kind, dtype) for kind in _ODD_KINDS for dtype in _DTYPES] + [("tanh", np.float64)]


@of_which("dtype")
@pytest.mark.parametrize(("kind", "dtype"), _ODD)
def test_odd_functions_are_exactly_odd(kind, dtype, compiled):
    x, result = compiled[kind, dtype]
    both = {float(a): b for a, b in zip(x, result, strict=True) if a == a}
    pairs = [(both[a], both[-a]) for a in both if a > 0 and -a in both]
    assert len(pairs) > _COUNT
    assert all(b == -c or b != b for b, c in pairs)


def test_a_zero_keeps_its_sign():
    cases = [case("activation", np.array([0.0, -0.0], dtype), kind=kind) for kind, dtype in _ODD]
    for one, (result,) in zip(cases, run(cases), strict=True):
        assert list(np.signbit(result)) == [False, True], str(one)


@pytest.mark.parametrize("dtype", _DTYPES)
def test_angles_of_points(dtype):
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, np.finfo(dtype).max, np.finfo(dtype).tiny], dtype)
    y, x = (side.ravel() for side in np.meshgrid(special, special))
    random, limits = np.random.default_rng(5), np.finfo(dtype)
    ranges = [(-60, 60), (limits.minexp, limits.maxexp - 1), (limits.minexp, limits.minexp + 3)]
    sides = [
        np.concatenate([np.exp2(random.uniform(*r, 4000)) * random.choice([-1, 1], 4000) for r in ranges])
        for _ in range(2)
    ]
    small = np.exp2(random.uniform(limits.minexp, limits.minexp + 3, 4000)), np.exp2(random.uniform(-40, 0, 4000))
    with np.errstate(over="ignore"):
        y, x = (
            np.concatenate([a, b.astype(dtype), c.astype(dtype)]) for a, b, c in zip((y, x), sides, small, strict=True)
        )
    ((result,),) = run([case("binary", y, x, kind="atan2")], _ARCHS[dtype])
    exact = np.arctan2(y.astype(WIDER[dtype]), x.astype(WIDER[dtype]))
    assert_ulps(result, exact, 1.0, y, x)
    assert np.array_equal(np.signbit(result)[result == 0], np.signbit(exact)[result == 0])


@drawn("dtype", ["f16", "bf16", "f32", "f64"])
def test_no_function_is_looked_for_in_a_library(dtype: str) -> None:
    """A CPU without instructions for rounding to an integer and for f16 does not need a library."""
    g: Any = rlx.Graph("functions")
    x, y = g.input("x", (40,), dtype), g.input("y", (40,), dtype)
    functions = [g.activation(kind, x) for kind in FUNCTIONS]
    g.set_outputs([*functions, *(g.binary(kind, x, y) for kind in ("pow", "atan2", "rem"))])
    (program,) = compile_graphs([g], level="x86-64")
    assert program.problem is None


# --- erf, through gelu ------------------------------------------------------------------------


def test_gelu_of_f64_has_an_exact_error_function():
    x = np.concatenate([np.linspace(-9, 9, 4001), [np.inf, -np.inf, np.nan, 0.0, -0.0, 40.0, -40.0]])
    x = x.astype(np.float32).astype(np.float64)
    (result,), (narrow,) = run([case("activation", x.astype(d), kind="gelu") for d in (np.float64, np.float32)])
    exact = np.array([0.5 * v * math.erfc(-v / math.sqrt(2)) if v != -np.inf else -0.0 for v in x])
    np.testing.assert_allclose(result, exact, rtol=1e-15, atol=3e-16, equal_nan=True)
    np.testing.assert_array_equal(np.signbit(narrow[x == 0]), np.signbit(x[x == 0]))
    is_finite = np.isfinite(x)
    np.testing.assert_array_equal(narrow[~is_finite], exact.astype(np.float32)[~is_finite])
    error = abs(narrow[is_finite] - exact[is_finite])
    assert (error <= 2e-7 * abs(x[is_finite])).all()


# --- pow --------------------------------------------------------------------------------------

_POWERS = [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, -0.5, 2, -2, 3, -3, 1e10, -1e10, 2.0**53, 0.1, -7.5]


def power_arguments(dtype: type) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(3)
    limits = np.finfo(dtype)
    special = [*_POWERS, limits.max, limits.tiny, 1 + limits.eps, 1 - limits.epsneg]
    grid = np.meshgrid(special, special)
    reach = limits.maxexp / 2.2
    pairs = [
        (grid[0].ravel(), grid[1].ravel()),
        (random.uniform(0.1, 10, _COUNT), random.uniform(-10, 10, _COUNT)),
        (random.uniform(0.9, 1.1, _COUNT), random.uniform(-900, 900, _COUNT)),
        (np.exp2(random.uniform(-reach, reach, _COUNT)), random.uniform(-2.1, 2.1, _COUNT)),
        (-random.uniform(0.1, 10, _COUNT), random.integers(-20, 20, _COUNT).astype(np.float64)),
    ]
    a, b = (np.concatenate(parts).astype(dtype) for parts in zip(*pairs, strict=True))
    return a, b


def test_powers_are_accurate_and_have_the_special_cases_of_c():
    for dtype, arch in _ARCHS.items():
        a, b = power_arguments(dtype)
        ((result,),) = run([case("binary", a, b, kind="pow")], arch)
        wide = WIDER[dtype]
        with np.errstate(all="ignore"):
            exact = np.power(a.astype(wide), b.astype(wide))
        assert_ulps(result, exact, 1.0, a, b)
        zeros = (result == 0) & (np.abs(exact) == 0)
        assert np.array_equal(np.signbit(result[zeros]), np.signbit(exact[zeros]))


# --- series -----------------------------------------------------------------------------------


def test_an_economised_series_is_shorter_and_stays_within_its_tolerance():
    interval = Fraction(-1, 2), Fraction(1)
    coefficients = economise(lambda n: Fraction(1, math.factorial(n)), 30, interval, 1e-6)
    assert len(coefficients) < 10  # Taylor's series needs ten terms
    x = np.linspace(-0.5, 1, 301)
    assert np.abs(np.polynomial.polynomial.polyval(x, coefficients) - np.exp(x)).max() <= 1e-6

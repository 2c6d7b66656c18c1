"""RLX's own elementary functions, and XLA's with known errors, compared with wider NumPy dtypes and the standard library."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlx.targets.stablehlo.elementwise import power
from rlx.targets.stablehlo.error_function import erf
from tests.conformance.tolerance import FUNCTIONS, TOLERANCES
from tests.ops.references import of_mpmath
from tests.targets.linalg.helpers import assert_ulps
from tests.targets.stablehlo.helpers import run

WIDE: dict[Any, Any] = {np.float32: np.float64, np.float64: np.longdouble}
_COUNT = 20_000


def numbers(dtype: Any) -> np.ndarray:
    """Numbers of all magnitudes, of common magnitudes, and near 1."""
    rng = np.random.default_rng(3)
    decades = 37 if dtype is np.float32 else 300
    sizes = 10 ** rng.uniform(-decades, decades, _COUNT) * rng.choice([-1, 1], _COUNT)
    parts = [sizes, rng.uniform(-1, 1, _COUNT), rng.uniform(-100, 100, _COUNT), 1 + rng.uniform(-0.01, 0.01, _COUNT)]
    return np.concatenate(parts).astype(dtype)


@pytest.mark.parametrize("dtype", WIDE)
def test_erf(dtype: Any) -> None:
    x = np.concatenate([numbers(dtype), np.linspace(-7, 7, _COUNT, dtype=dtype)])
    exact = np.vectorize(math.erf, otypes=[np.float64])(x.astype(np.float64))
    assert_ulps(run(erf, x), exact.astype(WIDE[dtype]), 2.01, x)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan], dtype)
    np.testing.assert_array_equal(run(erf, special), [0, 0, 1, -1, np.nan])
    assert np.signbit(run(erf, special))[1]


@pytest.mark.parametrize("dtype", WIDE)
def test_power(dtype: Any) -> None:
    rng = np.random.default_rng(4)
    base = np.abs(numbers(dtype))
    exponent = rng.uniform(-40, 40, base.shape).astype(dtype)
    wide = WIDE[dtype]
    with np.errstate(all="ignore"):
        exact = np.power(base.astype(wide), exponent.astype(wide))
    assert_ulps(run(power, base, exponent), exact, 1, base, exponent)


EXACT: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "atan": np.arctan,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    **{kind: getattr(np, kind) for kind in ("exp2", "expm1", "log2", "log10", "log1p", "cbrt", "sinh", "cosh")},
    **{f"a{kind}": getattr(np, f"arc{kind}") for kind in ("sin", "cos", "sinh", "cosh", "tanh")},
    "erf": of_mpmath("erf"),
    "erfc": of_mpmath("erfc"),
}


@pytest.mark.parametrize("kind", EXACT)
@pytest.mark.parametrize("dtype", WIDE)
def test_errors_are_those_that_the_tolerance_says(kind: str, dtype: Any) -> None:
    import rlx

    x = numbers(dtype)
    g = rlx.Graph("function")
    g.set_outputs([g.activation(kind, g.input("x", rlx.Shape(x.shape, dtype)))])
    (found,) = rlx.Session("xla").compile(g, cache=False).run({"x": x})
    with np.errstate(all="ignore"):
        exact = EXACT[kind](x.astype(WIDE[dtype]))
    name = "f32" if dtype is np.float32 else "f64"
    assert_ulps(found, exact, TOLERANCES[name].ulps * FUNCTIONS["xla"].get(kind, 1.0), x)

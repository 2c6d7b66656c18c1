"""`lgamma`, `digamma` and `erfinv` against SciPy and mpmath, compiled too, and their derivatives against JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.special as special

import rlx
from tests.ops.test_spectral import built

RANDOM = np.random.default_rng(11)
ORDERS = 10.0 ** RANDOM.uniform(-18, 30, 200)
GRID = {
    "lgamma": np.concatenate([ORDERS, RANDOM.uniform(-20, 20, 400), 1 + RANDOM.normal(0, 1e-3, 99)]),
    "digamma": np.concatenate([ORDERS, RANDOM.uniform(-20, 20, 400), 1.4616321449683622 + RANDOM.normal(0, 1e-3, 99)]),
    "erfinv": np.concatenate(
        [
            RANDOM.uniform(-1, 1, 400),
            1 - 10.0 ** RANDOM.uniform(-7, -1, 99),
            1 / (1 + ORDERS[:99]),
            [4e-300, -1e-9, 2e-9],
        ]
    ),
}
EXACT: dict[str, Any] = {
    "lgamma": lambda v: mpmath.log(abs(mpmath.gamma(v))),
    "digamma": mpmath.digamma,
    "erfinv": mpmath.erfinv,
}
SPECIAL = np.array([0.0, -0.0, 1.0, 2.0, -1.0, -3.0, np.inf, np.nan, 0.5, -0.5, 1.5, -1.5], np.float64)
SCIPY: dict[str, Any] = {"lgamma": special.gammaln, "digamma": special.digamma, "erfinv": special.erfinv}
JAX: dict[str, Any] = {
    "lgamma": jax.scipy.special.gammaln,
    "digamma": jax.scipy.special.digamma,
    "erfinv": jax.scipy.special.erfinv,
}


def _exact(name: str, x: np.ndarray) -> np.ndarray:
    with mpmath.workdps(60):
        return np.array([float(EXACT[name](mpmath.mpf(float(v)))) for v in x])


def _units(got: np.ndarray, exact: np.ndarray, dtype: Any) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        error = np.where(got == exact.astype(dtype), 0, np.abs(got.astype(np.float64) - exact))
    size = np.clip(np.abs(exact), np.finfo(dtype).tiny, np.finfo(dtype).max / 2).astype(dtype)
    return error / np.spacing(size)


@pytest.mark.parametrize("device", ["cpu", "xla"])
def test_digits_of_f32(device: str) -> None:
    """At most 2 units in the last place, near the roots and the poles as well."""
    g: Any = rlx.Graph()
    values = {name: x.astype(np.float32) for name, x in GRID.items()}
    g.set_outputs([getattr(g, name)(g.input(name, x.shape)) for name, x in values.items()])
    for got, (name, x) in zip(rlx.Session(device).compile(g).run(values), values.items(), strict=True):
        units = _units(got, _exact(name, x), np.float32)
        assert units.max() <= 2, f"{name}: {units.max():.3g} at {x[units.argmax()]!r}"


@pytest.mark.parametrize("name", GRID)
def test_digits_of_f64(name: str) -> None:
    """At most 4 units in the last place, at roots too; below 0, where there are many, the error near them is absolute."""
    x = GRID[name]
    exact = _exact(name, x)
    got = built(lambda g, v: getattr(g, name)(v), x)[0]
    units = _units(got, exact, np.float64)
    below = (x < 0) & (name != "erfinv")
    assert units[~below].max() <= 4, f"{units.max():.3g} at {x[~below][units[~below].argmax()]!r}"
    got, exact = got[below], exact[below]
    assert (np.abs(got - exact) <= 2e-15 * np.maximum(np.abs(exact), 1)).all()


@pytest.mark.parametrize("name", GRID)
def test_special_values(name: str) -> None:
    for dtype in (np.float32, np.float64, np.float16):
        x = SPECIAL.astype(dtype)
        with np.errstate(all="ignore"):
            expected = SCIPY[name](x.astype(np.float64))
        got = built(lambda g, v: getattr(g, name)(v), np.append(x, -np.inf).astype(dtype))[0]
        assert got[-1] == np.inf if name == "lgamma" else np.isnan(got[-1])
        np.testing.assert_allclose(got[:-1], expected, rtol=2e-3 if dtype == np.float16 else 1e-6)


@pytest.mark.parametrize("name", GRID)
def test_two_derivatives_are_jaxs(name: str) -> None:
    x = np.array(
        [0.1, 0.4, 0.7, -0.3, 0.95] if name == "erfinv" else [0.3, 1.0, 2.5, 7.9, 8.1, 30.0, -0.4, -2.7], np.float64
    )
    g: Any = rlx.Graph()
    g.set_outputs([g.sum(getattr(g, name)(g.input("x", x.shape, dtype="f64")))])
    first = rlx.grad(g, wrt=["x"])
    second: Any = rlx.jvp(first, tangents=["x"])
    with jax.enable_x64(True):
        of = jax.grad(lambda v: JAX[name](v))
        wanted = [jax.vmap(of)(jnp.asarray(x)), jax.vmap(jax.grad(of))(jnp.asarray(x))]
    got = rlx.evaluate(second, {"x": x, "tangent_x": np.ones_like(x)})
    for mine, theirs in zip(got, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9)

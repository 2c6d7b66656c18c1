"""`lgamma`, `digamma` and `erfinv` against SciPy and mpmath, also compiled, and their derivatives against JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.special as special

import rlx
from tests.drawing import drawn
from tests.functions.test_spectral import built

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


# Halves are equally far from two integers.
QUARTERS = np.setdiff1d(np.arange(-80, 20, 0.25), np.arange(-80, 1))


def _exact(name: str, x: np.ndarray) -> np.ndarray:
    with mpmath.workdps(60):
        return np.array([float(EXACT[name](mpmath.mpf(float(v)))) for v in x])


def _units(got: np.ndarray, exact: np.ndarray, dtype: Any) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        error = np.where(got == exact.astype(dtype), 0, np.abs(got.astype(np.float64) - exact))
    size = np.clip(np.abs(exact), np.finfo(dtype).tiny, np.finfo(dtype).max / 2).astype(dtype)
    return error / np.spacing(size)


@drawn("device", ["cpu", "xla"])
def test_digits_of_f32(device: str) -> None:
    """The error is at most 2 ulp, also near the poles and the roots, including those below 0."""
    g: Any = rlx.Graph()
    values = {name: x.astype(np.float32) for name, x in GRID.items()}
    for name in ("lgamma", "digamma"):
        below = _roots_below(name).astype(np.float32)
        values[name] = np.concatenate([values[name], below[below != np.round(below)]])
    g.set_outputs([getattr(g, name)(g.input(name, x.shape)) for name, x in values.items()])
    for got, (name, x) in zip(rlx.Session(device).compile(g).run(values), values.items(), strict=True):
        units = _units(got, _exact(name, x), np.float32)
        assert units.max() <= 2, f"{name}: {units.max():.3g} at {x[units.argmax()]!r}"


def _roots_below(name: str) -> np.ndarray:
    """Return floats next to the roots below 0, found by mpmath: both neighbours, and some at small distances."""
    function = mpmath.digamma if name == "digamma" else lambda v: mpmath.log(abs(mpmath.gamma(v)))
    with mpmath.workdps(60):
        if name == "digamma":
            starts = [
                -n + mpmath.atan2(mpmath.pi, mpmath.log(n + 0.5)) / mpmath.pi
                for n in (1, 2, 7, 40, 64, 65, 66, 99, 12345)
            ]
        else:
            starts = [mpmath.mpf("-2.457"), mpmath.mpf("-2.748"), mpmath.mpf("-3.143"), mpmath.mpf("-3.956")]
            starts += [-n + sign / mpmath.factorial(n) for n in (6, 11, 16) for sign in (-1, 1)]
        roots = np.array([float(mpmath.findroot(function, (v, v + v * mpmath.mpf("1e-12")))) for v in starts])
    return np.concatenate(
        [np.nextafter(roots, 0), np.nextafter(roots, -np.inf), roots * (1 + RANDOM.normal(0, 1e-7, roots.size))]
    )


@drawn("device", ["cpu", "xla"])
def test_digits_of_f64(device: str) -> None:
    """The error is at most 4 ulp, also at the roots, including those below 0; also compiled."""
    g: Any = rlx.Graph()
    values = {
        name: x
        if name == "erfinv"
        else np.concatenate(
            [
                x,
                RANDOM.uniform(-110, 0, 200),
                RANDOM.uniform(-3, 0, 100),
                np.linspace(-2.9, -2.45, 1000),
                QUARTERS,
                _roots_below(name),
            ]
        )
        for name, x in GRID.items()
    }
    g.set_outputs([getattr(g, name)(g.input(name, x.shape, dtype="f64")) for name, x in values.items()])
    exact = {name: _exact(name, x) for name, x in values.items()}
    for outputs in (rlx.evaluate(g, values), rlx.Session(device).compile(g).run(values)):
        for got, (name, x) in zip(outputs, values.items(), strict=True):
            units = _units(got, exact[name], np.float64)
            assert units.max() <= 4, f"{name}: {units.max():.3g} at {x[units.argmax()]!r}"


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
def test_two_derivatives(name: str) -> None:
    """The references are mpmath's polygamma functions and JAX's `erfinv`.

    JAX's second derivative of `gammaln` is wrong below 0.
    """
    below = [-0.3, -0.4, -1.49, -2.55, -2.7, -3.2, -40.3, -80.7]
    x = np.array(
        [0.1, 0.4, 0.7, -0.3, 0.95] if name == "erfinv" else [0.3, 1.0, 2.5, 7.9, 8.1, 30.0, *below], np.float64
    )
    g: Any = rlx.Graph()
    g.set_outputs([g.sum(getattr(g, name)(g.input("x", x.shape, dtype="f64")))])
    first = rlx.grad(g, wrt=["x"])
    second: Any = rlx.jvp(first, tangents=["x"])
    if name == "erfinv":
        with jax.enable_x64(True):
            of = jax.grad(jax.scipy.special.erfinv)
            wanted = [np.asarray(jax.vmap(of)(jnp.asarray(x))), np.asarray(jax.vmap(jax.grad(of))(jnp.asarray(x)))]
    else:
        order = 0 if name == "lgamma" else 1
        wanted = [np.array([float(mpmath.psi(order + k, mpmath.mpf(v))) for v in x]) for k in (0, 1)]
    got = rlx.evaluate(second, {"x": x, "tangent_x": np.ones_like(x)})
    for mine, theirs in zip(got, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9)


@drawn("dtype", [np.float32, np.float64])
def test_derivatives_at_poles_and_infinities(dtype: Any) -> None:
    """The reference is JAX, except that for `lgamma` 0 is a one-sided pole and `digamma` grows ever more slowly to infinity."""
    x = np.array([-3, -1, -0.0, 0.0, np.inf, -2.5], dtype)
    wanted = {"lgamma": [np.nan, np.nan, np.inf, -np.inf, np.inf, None], "digamma": [np.inf] * 4 + [0, None]}
    for name, slopes in wanted.items():
        g: Any = rlx.Graph()
        g.set_outputs([g.sum(getattr(g, name)(g.input("x", x.shape, dtype=rlx.dtype(dtype))))])
        gradient = rlx.grad(g, wrt=["x"])
        of_jax = jax.vmap(jax.grad(getattr(jax.lax, name)))(jnp.asarray(x))
        slopes = np.array([of_jax[i] if s is None else s for i, s in enumerate(slopes)])
        for found in (rlx.evaluate(gradient, {"x": x}), rlx.Session("cpu").compile(gradient).run({"x": x})):
            np.testing.assert_allclose(found[-1], slopes, rtol=1e-5)

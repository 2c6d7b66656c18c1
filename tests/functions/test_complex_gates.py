"""Activations of complex numbers: against formulas in 200 bits, tangents against difference quotients, and compiled."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

import rlx
from tests.drawing import drawn

_NUMBERS = np.array(
    [1 + 2j, -3 + 0.5j, 0, -1 - 1j, 20 + 30j, 1e-3 - 1e-4j, -20 + 3j, 4 - 3j, -0.5 + 3.1j, 200 + 4j, -200 - 4j],
    np.complex64,
)


def _softplus(z: Any) -> Any:
    return mpmath.log(1 + mpmath.exp(z))


_FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "silu": (lambda g, z: g.silu(z), lambda z: z / (1 + mpmath.exp(-z))),
    "glu": (lambda g, z: g.glu(g.stack([z, z], 0), 0)[0], lambda z: z / (1 + mpmath.exp(-z))),
    "softplus": (lambda g, z: g.softplus(z), _softplus),
    "softplus 2": (lambda g, z: g.softplus(z, 2.0), lambda z: _softplus(2 * z) / 2),
    "log_sigmoid": (lambda g, z: g.log_sigmoid(z), lambda z: -_softplus(-z)),
    "logaddexp": (
        lambda g, z: g.logaddexp(z, g.conjugate(z) - 1.0),
        lambda z: mpmath.log(mpmath.exp(z) + mpmath.exp(mpmath.conj(z) - 1)),
    ),
    "mish": (lambda g, z: g.mish(z), lambda z: z * mpmath.tanh(_softplus(z))),
    "soft_sign": (lambda g, z: g.soft_sign(z), lambda z: z / (1 + abs(z))),
    "gelu_approx": (
        lambda g, z: g.gelu_approx(z),
        lambda z: z / 2 * (1 + mpmath.tanh(mpmath.sqrt(2 / mpmath.pi) * (z + mpmath.mpf("0.044715") * z**3))),
    ),
}


def _graph(z: np.ndarray) -> Any:
    g: Any = rlx.Graph("gates")
    x = g.input("z", z.shape, z.dtype)
    g.set_outputs({name: function(g, x) for name, (function, _) in _FUNCTIONS.items()})
    return g


def _exact(name: str, z: np.ndarray) -> np.ndarray:
    with mpmath.workprec(200):
        return np.array([complex(_FUNCTIONS[name][1](mpmath.mpc(complex(v)))) for v in z])


def _is_near(name: str, found: np.ndarray, exact: np.ndarray, tolerance: float) -> None:
    np.testing.assert_allclose(found, exact, rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("kind", ["c64", "c128"])
def test_evaluated(kind: str) -> None:
    z = _NUMBERS.astype(rlx.dtype(kind).numpy)
    for name, found in zip(_FUNCTIONS, rlx.evaluate(_graph(z), {"z": z}), strict=True):
        assert found.dtype == z.dtype
        _is_near(name, found, _exact(name, z), 2e-5 if kind == "c64" else 1e-13)


@drawn("device", ["cpu", "xla"])
def test_compiled(device: str) -> None:
    found = rlx.Session(device).compile(_graph(_NUMBERS)).run({"z": _NUMBERS})
    for name, result in zip(_FUNCTIONS, found, strict=True):
        _is_near(name, np.asarray(result), _exact(name, _NUMBERS), 1e-4)


def test_tangents() -> None:
    z, step, turn = _NUMBERS[3:].astype(np.complex128), 1e-6, complex(math.cos(0.7), math.sin(0.7))
    graph = _graph(z)
    tangent = rlx.jvp(graph, "z")
    given = {a.name: z if a.name == "z" else np.full_like(z, turn) for a in tangent.arguments}
    found = rlx.evaluate(tangent, given)[-len(_FUNCTIONS) :]
    above, below = (rlx.evaluate(graph, {"z": z + d * step * turn}) for d in (1, -1))
    for name, got, high, low in zip(_FUNCTIONS, found, above, below, strict=True):
        _is_near(name, got, (high - low) / (2 * step), 1e-6)

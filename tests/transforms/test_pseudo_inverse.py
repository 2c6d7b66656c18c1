"""Derivatives of the pseudo-inverse with equal or zero singular values compared with JAX."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
from tests.drawing import drawn

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

RANDOM = np.random.default_rng(0)
TURN = np.linalg.qr(RANDOM.standard_normal((4, 4)))[0]
MATRICES = {
    "identity": np.eye(3),
    "exchanged": np.eye(3)[[1, 2, 0]],
    "pairs": TURN @ np.diag([1.0, 1, 2, 2]) @ TURN.T,
    "zeros": np.zeros((3, 3)),
    "rank 1": np.outer([1.0, 2, 3], [1, 1, 1]),
    "tall": RANDOM.standard_normal((5, 3)),
    "wide": RANDOM.standard_normal((2, 4)),
    "batch": RANDOM.standard_normal((2, 3, 3)),
}


@drawn("name", MATRICES, of_each=3)
def test_first_and_second_derivatives_are_jaxs(name: str) -> None:
    a = MATRICES[name]
    weights = RANDOM.standard_normal(np.swapaxes(a, -1, -2).shape)
    g = rlx.Graph("pseudo_inverse")
    g.set_outputs([g.sum(g.pinv(g.input("a", a.shape, "f64")) * weights)])
    _, gradient, product = rlx.evaluate(rlx.hvp(g, "a"), {"a": a, "tangent_a": np.ones_like(a)})
    with jax.enable_x64(True):
        of_a = jax.grad(lambda a: jnp.sum(jnp.linalg.pinv(a) * weights))
        wanted = jax.jvp(of_a, (jnp.asarray(a),), (jnp.ones_like(a),))
    for ours, theirs in zip((gradient, product), wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-10)

"""Derivatives of JAX functions in f16 and bf16, which StableHLO modules compute partly in f32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.dtype import dtype
from tests.drawing import drawn

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax import export  # noqa: E402

from tests.importers.jax_row_slopes import CASES  # noqa: E402
from tests.importers.jax_slopes import POINTS  # noqa: E402

_NAMES = [
    "sigmoid",
    "silu",
    "softplus",
    "log_sigmoid",
    "gelu",
    "gelu_exact",
    "erf",
    "erfc",
    "erf_inv",
    "lgamma",
    "digamma",
    "tanh",
    "relu",
    "elu",
    "mish",
    "expm1",
]
_FINITE = POINTS[(np.abs(POINTS) <= 100) & (np.abs(POINTS) >= 1e-4)]
X = _FINITE[
    (_FINITE > 0) | (np.abs(_FINITE - np.round(_FINITE)) > 0.01)
]  # excludes poles, and values that round to a pole


def _together(*xs: Any) -> list[Any]:
    return [CASES[n].function(x) for n, x in zip(_NAMES, xs, strict=True)]


@drawn("route", ["from_jax", "artifact", "text"], of_each=1)
@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_derivatives_are_those_of_jax_in_f32(route: str, name: str) -> None:
    x = X.astype(dtype(name).numpy)
    args = [x] * len(_NAMES)
    if route == "from_jax":
        g = rlx.from_jax(_together, *args)
    else:
        exported = export.export(jax.jit(_together), platforms=["cpu"])(*args)
        g = rlx.from_stablehlo(exported.mlir_module_serialized if route == "artifact" else exported.mlir_module())
    pulled = rlx.vjp(g, [i.name for i in g.inputs])
    found = rlx.evaluate(pulled, {i.name: x if i in g.inputs else np.ones_like(x) for i in pulled.inputs})
    wide = [jnp.asarray(x, jnp.float32)] * len(_NAMES)
    expected = [a for pair in jax.jvp(_together, wide, [jnp.ones_like(a) for a in wide]) for a in pair]
    for function, got, reference in zip(_NAMES * 2, found, expected, strict=True):
        assert got.dtype == x.dtype, function
        with np.errstate(over="ignore"):
            rounded = np.asarray(reference).astype(x.dtype).astype(np.float64)
        message = f"{function} by {route}"
        np.testing.assert_allclose(got.astype(np.float64), rounded, rtol=0.03, atol=0.02, err_msg=message)

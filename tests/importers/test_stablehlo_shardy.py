"""Output of `jax.export` under a mesh, and serialised functions: imported for one device, else refused by name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.importers.stablehlo.shardy import without_shardings

_X = np.arange(12, dtype=np.float32).reshape(4, 3)
_EXPORT = """
import jax, jax.numpy as jnp, numpy as np, sys
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()).reshape(2, -1), ("rows", "columns"))
spread = NamedSharding(mesh, P("rows", None))
f = jax.jit(lambda x: jax.lax.with_sharding_constraint(jnp.tanh(x), spread) * 2, in_shardings=(spread,), out_shardings=spread)
print(jax.export.export(f)(jax.ShapeDtypeStruct((4, 3), jnp.float32)).mlir_module())
"""


@pytest.fixture(scope="module")
def exported() -> Any:
    import jax
    import jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("rows", "columns"))
    spread = NamedSharding(mesh, PartitionSpec(("rows", "columns"), None))
    whole = NamedSharding(mesh, PartitionSpec())

    def f(x: Any, y: Any) -> Any:
        return jax.lax.with_sharding_constraint(jnp.tanh(x), spread) * jax.lax.with_sharding_constraint(y, whole)

    traced = jax.jit(f, in_shardings=(spread, whole), out_shardings=spread)
    return jax.export.export(traced)(*[jax.ShapeDtypeStruct((4, 3), jnp.float32)] * 2)


def test_shardings_for_one_device_are_dropped(exported: Any) -> None:
    text = exported.mlir_module()
    assert text.count("sdy.sharding_constraint") == 2 and text.count("#sdy.sharding<") == 3  # else vacuous
    graph = rlx.from_stablehlo(text)
    assert "sdy" not in without_shardings(text, "<text>").split("#loc")[0]
    (result,) = rlx.evaluate(graph, dict(zip([a.name for a in graph.arguments], (_X, _X), strict=True)))
    np.testing.assert_allclose(result, np.tanh(_X) * _X, rtol=1e-6)


def test_meshes_of_several_devices_are_refused() -> None:
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    done = subprocess.run(
        [sys.executable, "-c", _EXPORT], capture_output=True, text=True, check=True, env=os.environ | flags
    )
    with pytest.raises(
        rlx.UnsupportedError, match="for 4 devices: its mesh 'mesh' has the axes rows=2, columns=2"
    ) as caught:
        rlx.from_stablehlo(done.stdout)
    assert caught.value.location == "<text>:3:1"


def test_artifacts_with_shardings_name_the_text(exported: Any) -> None:
    with pytest.raises(rlx.ParseError, match=r"for one device import the text"):
        rlx.from_stablehlo(exported.mlir_module_serialized)


def test_serialised_functions_of_jax_are_named(tmp_path: Path) -> None:
    import jax

    exported = jax.export.export(jax.jit(jax.numpy.tanh))(jax.ShapeDtypeStruct((4, 3), np.float32))
    data = bytes(exported.serialize())
    (tmp_path / "function").write_bytes(data)
    for source in (data, tmp_path / "function"):
        with pytest.raises(rlx.ParseError, match="a serialised function of JAX") as caught:
            rlx.from_stablehlo(source)
        assert "exported.mlir_module_serialized" in str(caught.value.hint)
    module = jax.export.deserialize(bytearray(data)).mlir_module_serialized
    (result,) = rlx.evaluate(rlx.from_stablehlo(module), {"x": _X})
    np.testing.assert_allclose(result, np.tanh(_X), rtol=1e-6)

"""Other tools can read portable StableHLO artifacts: JAX through its public interface, and IREE's compiler."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.cli.main import main

Arrays = list[np.ndarray]


def model() -> rlx.Graph:
    """A graph with weights, a state, all kinds of indexing, ordering, windows, narrow and wide dtypes."""
    g = rlx.Graph("model")
    x, i = g.input("x", (2, 3, 8)), g.input("i", (2, 3), "i32")
    steps = g.state("steps", (), "i32", init=3)
    values, indices = g.topk(x @ g.param("w", (8, 5)), 2)
    g.set_outputs(
        {
            "values": values,
            "indices": indices,
            "chosen": g.gather_batched(x, i, axis=1),
            "tan": g.tan(x),
            "softmax": g.softmax(x),
            "gelu": g.gelu(x),
            "sums": g.cumsum(x, -1),
            "half": g.cast(x, "bf16"),
            "positive": x > 0,
            "conv": g.conv(x, g.param("k", (4, 3, 3)), padding=1),
            "bytes": g.cast(i, "u8"),
            "cubes": g.cast(i, "i64") ** 3,
        }
    )
    g.update(steps, steps + 1)
    return g


def arrays_for(graph: rlx.Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    found: dict[str, np.ndarray] = {}
    for a in graph.arguments:
        dims = a.shape.static
        if a.kind == "state":
            found[a.name] = np.full(dims, a.init, a.shape.dtype.numpy)
        elif a.shape.dtype.is_float:
            found[a.name] = rng.standard_normal(dims).astype(a.shape.dtype.numpy)
        else:
            found[a.name] = rng.integers(-2, 5, dims).astype(a.shape.dtype.numpy)
    return found


def by_jax(program: bytes, graph: rlx.Graph, arrays: Sequence[np.ndarray]) -> Arrays:
    """The results of JAX for an exported function whose module is the program."""
    import jax
    import jax.export

    with jax.enable_x64(True):
        shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arrays]
        results = [(o.shape.static, o.shape.dtype.numpy) for o in graph.results]
        template = jax.jit(lambda *_: tuple(jax.numpy.zeros(*r) for r in results))
        exported = dataclasses.replace(
            jax.export.export(template, platforms=["cpu"])(*shapes),
            fun_name="rlx",
            mlir_module_serialized=program,
            module_kept_var_idx=tuple(range(len(arrays))),
        )
        return [np.asarray(result) for result in exported.call(*arrays)]


def by_iree(program: bytes, graph: rlx.Graph, arrays: Sequence[np.ndarray]) -> Arrays:
    """The results of the program after compiling it with IREE's own compiler."""
    import iree.compiler
    import iree.runtime

    flags = ["--iree-llvmcpu-target-cpu=host", "--iree-input-demote-i64-to-i32=false"]
    module = iree.compiler.compile_str(program, target_backends=["llvm-cpu"], input_type="auto", extra_args=flags)
    assert module is not None
    loaded: Any = iree.runtime.load_vm_flatbuffer(module, driver="local-sync")
    return [result.to_host().copy() for result in loaded.main(*arrays)]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file that the command writes for the model."""
    folder = tmp_path_factory.mktemp("portable")
    (folder / "model.mlir").write_text(str(model()))
    out = folder / "model.mlirbc"
    command = ["compile", str(folder / "model.mlir"), "--target=stablehlo", "--no-cache", "-o", str(out)]
    assert main(command) == 0
    return Path(out).read_bytes()


@pytest.mark.parametrize("read", [by_jax, by_iree])
def test_others_read_it(written: bytes, read: Callable[..., Any]) -> None:
    graph = model()
    arrays = arrays_for(graph)
    assert written.startswith(b"ML\xefR\rStableHLO_v")
    results = read(written, graph, list(arrays.values()))
    assert len(results) == len(graph.results)
    expected = [*rlx.evaluate(graph, arrays), np.int32(4)]  # the update of the state comes last
    for output, result, wanted in zip(graph.results, results, expected, strict=True):
        assert result.dtype == wanted.dtype, output.name
        if output.shape.dtype.name == "f32":
            # IREE's own f32 tangent is accurate to only 1e-5.
            np.testing.assert_allclose(result, wanted, rtol=2e-5, atol=1e-6, err_msg=output.name)
        else:
            np.testing.assert_array_equal(result, wanted, err_msg=output.name)

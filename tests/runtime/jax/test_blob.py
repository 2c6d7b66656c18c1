"""`JaxGraph.export` and `--emit=jax`: blobs called and differentiated without RLX, compared with the evaluator."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.cli.main import main
from tests.targets.xla.test_portable import arrays_for, model

jax = pytest.importorskip("jax")

# Does not import RLX. It reads a folder of blobs and arrays, and writes results.
CALLER = """
import json, sys
import jax, numpy as np
assert "rlx" not in sys.modules
jax.config.update("jax_enable_x64", True)
(folder,) = sys.argv[1:]
arrays = dict(np.load(f"{folder}/arrays.npz"))
for name, (inputs, groups) in json.load(open(f"{folder}/calls.json")).items():
    call = jax.export.deserialize(bytearray(open(f"{folder}/{name}", "rb").read())).call
    named = {group: {n: arrays[n] for n in names} for group, names in groups.items()}
    if name == "loss.jax":
        grads = jax.grad(lambda params: call(*(arrays[n] for n in inputs), params=params)[0])(named["params"])
        results = [grads[n] for n in groups["params"]]
    else:
        found = call(*(arrays[n] for n in inputs), **named)
        results = [*found[0], *found[1].values()] if groups.get("states") else found
    results = [np.asarray(r) for r in results]
    np.savez(f"{folder}/{name}.npz", *[r.astype("f4") if r.dtype.kind == "V" else r for r in results])
assert "rlx" not in sys.modules
"""


def loss() -> rlx.Graph:
    g = rlx.Graph("loss")
    x, w, b = g.input("v", (5, 8)), g.param("a", (8, 3)), g.param("b", (3,))
    g.set_outputs([g.mean(g.gelu(g.layer_norm(x, g.constant(np.ones(8, np.float32)), None) @ w + b) ** 2)])
    return g


def save(path: Path, arrays: dict[str, Any]) -> None:
    np.savez(path, **arrays)


def test_blobs_run_where_there_is_no_rlx(tmp_path: Path) -> None:
    graph, differentiated = model(), loss()
    arrays = arrays_for(graph) | arrays_for(differentiated)
    (tmp_path / "model.mlir").write_text(str(graph))
    save(tmp_path / "params.npz", {n: arrays[n] for n in ("w", "k")})
    with jax.enable_x64(True):  # otherwise JAX has no i64, and to_jax reports that
        function = graph.to_jax()
    function.export(tmp_path / "arguments.jax")
    function.export(tmp_path / "partly.jax", params={"k": arrays["k"]}, platforms="cpu")
    differentiated.to_jax().export(tmp_path / "loss.jax", vjp_order=1)
    command = ["compile", str(tmp_path / "model.mlir"), "--target=stablehlo", "--emit=jax", "--stablehlo-version=1.8.0"]
    assert main([*command, f"--params={tmp_path / 'params.npz'}", "-o", str(tmp_path / "command.jax")]) == 0

    calls = {
        "arguments.jax": (["x", "i"], {"params": ["w", "k"], "states": ["steps"]}),
        "partly.jax": (["x", "i"], {"params": ["w"], "states": ["steps"]}),
        "command.jax": (["x", "i"], {"states": ["steps"]}),
        "loss.jax": (["v"], {"params": ["a", "b"]}),
    }
    (tmp_path / "calls.json").write_text(json.dumps(calls))
    save(tmp_path / "arrays.npz", arrays)
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", CALLER, str(tmp_path)], check=True, timeout=240, env=environment)

    for name in calls:
        if name == "loss.jax":
            derived = rlx.grad(differentiated, ["a", "b"])
            expected = rlx.evaluate(derived, {n: arrays[n] for n in "vab"})
        else:
            given = {a.name: arrays[a.name] for a in graph.arguments}
            expected = [*rlx.evaluate(graph, given), arrays["steps"] + 1]
        found = list(np.load(tmp_path / f"{name}.npz").values())
        for e, r in zip(expected, found, strict=True):
            if r.dtype.kind in "iub":
                np.testing.assert_array_equal(r, e)
            else:
                np.testing.assert_allclose(r, np.asarray(e, r.dtype), rtol=2e-4, atol=2e-5, err_msg=name)


def symbolic() -> rlx.Graph:
    g = rlx.Graph("s")
    g.set_outputs([g.tan(g.input("x", ("n", 3)) @ g.param("w", (3, 2)))])
    return g


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "the size of n is a symbol"),
        ({"bind": {"m": 3}}, "no symbol m"),
        ({"bind": {"n": 3}, "params": {"v": 1}}, "there is no parameter 'v'"),
        ({"bind": {"n": 3}, "params": {"w": np.ones((3, 3), np.float32)}}, "param 'w' must be"),
        ({"bind": {"n": 3}, "params": 3}, "must be a mapping or a path"),
        ({"bind": {"n": 3}, "platforms": ["cpu", "tup"]}, "did you mean 'tpu'"),
        ({"bind": {"n": 3}, "platforms": ()}, "platforms must be names"),
        ({"bind": {"n": 3}, "vjp_order": -1}, "vjp_order must be"),
        ({"bind": {"n": 3}, "stablehlo_version": "7.0.0"}, "the versions 0.9.0 to"),
        ({"bind": {"n": 3}, "stablehlo_version": "1.3.0"}, "StableHLO 1.3.0 has no op 'tan'"),
    ],
)
def test_what_cannot_be_exported_is_said_before_a_file_is_written(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(rlx.Error, match=message):
        symbolic().to_jax().export(tmp_path / "s.jax", **options)
    assert not list(tmp_path.iterdir())


def test_sizes_are_bound(tmp_path: Path) -> None:
    data = symbolic().to_jax().export(bind={"n": 2}, params={"w": np.full((3, 2), 0.1, np.float32)})
    (result,) = jax.export.deserialize(bytearray(data)).call(np.ones((2, 3), np.float32))
    np.testing.assert_allclose(result, np.tan(np.full((2, 2), 0.3)), rtol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target=cpu", "--emit=jax"], "target cpu has no such form"),
        (["--target=stablehlo", "--stablehlo-version=9.0.0"], "0.9.0 to 1"),
        (["--target=stablehlo", "--stablehlo-version=one"], "0.9.0 to 1"),
        (["--target=xla", "--stablehlo-version=1.4.0"], "writes no file of StableHLO"),
        (["--target=stablehlo", "--bind=n=2", "--stablehlo-version=1.0.0"], "s.mlir.*StableHLO 1.0.0 has no op 'tan'"),
        (["--target=stablehlo", "--emit=jax"], "the size of n is a symbol"),
    ],
)
def test_wrong_commands(arguments: list[str], message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s.mlir").write_text(str(symbolic()))
    output = tmp_path / "out"
    assert main(["compile", str(tmp_path / "s.mlir"), *arguments, "-o", str(output)]) == 1
    error = capfd.readouterr().err
    assert error.startswith("rlx: error: ") and not output.exists()
    assert re.search(message, error), error


def test_an_older_version_is_in_the_file(tmp_path: Path) -> None:
    g = rlx.Graph("old")
    g.set_outputs([g.tanh(g.input("x", (2, 3)))])
    (tmp_path / "old.mlir").write_text(str(g))
    for version in ("0.9.0", "1.0.0", "1.10.0"):
        path = tmp_path / f"{version}.mlirbc"
        command = ["compile", str(tmp_path / "old.mlir"), "--target=stablehlo", f"--stablehlo-version={version}"]
        assert main([*command, "-o", str(path)]) == 0
        data = path.read_bytes()
        assert f"StableHLO_v{version}".encode() in data
        x = np.ones((2, 3), np.float32)
        np.testing.assert_allclose(rlx.evaluate(rlx.from_stablehlo(data), {"x": x})[0], np.tanh(x), rtol=1e-6)

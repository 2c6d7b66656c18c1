"""Training and calls of sharded graphs on eight virtual devices and in two processes, compared with one device."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from examples import distributed_training as example
from rlx.cli import opt
from rlx.cli.main import main
from rlx.targets.compilation import Compilation
from rlx.targets.registry import target_of
from rlx.train import AdamW, JaxStep, TrainStep
from rlx.train.options import TrainingOptions
from rlx.train.program import training_graph
from tests.train import eight_devices, mlp

jax = pytest.importorskip("jax")

SECONDS = 240


def environment(devices: int) -> dict[str, str]:
    flags = f"--xla_force_host_platform_device_count={devices}"
    return os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def small() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("LENGTH", "WIDTH", "HIDDEN", "LAYERS"):
            patch.setattr(example, name, getattr(example, name))  # so that it is restored
        eight_devices.make_small()
        yield None


@pytest.fixture(scope="module")
def expected(small: None) -> tuple[list[float], dict[str, np.ndarray]]:
    """Return losses and the last state, by the evaluator."""
    graph = example.model(None, eight_devices.BATCH)
    step = training_graph(graph, AdamW(1e-2), TrainingOptions(ema=eight_devices.EMA, clip_norm=1.0)).graph
    state = JaxStep(graph, AdamW(1e-2), ema=eight_devices.EMA, clip_norm=1.0).init(example.first_params(graph))
    values = {n: np.asarray(a) for n, a in state.items()}
    following = step.clone()  # with the next states as outputs, so that the evaluator returns them too
    returned = following.function.entry_block.operations[-1].operands
    following.set_outputs({f"result{i}": rlx.Tensor(following, v) for i, v in enumerate(returned)})
    losses = []
    for batch in eight_devices.batches():
        results = rlx.evaluate(following, batch | values)
        losses.append(float(results[0]))
        values |= {o.updates: r for o, r in zip(step.results, results, strict=False) if o.updates is not None}
    return losses, values


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, small: None) -> Path:
    """Return the results of eight devices."""
    path = tmp_path_factory.mktemp("eight")
    (path / "layers.mlir").write_text(str(eight_devices.layers()))
    for output, more in (("layers.mlirbc", []), ("layers.txt", ["--emit=stablehlo"])):
        assert main(["compile", str(path / "layers.mlir"), "--target=stablehlo", *more, "-o", str(path / output)]) == 0
    passes = Compilation(eight_devices.layers(), target_of("stablehlo")).pipeline_text
    passes = passes.replace("shardings=text", "shardings=sdy")
    assert opt.main([str(path / "layers.mlir"), f"--pass-pipeline={passes}", "-o", str(path / "layers.sdy")]) == 0
    command = [sys.executable, "-m", "tests.train.eight_devices", str(path)]
    subprocess.run(command, check=True, timeout=SECONDS, env=environment(8))
    return path


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "found.json").read_text())


@pytest.fixture(scope="module")
def arrays(folder: Path) -> dict[str, np.ndarray]:
    return dict(np.load(folder / "arrays.npz"))


@pytest.mark.parametrize("mesh", eight_devices.MESHES)
def test_steps_are_those_of_one_device(mesh: str, found: Any, arrays: Any, expected: Any) -> None:
    losses, state = expected
    np.testing.assert_allclose(found[mesh]["losses"], losses, rtol=2e-5)
    assert losses[-1] < 0.9 * losses[0]
    for name, value in state.items():
        np.testing.assert_allclose(arrays[f"{mesh}:{name}"], value, rtol=2e-3, atol=2e-4, err_msg=name)


def test_parameters_and_what_belongs_to_them_are_spread(found: Any) -> None:
    # Columns of q and rows of o over `model`: two different parts of each, and four devices with the same part.
    spread = {
        "layer0.q": [[16, 16], [16, 8], 2],
        "layer0.o": [[16, 16], [8, 16], 2],
        "embedding": [[10, 16], [10, 16], 1],
    }
    for name, expected in spread.items():
        for prefix in ("", "adamw_m/", "adamw_v/", "ema/"):
            assert found["both"]["parts"][prefix + name] == expected, prefix + name
    assert found["data"]["parts"]["layer0.q"] == [[16, 16], [16, 16], 1]


def test_devices_exchange_what_they_have_to(found: Any) -> None:
    for mesh in eight_devices.MESHES:
        kinds = found[mesh]["collectives"]
        assert kinds["all-reduce"] >= (1 if mesh == "data" else 3), mesh  # gradients; and the sums of o and down
    # With the layouts of Megatron no weight is gathered.
    assert "all-gather" not in found["data"]["collectives"]


def test_what_jax_does_around_a_graph_keeps_shardings(found: Any, arrays: Any) -> None:
    graph, given = eight_devices.layers(), eight_devices.values()
    product, _ = rlx.evaluate(graph, given)
    for name in ("in_shardings", "constrained", "shard_map", "another_mesh", "batched", "blob"):
        np.testing.assert_allclose(arrays[f"called:{name}"], product, rtol=1e-4, atol=1e-4, err_msg=name)
    gradients = rlx.evaluate(rlx.grad(graph, ["w", "v"], loss="output1"), given)
    for name, gradient in zip("wv", gradients, strict=True):
        np.testing.assert_allclose(arrays[f"called:grad_{name}"], gradient, rtol=1e-4, atol=1e-6)
    parts = found["called"]["parts"]
    assert parts["in_shardings"][1][0] == parts["constrained"][1][0] == parts["shard_map"][1][0] == 2
    assert parts["grad_w"][1] == [16, 16] and parts["grad_v"][1] == [16, 4]
    assert found["called"]["devices"] == 8


def test_files_of_stablehlo_say_how_to_partition(found: Any) -> None:
    artifact, text, sdy = found["files"]
    assert artifact == text == sdy and artifact["all-reduce"] == 2  # the sum of the products, and that of the mean


def test_files_are_read_back(folder: Path) -> None:
    graph, given = eight_devices.layers(), eight_devices.values()
    back = rlx.from_stablehlo(folder / "layers.mlirbc")
    values = {b.name: given[a.name] for a, b in zip(graph.arguments, back.arguments, strict=True)}
    for result, expected in zip(rlx.evaluate(back, values), rlx.evaluate(graph, given), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def test_two_processes_train_together(tmp_path: Path, expected: Any) -> None:
    for attempt in range(3):  # another program may take the port before the first process does
        if all(code == 0 for code in _two_processes(tmp_path)):
            break
        assert attempt < 2, "two processes could not train together"
    results = [json.loads((tmp_path / f"{i}.json").read_text()) for i in range(2)]
    for result in results:
        np.testing.assert_allclose(result["losses"], expected[0], rtol=2e-5)
        assert result["devices"] == 8 and result["local"] == 4


def _two_processes(folder: Path) -> list[int]:
    with socket.socket() as listening:
        listening.bind(("localhost", 0))
        port = listening.getsockname()[1]
    command = [sys.executable, "-m", "tests.train.two_processes", str(port)]
    started = [subprocess.Popen([*command, str(i), str(folder / f"{i}.json")], env=environment(4)) for i in range(2)]
    try:
        return [process.wait(timeout=SECONDS / 3) for process in started]
    except subprocess.TimeoutExpired:
        return [1]
    finally:
        for process in started:
            process.kill()
            process.wait()


# --- one device ---------------------------------------------------------------------------------------


def test_a_step_goes_to_jax_and_comes_back() -> None:
    data = mlp.batches(5)
    here = TrainStep(mlp.graph(), AdamW(0.02), wrt=["w1", "b1"], ema=0.9, threads=1, params=mlp.params())
    losses = [here(batch)["loss"] for batch in data[:2]]
    there = here.to_jax()
    advance, state = jax.jit(there), there.init()
    for batch in data[2:4]:
        state, results = advance(state, batch)
        assert list(results) == ["loss", "mae", "predicted"]
        losses.append(float(results["loss"]))
    here.restore({n: np.asarray(a) for n, a in state.items()})
    losses.append(here(data[4])["loss"])
    whole = TrainStep(mlp.graph(), AdamW(0.02), wrt=["w1", "b1"], ema=0.9, threads=1, params=mlp.params())
    np.testing.assert_allclose(losses, [whole(batch)["loss"] for batch in data], rtol=1e-5)
    assert here.num_updates == 5
    np.testing.assert_array_equal(np.asarray(state["w2"]), mlp.params()["w2"])
    averages = JaxStep(mlp.graph(), AdamW(0.02), ema=0.9).init(mlp.params())
    np.testing.assert_array_equal(np.asarray(averages["ema/w1"]), mlp.params()["w1"])


def test_what_is_wrong_with_a_state_is_said() -> None:
    step: Any = JaxStep(mlp.graph(), AdamW(0.02))
    state, (batch,) = step.init(mlp.params()), mlp.batches(1)
    for problem, message in (
        (lambda: step.init(), "3 parameters are missing: w1, b1, w2"),
        (lambda: step.init({**mlp.params(), "w3": 1}), "the state has no 'w3'"),
        (lambda: step.init({**mlp.params(), "w1": np.ones((2, 2), np.float32)}), "'w1' must be f32"),
        (lambda: step.init(3), "mapping or a path"),
        (lambda: step(state, {"x": batch["x"]}), "the batch has no 'y'"),
        (lambda: step(state, batch | {"z": 1}), "the batch has an unknown 'z'"),
        (lambda: step({}, batch), "the state has no"),
        (lambda: step(3, batch), "the state must be a mapping"),
        (lambda: step.shardings(), "has no mesh"),
    ):
        with pytest.raises(rlx.Error, match=message):
            problem()


def test_a_mesh_needs_its_devices() -> None:
    function = eight_devices.layers().to_jax()
    with pytest.raises(rlx.Error, match="is of 8 devices, and there are 1"):
        function.shardings()
    other = jax.make_mesh((1,), ("data",))
    with pytest.raises(rlx.Error, match="is for the mesh data=4, model=2"):
        function.shardings(other)
    # On one device it computes the same, without distribution.
    given = eight_devices.values()
    results = function(given["x"], params={n: given[n] for n in "wv"})
    for result, expected in zip(results, rlx.evaluate(eight_devices.layers(), given), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_other_devices_leave_shardings_out(tmp_path: Path) -> None:
    graph, given = eight_devices.layers(), eight_devices.values()
    expected = rlx.evaluate(graph, given)
    for device in ("cpu", "xla"):
        compiled = rlx.Session(device, threads=1).compile(graph, params={n: given[n] for n in "wv"})
        for result, e in zip(compiled.run({"x": given["x"]}), expected, strict=True):
            np.testing.assert_allclose(result, e, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_the_example_runs_as_users_run_it() -> None:
    command = [sys.executable, str(Path(example.__file__)), "--steps=21", "--data=2", "--model=2"]
    environment = {n: v for n, v in os.environ.items() if n not in ("XLA_FLAGS", "JAX_PLATFORMS")}
    printed = subprocess.run(
        command, check=True, timeout=SECONDS, env=environment, capture_output=True, text=True
    ).stdout
    assert "data=2, model=2: 4 devices of 1 processes" in printed
    assert "layer0.q: (64, 64), on each device (64, 32)" in printed
    assert float(printed.rpartition("loss ")[2]) < 0.2

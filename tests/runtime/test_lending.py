"""Ownership of a caller's arrays: later changes have no effect, unless the arrays were lent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.runtime.program import Program
from rlx.targets.artifacts.artifact import Artifact
from rlx.targets.iree.memory import empty_aligned
from rlx.weights.arrays import keep

SIZES = (4, 1 << 16)  # below and above the size that IREE always gets as a copy


def scaled(size: int) -> rlx.Graph:
    g: Any = rlx.Graph("scaled")
    x, w, n = g.input("x", (size,)), g.param("w", (size,)), g.state("n", (size,))
    g.set_outputs({"y": x * w, "n": n + 0.0})
    g.update(n, n + 1.0)
    return g


@pytest.fixture(scope="module", params=["cpu", "xla"])
def artifacts(request: pytest.FixtureRequest) -> dict[int, Artifact]:
    if request.param == "xla":
        pytest.importorskip("jax")
    return {size: rlx.Session(request.param, threads=1).compile(scaled(size)).artifact for size in SIZES}


def aligned(size: int, value: float) -> np.ndarray:
    """Return an array at an address that back ends can use without a copy."""
    array = empty_aligned((size,), np.float32)
    array[...] = value
    return array


GIVE: dict[str, Callable[[Program, np.ndarray], Any]] = {
    "set_param": lambda program, w: program.set_param("w", w),
    "set_params": lambda program, w: program.set_params({"w": w}),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("give", GIVE.values(), ids=list(GIVE))
def test_weights_are_copied(artifacts: dict[int, Artifact], size: int, give: Any) -> None:
    program, w, x = Program(artifacts[size], threads=1), aligned(size, 2), np.ones(size, np.float32)
    give(program, w)
    w[...] = 3
    for value in (4, 5):
        np.testing.assert_array_equal(program.run({"x": x})[0], x * 2)
        w[...] = value
    give(program, w)
    w[...] = 6
    np.testing.assert_array_equal(program.run({"x": x})[0], x * 5)


@pytest.mark.parametrize("size", SIZES)
def test_states_are_copied_in_and_out(artifacts: dict[int, Artifact], size: int) -> None:
    program, n, x = Program(artifacts[size], threads=1), aligned(size, 2), np.ones(size, np.float32)
    program.set_params({"w": x})
    program.set_state("n", n)
    n[...] = 50
    assert program.run({"x": x})[1][0] == 2
    program.set_state("n", n)
    n[...] = 60
    read = program.state("n")
    read[...] = 70
    assert program.run({"x": x})[1][0] == 50
    assert np.all(program.state("n") == 51)


def test_lent_weights_are_not_copied(artifacts: dict[int, Artifact]) -> None:
    size = SIZES[1]
    program, w, x = Program(artifacts[size], threads=1), aligned(size, 2), np.ones(size, np.float32)
    program.set_params({"w": w}, copy=False)
    assert program._data.content.weights["w"] is w
    np.testing.assert_array_equal(program.run({"x": x})[0], x * 2)
    program.set_param("w", aligned(size, 3), copy=False)
    np.testing.assert_array_equal(program.run({"x": x})[0], x * 3)
    assert np.all(w == 2)


def test_what_nobody_can_change_is_not_copied(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    np.arange(1000, dtype=np.float32).tofile(path)
    mapped = np.memmap(path, np.float32, "r")
    assert np.shares_memory(keep(mapped), mapped)
    assert np.shares_memory(keep(np.asarray(mapped)[3:500]), mapped)
    constant = np.frombuffer(bytes(400), np.float32)
    assert np.shares_memory(keep(constant), constant)


def test_what_somebody_can_change_is_copied(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    np.arange(1000, dtype=np.float32).tofile(path)
    base = np.ones(4, np.float32)
    view = base[:]
    view.flags.writeable = False
    own = np.ones(4, np.float32)
    own.flags.writeable = False
    changeable = [base, view, own, np.memmap(path, np.float32, "r+"), np.memmap(path, np.float32, "c")]
    changeable.append(np.frombuffer(memoryview(bytearray(16)).toreadonly(), np.float32))
    for array in changeable:
        assert not np.shares_memory(keep(array), array)
        assert np.shares_memory(keep(array, copy=False), array)
    transposed = np.ones((2, 3), np.float32).T
    for copy in (True, False):
        kept = keep(transposed, copy)
        assert kept.flags.c_contiguous
        assert kept.shape == (3, 2)
    assert keep(np.float32(3) * np.ones(()), False).shape == ()


def test_every_other_way_to_give_weights(tmp_path: Path) -> None:
    size = SIZES[1]
    x, w = np.ones(size, np.float32), aligned(size, 2)
    session = rlx.Session(threads=1)
    compiled = session.compile(scaled(size), params={"w": w})
    compiled.save(tmp_path / "saved.rlxa")
    loaded = rlx.load(tmp_path / "saved.rlxa", params={"w": w}, threads=1)

    g: Any = rlx.Graph("b")
    g.set_outputs([g.input("x", ("n",)) * g.sum(g.param("w", (size,)))])
    bucketed = session.compile(g, params={"w": w}, buckets={"n": [2, 4]})
    assert bucketed.program_for(n=2)._data is bucketed.program_for(n=4)._data, "one copy serves all"
    w[...] = 3
    for program in (compiled, loaded):
        np.testing.assert_array_equal(program.run({"x": x})[0], x * 2)
    assert bucketed.run({"x": x[:2]})[0][0] == 2 * size
    bucketed.set_param("w", w)
    w[...] = 4
    assert bucketed.run({"x": x[:4]})[0][0] == 3 * size


def test_a_model_sees_what_it_is_called_with() -> None:
    @rlx.model
    def product(x: rlx.Input(4), w: rlx.Param(4)) -> Any:  # type: ignore[valid-type]
        return x * w

    x, w = np.ones(4, np.float32), aligned(4, 2)
    for value in (2, 3, 3, 2):
        w[...] = value
        np.testing.assert_array_equal(product(x, w), x * value)


def test_training_keeps_its_own_parameters(tmp_path: Path) -> None:
    g: Any = rlx.Graph("line")
    w, frozen = g.param("w", (4,)), g.param("frozen", (4,))
    g.set_outputs({"loss": g.sum(w * frozen)})
    ones = np.ones(4, np.float32)
    given = {"w": aligned(4, 2), "frozen": aligned(4, 1)}
    step = rlx.train.TrainStep(g, rlx.train.SGD(0.0), wrt=["w"], params=given, threads=1)
    for array in given.values():
        array[...] = 100
    assert step()["loss"] == 8
    for array in step.params().values():
        array[...] = 100
    assert step()["loss"] == 8
    step.set_params({"frozen": ones}, copy=False)
    assert np.shares_memory(step.compiled._data.content.weights["frozen"], ones)
    step.save(tmp_path / "saved.safetensors")
    step.load(tmp_path / "saved.safetensors")
    assert step()["loss"] == 8

"""`fit`: the loop."""

from __future__ import annotations

import io
import os
import re
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import rlx
from rlx.train import SGD, TrainStep, fit
from tests.train import mlp


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def step() -> TrainStep:
    return TrainStep(mlp.graph(), SGD(0.1), device="xla", params=mlp.params())


def test_goes_through_all_batches(step: TrainStep) -> None:
    data = mlp.batches(4)
    seen: list[dict[str, Any]] = []
    history = fit(step, data, epochs=2, on_step=seen.append)
    assert [e["step"] for e in history] == list(range(1, 9)) and all(a is b for a, b in zip(seen, history, strict=True))
    assert list(history[0]) == ["step", "loss", "mae", "predicted"]
    again = TrainStep(mlp.graph(), SGD(0.1), device="xla", params=mlp.params())
    assert [again(batch)["loss"] for batch in data * 2] == [e["loss"] for e in history]


@pytest.mark.parametrize(
    ("options", "count"), [({}, 3), ({"steps": 2}, 2), ({"steps": 7}, 7), ({"steps": 7, "epochs": 2}, 6)]
)
def test_number_of_steps(step: TrainStep, options: Any, count: int) -> None:
    data = mlp.batches(3)
    assert fit(step, data, **options)[-1]["step"] == count == step.num_updates


def test_functions_give_new_batches(step: TrainStep) -> None:
    calls = []

    def batches() -> Any:
        calls.append(len(calls))
        yield from mlp.batches(2)

    assert len(fit(step, batches, epochs=3)) == 6 and calls == [0, 1, 2]
    assert len(fit(step, iter(mlp.batches(2)))) == 2
    with pytest.raises(rlx.Error, match="epoch 2 has no batch"):
        fit(step, iter(mlp.batches(2)), epochs=2)
    with pytest.raises(rlx.Error, match="epoch 1 has no batch"):
        fit(step, [])


def test_logs_some_steps_and_stops_when_told(step: TrainStep) -> None:
    history = fit(step, mlp.batches(1), steps=20, log_every=4, on_step=lambda e: e["step"] == 10)
    assert [e["step"] for e in history] == [4, 8, 10]


def test_on_step_may_add_metrics(step: TrainStep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("COLUMNS", "200")

    def test(entry: dict[str, Any]) -> None:
        if entry["step"] == 2:
            entry |= {"test_loss": np.float32(0.125), "flows": np.zeros(3)}

    history = fit(step, mlp.batches(3), on_step=test)
    assert ["test_loss" in entry for entry in history] == [False, True, False]
    *_, line = sys.stderr.getvalue().split("\r")  # type: ignore[attr-defined]
    assert f"loss={history[-1]['loss']:.4g}, mae={history[-1]['mae']:.4g}, test_loss=0.125" in line
    assert "flows" not in line and "predicted" not in line


@pytest.mark.parametrize("columns", [20, 60])
def test_the_line_never_wraps(step: TrainStep, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("COLUMNS", str(columns))
    fit(step, mlp.batches(3))
    lines = re.split("\r|\n", sys.stderr.getvalue())  # type: ignore[attr-defined]
    assert all(len(line.removesuffix("\x1b[K")) < columns for line in lines)


def test_writes_checkpoints(step: TrainStep, tmp_path: Path) -> None:
    path = tmp_path / "step.safetensors"
    there = []
    fit(
        step,
        mlp.batches(1),
        steps=5,
        checkpoint=path,
        checkpoint_every=2,
        on_step=lambda e: there.append(path.exists()),
    )
    assert there == [False, True, True, True, True]
    other = TrainStep(mlp.graph(), SGD(0.1), device="xla")
    other.load(path)
    assert other.num_updates == 5
    np.testing.assert_array_equal(other.params()["w1"], step.params()["w1"])


def test_shows_progress_as_tqdm_does(step: TrainStep, monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, progress in ((Terminal(), True), (Terminal(), False), (io.StringIO(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        (entry,) = fit(step, mlp.batches(1), progress=progress)
        text, numbers = stream.getvalue(), f"loss={entry['loss']:.4g}, mae={entry['mae']:.4g}"
        if not progress:
            assert text == ""
        elif isinstance(stream, Terminal):
            assert re.fullmatch(rf"\r100%\|█+\| 1/1 \[00:0\d<00:00, [ \d.]+step/s, {numbers}\]\x1b\[K\n", text)
        else:
            assert re.fullmatch(rf"1/1 \[00:0\d, [ \d.]+step/s, {numbers}\]\n", text)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps must be an integer"),
        ({"epochs": 1.5}, "epochs must be an integer"),
        ({"log_every": 0}, "log_every must be"),
        ({"checkpoint_every": 3}, "checkpoint_every needs a file"),
        ({"on_step": 3}, "on_step must be a function"),
        ({"checkpoint": 3}, "expected the path of a file, got 3"),
        ({"checkpoint": os.curdir}, "checkpoint: . is a folder"),
        ({"checkpoint": Path("no-such-folder") / "run"}, "checkpoint: there is no folder no-such-folder"),
    ],
)
def test_bad_options_are_refused(step: TrainStep, options: Any, message: str) -> None:
    with pytest.raises(rlx.Error, match=message):
        fit(step, mlp.batches(1), **options)
    assert step.num_updates == 0  # before any results could be lost


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        (3, "batches is int; expected batches"),
        ({"x": np.zeros(2)}, "batches is dict; expected batches"),
        (lambda: None, "the function of batches gives NoneType"),
        ([3], "inputs must be a mapping of names to arrays"),
        ([], "epoch 1 has no batch"),
    ],
)
def test_what_are_no_batches(step: TrainStep, batches: Any, message: str) -> None:
    with pytest.raises(rlx.Error, match=message):
        fit(step, batches)
    with pytest.raises(rlx.Error, match=r"model must be a module of rlx.nn or a TrainStep, got 3"):
        fit(cast(Any, 3), batches)

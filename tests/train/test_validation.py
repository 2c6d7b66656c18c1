"""The validation of `fit`: a share of the arrays, and the end of a training without progress."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from tests.train import mlp

fit: Any = rlx.train.fit
X = np.random.default_rng(0).standard_normal((30, 4)).astype(np.float32)
Y = X[:, :3].argmax(1).astype(np.int32)
QUIET: Any = {"loss": "cross_entropy", "batch_size": 8, "progress": False, "device": "xla"}


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_samples_of_a_share_are_known(shuffle: bool) -> None:
    options: Any = {**QUIET, "seed": 3, "epochs": 2, "shuffle": shuffle}
    found = fit(rlx.nn.Linear(4, 3), (X, Y), validation=0.2, **options)
    held = found.validation_indices
    assert held.dtype.kind == "i" and len(held) == 6 and (np.diff(held) > 0).all() and held[0] >= 0 and held[-1] < 30
    assert found.evaluate((X[held], Y[held]))["loss"] == pytest.approx(found.history[-1]["val_loss"], rel=1e-6)
    rest = np.setdiff1d(np.arange(30), held)  # the same training with the data divided before
    same = fit(rlx.nn.Linear(4, 3), (X[rest], Y[rest]), validation=(X[held], Y[held]), **options)
    assert same.history == found.history and same.validation_indices is None
    assert not np.array_equal(held, np.arange(24, 30))


def test_without_a_share_there_are_no_indices() -> None:
    assert fit(rlx.nn.Linear(4, 3), (X, Y), **QUIET).validation_indices is None


def test_an_early_stop_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The parameters do not change. A training that is resumed after its end reports the same."""
    options: Any = {**QUIET, "optimizer": rlx.train.SGD(0.0), "validation": 0.3, "epochs": 9, "patience": 2}
    files: Any = {"checkpoint": tmp_path / "c.safetensors", "resume": True, "progress": True}
    expected = "epoch 3: val_loss has not improved for 2 epochs; stopped, best epoch 1 (val_loss="
    for _ in range(2):
        found = fit(rlx.nn.Linear(4, 3), (X, Y), **{**options, **files})
        assert [entry["epoch"] for entry in found.history] == [1, 2, 3]
        assert found.history.stopped_epoch == 3 and found.history.best_epoch == 1
        lines = capsys.readouterr().err.splitlines()
        assert [line for line in lines if line.startswith(expected)] == lines[-1:]
        assert f"(val_loss={found.history[0]['val_loss']:.4g})" in lines[-1]
    quiet = fit(rlx.nn.Linear(4, 3), (X, Y), **options)
    assert quiet.history.stopped_epoch == 3 and not capsys.readouterr().err
    whole = fit(rlx.nn.Linear(4, 3), (X, Y), **{**options, "epochs": 2, "progress": True})
    assert whole.history.stopped_epoch is None and "stopped" not in capsys.readouterr().err


def test_the_line_of_an_early_stop_says_what_is_restored_and_counts_validations(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options: Any = {**QUIET, "optimizer": rlx.train.SGD(0.0), "progress": True, "epochs": 9, "patience": 3}
    found = fit(rlx.nn.Linear(4, 3), (X, Y), validation=(X, Y), validate_every=2, keep_best=True, **options)
    assert found.history.stopped_epoch == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("epoch 2: val_loss has not improved for 3 validations; stopped, best epoch 1 (val_loss=")
    assert line.endswith("), whose parameters are restored")
    huge = np.full((30, 1), 1e30, np.float32)  # the loss is infinite
    fit(rlx.nn.Linear(4, 1), (X, X[:, :1]), validation=(X, huge), **{**options, "loss": "mse"})
    line = capsys.readouterr().err.splitlines()[-1]
    assert line == "epoch 3: val_loss has not improved for 3 epochs; stopped, no validation had a finite val_loss"


def test_the_best_entry_of_a_history() -> None:
    history = rlx.train.TrainingHistory(
        [{"step": n, "val_loss": v} for n, v in enumerate((np.nan, 3.0, 1.0, 1.0, 2.0))]
    )
    assert history.best == {"step": 2, "val_loss": 1.0} and history.best_epoch is None
    assert rlx.train.TrainingHistory([{"step": 1, "loss": 2.0}]).best is None
    assert rlx.train.TrainingHistory([{"epoch": 4, "step": 1, "val_loss": 2.0}]).best_epoch == 4


def test_an_early_stop_of_a_step_names_the_steps(capsys: pytest.CaptureFixture[str]) -> None:
    step = rlx.train.TrainStep(mlp.graph(), rlx.train.SGD(0.0), device="xla", params=mlp.params())
    history = fit(step, mlp.batches(2), epochs=9, validation=mlp.batches(1), patience=1)
    assert len(history) == 4 and history.stopped_epoch == 2 and history.best is history[1]
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("step 4: val_loss has not improved for 1 epoch; stopped, best step 2 (val_loss=")

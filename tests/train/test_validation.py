"""The validation of `fit`: a share of the arrays, and the end of a training without progress."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx

fit: Any = rlx.train.fit
X = np.random.default_rng(0).standard_normal((30, 4)).astype(np.float32)
Y = X[:, :3].argmax(1).astype(np.int32)
QUIET: Any = {"loss": "cross_entropy", "batch_size": 8, "progress": False, "device": "xla"}


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_samples_of_a_share_are_known(shuffle: bool) -> None:
    options: Any = {**QUIET, "seed": 3, "epochs": 2, "shuffle": shuffle}
    found = fit(rlx.nn.Linear(4, 3), (X, Y), validation=0.2, **options)
    held = found.validation_indices
    assert held.dtype.kind == "i" and len(held) == 6 and (np.diff(held) > 0).all() and 0 <= held[0] and held[-1] < 30
    assert found.evaluate((X[held], Y[held]))["loss"] == pytest.approx(found.history[-1]["val_loss"], rel=1e-6)
    rest = np.setdiff1d(np.arange(30), held)  # the same training with the data divided before
    same = fit(rlx.nn.Linear(4, 3), (X[rest], Y[rest]), validation=(X[held], Y[held]), **options)
    assert same.history == found.history and same.validation_indices is None
    assert not np.array_equal(held, np.arange(24, 30))


def test_without_a_share_there_are_no_indices() -> None:
    assert fit(rlx.nn.Linear(4, 3), (X, Y), **QUIET).validation_indices is None

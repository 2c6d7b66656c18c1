"""`fit` and its results for unusual data: labels, sizes, containers, functions of epochs, interrupts, and old files."""

from __future__ import annotations

import signal
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rlx

fit: Any = rlx.train.fit  # wrong arguments too
QUIET: Any = {"progress": False, "device": "xla"}
X = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)
Y = np.array([0, 1, 2, 3, 0, 1], np.int32)
Pair = namedtuple("Pair", ["mean", "var"])


class Several(rlx.nn.Module):
    """A layer with outputs in a container."""

    def __init__(self, form: Any):
        self.layer, self.form = rlx.nn.Linear(3, 2), form

    def forward(self, x: rlx.Tensor) -> Any:
        return self.form(self.layer(x))


@pytest.fixture(scope="module")
def trained() -> Any:
    return fit(rlx.nn.Linear(3, 4), (X, Y), loss="cross_entropy", batch_size=4, **QUIET)


@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda *_: None, signal.default_int_handler])
def test_an_error_of_the_data_is_raised_with_any_handler_of_interrupts(handler: Any) -> None:
    def batches() -> Iterator[Any]:
        yield X, Y
        raise ValueError("of the data")

    before = signal.signal(signal.SIGINT, handler)
    try:
        with pytest.raises(ValueError, match="of the data"):
            fit(rlx.nn.Linear(3, 4), batches, loss="cross_entropy", **QUIET)
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)

"""Validation during training: when it happens, when it ends training, and the best parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any

import numpy as np

from rlx.train.step import TrainStep


class Judge:
    """Validates after some steps of a training.

    Args:
        step: The training step.
        batches: Returns the batches to validate with.
        every: The number of steps between two validations; None is the end of each epoch.
        patience: The number of validations without a lesser loss that ends training.
        keep_best: Whether to remember parameters and states of the least loss.
    """

    def __init__(
        self,
        step: TrainStep,
        batches: Callable[[], Iterable[Mapping[str, Any]]],
        every: int | None,
        patience: int | None,
        keep_best: bool,
    ):
        self._step, self._batches, self._every = step, batches, every
        self._patience, self._keeps = patience, keep_best
        self._least, self._waited = inf, 0
        self._best: dict[str, np.ndarray] | None = None
        self.has_judged = False

    def __call__(self, entry: dict[str, Any], ends_epoch: bool) -> bool:
        """Validate after a step if it is time to; whether training should end."""
        self.has_judged = ends_epoch if self._every is None else entry["step"] % self._every == 0
        if not self.has_judged:
            return False
        results = self._step.evaluate(self._batches())
        entry.update((f"val_{name}", value) for name, value in results.items())
        if results["loss"] < self._least:
            self._least, self._waited = results["loss"], 0
            self._best = self._step.snapshot() if self._keeps else None
        else:
            self._waited += 1
        return self._patience is not None and self._waited >= self._patience

    def go_back(self) -> bool:
        """Return to the best parameters, if they are kept and not those at the end; whether it did."""
        if self._best is None or self._waited == 0:
            return False
        self._step.restore(self._best)
        return True

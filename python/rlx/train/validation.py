"""Validation during training: its schedule, early stopping, and the best parameters."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from rlx.train.step import TrainStep
from rlx.train.training_history import TrainingHistory


def best_file(checkpoint: Any) -> str:
    """Return the file of the best state, next to a checkpoint."""
    return f"{os.fspath(checkpoint)}.best"


class Judge:
    """Validates after some steps of a training.

    Args:
        step: The training step.
        batches: Returns the batches to validate with.
        every: The number of steps between two validations; None means at the end of each epoch.
        patience: The number of validations without a new smallest loss that ends training.
        keep_best: Whether to remember parameters and states of the smallest loss.
        checkpoint: The checkpoint file, if there is one. The best state is then stored in a file next to it, for a
            resumed training.
    """

    def __init__(
        self,
        step: TrainStep,
        batches: Callable[[], Iterable[Mapping[str, Any]]],
        every: int | None,
        patience: int | None,
        keep_best: bool,
        checkpoint: Any,
    ):
        self._step, self._batches, self._every = step, batches, every
        self._patience, self._keeps = patience, keep_best
        self._best: dict[str, np.ndarray] | None = None
        self._file = None if checkpoint is None or not keep_best else best_file(checkpoint)
        self.has_judged = False

    def __call__(self, entry: dict[str, Any], ends_epoch: bool) -> bool:
        """Validate after a step if it is due. Return whether training should end."""
        self.has_judged = ends_epoch if self._every is None else entry["step"] % self._every == 0
        if not self.has_judged:
            return False
        results = self._step.evaluate(self._batches())
        entry.update((f"val_{name}", value) for name, value in results.items())
        least, waited = self._step.validation
        if results["loss"] < least:
            self._step.validation = (results["loss"], 0)
            self._best = self._step.snapshot() if self._keeps else None
            if self._file is not None:
                self._step.save(self._file)
        else:
            self._step.validation = (least, waited + 1)
        return self.is_over

    @property
    def is_over(self) -> bool:
        """Whether `patience` validations without a new smallest loss have ended training."""
        return self._patience is not None and self._step.validation[1] >= self._patience

    def stop_line(self, history: TrainingHistory) -> str:
        """Return the line for a training that `patience` has ended.

        Args:
            history: The entries up to the last validation. A resumed training of a `TrainStep` has none of the earlier ones.
        """
        step, best, unit = self._step, history.best, history.axis()
        number = (history[-1] if history else {}).get(unit, step.position[0])
        count = self._patience
        kind = ("epoch" if self._every is None else "validation") + ("" if count == 1 else "s")
        least = step.validation[0]
        if not np.isfinite(least):
            found = "no validation had a finite val_loss"
        else:
            at = f"best {unit} {best[unit]}" if best is not None and best["val_loss"] == least else "the best"
            found = f"{at} (val_loss={least:.4g}){', whose parameters are restored' if self._keeps else ''}"
        return f"{unit} {number}: val_loss has not improved for {count} {kind}; stopped, {found}"

    def go_back(self) -> bool:
        """Restore the best parameters, if they are stored and are not the last ones. Return whether they were restored."""
        if not self._keeps or self._step.validation[1] == 0:
            return False
        if self._best is not None:
            self._step.restore(self._best)
            return True
        if self._file is None or not os.path.exists(self._file):
            return False
        step = self._step
        reached = step.position, step.validation, step.log  # those of the training, not of the best step
        step.load(self._file)
        step.position, step.validation, step.log = reached
        return True

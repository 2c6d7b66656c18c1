"""The history and display of `fit` for a module: an entry and a line for each epoch."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from rlx.ir.graph.graph import Graph
from rlx.train.loop import Entry, Place, num_batches
from rlx.train.model_step import ModelStep
from rlx.train.optimizers import Optimizer
from rlx.train.progress_bar import ProgressBar
from rlx.train.schedules import learning_rate_at
from rlx.train.step import TrainStep
from rlx.train.training_history import TrainingHistory


class EpochLog:
    """Records exact losses and metrics of each epoch.

    Args:
        step: The step. If it is resumed, its log is continued.
        data: The batches.
        epochs: The number of epochs, if it is known.
        optimizer: The optimiser, whose learning rate is recorded if it changes.
        enabled: Whether progress is shown.
    """

    def __init__(self, step: ModelStep, data: Any, epochs: int | None, optimizer: Optimizer, enabled: bool):
        self._step, self._length, self._epochs, self._enabled = step, num_batches(data), epochs, enabled
        self.history = TrainingHistory(step.log.get("entries", ()))
        self._sums = {name: np.array(value) for name, value in step.log.get("sums", {}).items()}
        self._rate = None if not callable(optimizer.learning_rate) else _rate_graph(optimizer)
        self._bar: ProgressBar | None = None
        self._epoch, self._in_epoch = step.position[1], step.position[2]
        self._started = time.monotonic()

    def _open_bar(self) -> ProgressBar:
        if self._bar is None:
            title = f"Epoch {self._epoch + 1}" + (f"/{self._epochs}" if self._epochs else "")
            self._bar = ProgressBar(self._length, title, enabled=self._enabled, done=self._in_epoch)
        return self._bar

    def begin(self) -> None:
        """Start the clock of the first bar, after everything is compiled."""
        self._open_bar()

    def record(self, entry: Entry, place: Place, *, ends_epoch: bool, has_judged: bool) -> Entry | None:
        """Record a step. Return the entry of the epoch at its end, and at a validation."""
        self._in_epoch += 1
        own = self._step.sums
        self._sums = {n: self._sums[n] + v for n, v in own.items()} if self._sums else dict(own)
        if not ends_epoch and not has_judged:
            return None
        row = self._row(entry)
        self.history.append(row)
        if ends_epoch:
            self._sums = {}
        return row

    def _row(self, entry: Entry) -> Entry:
        row: Entry = {"epoch": self._epoch + 1, "step": entry["step"], **self._step.results(self._sums)}
        row |= {name: value for name, value in entry.items() if name.startswith("val_")}
        if self._rate is not None:
            (rate,) = self._rate.evaluate(np.float32(self._step.num_updates - 1))
            row["learning_rate"] = float(rate)
        return row

    def show(self, entry: Entry, row: Entry | None) -> None:
        """Show the means of the epoch so far, and end the line with the epoch."""
        bar = self._open_bar()
        means = row if row is not None else self._step.results(self._sums)
        added = {n: v for n, v in entry.items() if n not in means}
        bar.show(self._in_epoch, {**means, **added})
        if row is not None and not self._sums:
            bar.close()
            self._bar, self._epoch, self._in_epoch = None, self._epoch + 1, 0

    def store(self, step: TrainStep) -> None:
        """Set the log of the step: the entries, and the sums of the epoch that has begun."""
        step.log = {"entries": list(self.history), "sums": {n: v.tolist() for n, v in self._sums.items()}}

    def finish(self, entry: Entry) -> None:
        """Record an epoch that ends early."""
        if self._sums and (not self.history or self.history[-1]["step"] != entry.get("step", self._step.position[0])):
            self.history.append(self._row({"step": self._step.position[0], **entry}))

    def close(self) -> None:
        """End the line."""
        if self._bar is not None:
            self._bar.close()


class _RateGraph:
    """The learning rate as a function of the number of completed updates."""

    def __init__(self, graph: Graph):
        self._graph = graph

    def evaluate(self, updates: Any) -> Any:
        """Return the results of the graph."""
        from rlx import evaluate

        return evaluate(self._graph, {"step": np.maximum(updates, 0)})


def _rate_graph(optimizer: Optimizer) -> _RateGraph:
    g = Graph("learning_rate")
    g.set_outputs([learning_rate_at(g, optimizer.learning_rate, g.input("step", ()))])
    return _RateGraph(g)

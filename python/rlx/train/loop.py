"""`fit`: the loop around a training step."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from itertools import count
from numbers import Real
from typing import Any

from rlx.ir.errors import Error
from rlx.train.schedules import check_count
from rlx.train.step import TrainStep

Batches = Iterable[Mapping[str, Any]] | Callable[[], Iterable[Mapping[str, Any]]]
Entry = dict[str, Any]


def fit(
    step: TrainStep,
    batches: Batches,
    *,
    epochs: int | None = None,
    steps: int | None = None,
    log_every: int = 1,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int | None = None,
    progress: bool = True,
    on_step: Callable[[Entry], Any] | None = None,
) -> list[Entry]:
    """Call a training step for each batch.

    Args:
        step: The step.
        batches: The batches, as a list or another iterable, which several epochs iterate over more than once. Or a
            function that returns the batches for each epoch, for instance shuffled.
        epochs: How often to iterate over all batches; once, if `steps` is not given either.
        steps: The number of steps after which to stop, over any number of epochs.
        log_every: One of this many steps is in the result; the last step always is.
        checkpoint: The file that `step.save` writes at the end, and in between.
        checkpoint_every: The number of steps between two checkpoints.
        progress: Show a line with the last loss and metrics, if standard error is a terminal.
        on_step: Called after each step with its entry: `{"step": 3, "loss": …, …}`. Items that it adds to the entry, such
            as a loss on other data, are in the result and on the line. If it returns True, training ends.

    Returns:
        `{"step": n, "loss": …, …}` with the metrics, for each step that is logged; steps are counted from 1.

    Raises:
        Error: An option is wrong, an epoch has no batch, or the step raises it.
    """
    _check_counts(epochs=epochs, steps=steps, checkpoint_every=checkpoint_every)
    check_count("log_every", log_every)
    _check(step, on_step)
    if checkpoint_every is not None and checkpoint is None:
        raise Error("checkpoint_every needs a file: checkpoint=path")
    history: list[Entry] = []
    entry: Entry = {}
    line = _Progress(_total(batches, epochs, steps), progress)
    try:
        for number, batch in _numbered(batches, epochs, steps):
            entry = {"step": number, **step(batch)}
            if number % log_every == 0:
                history.append(entry)
            if checkpoint is not None and checkpoint_every is not None and number % checkpoint_every == 0:
                step.save(checkpoint)
            wants_end = on_step is not None and on_step(entry) is True
            line.show(entry)
            if wants_end:
                break
    finally:
        line.close()
    if entry["step"] % log_every:
        history.append(entry)
    if checkpoint is not None and (checkpoint_every is None or entry["step"] % checkpoint_every):
        step.save(checkpoint)
    return history


def _check_counts(**counts: Any) -> None:
    for name, value in counts.items():
        if value is not None:
            check_count(name, value)


def _check(step: Any, on_step: Any) -> None:
    if not isinstance(step, TrainStep):
        raise Error(f"step must be a TrainStep, got {type(step).__name__}")
    if on_step is not None and not callable(on_step):
        raise Error(f"on_step must be a function of what a step gives, got {on_step!r}")


def _numbered(batches: Batches, epochs: int | None, steps: int | None) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The batches of all epochs, counted from 1."""
    if epochs is None and steps is None:
        epochs = 1
    number = 0
    for epoch in count(1):
        before = number
        epoch_batches = batches() if callable(batches) else batches
        if not isinstance(epoch_batches, Iterable) or isinstance(epoch_batches, Mapping):
            subject = "the function of batches gives" if callable(batches) else "batches is"
            raise Error(
                f"{subject} {type(epoch_batches).__name__}; expected batches, each a mapping of names to arrays"
            )
        for batch in epoch_batches:
            number += 1
            yield number, batch
            if number == steps:
                return
        if number == before:
            hint = None if epoch == 1 else "an iterator ends for good: give a list, or a function that makes a new one"
            raise Error(f"epoch {epoch} has no batch", hint=hint)
        if epoch == epochs:
            return


def _total(batches: Batches, epochs: int | None, steps: int | None) -> int | None:
    """How many steps there will be, if that is known."""
    if not isinstance(batches, Sized):
        return steps
    num_batches = None if epochs is None and steps is not None else len(batches) * (epochs or 1)
    return min((n for n in (num_batches, steps) if n is not None), default=None)


class _Progress:
    """One line on a terminal, which is rewritten at most ten times a second."""

    _WIDTH = 24
    _INTERVAL = 0.1

    def __init__(self, total: int | None, enabled: bool):
        self._total = total
        self._on = enabled and sys.stderr is not None and sys.stderr.isatty()
        self._start = self._shown = time.monotonic()
        self._last: Entry | None = None
        self._metrics: dict[str, Real] = {}

    def show(self, entry: Entry) -> None:
        """Show a step."""
        if not self._on:
            return
        self._last = entry
        # The last values of metrics that only some steps have stay on the line.
        self._metrics |= {n: v for n, v in entry.items() if n != "step" and isinstance(v, Real)}
        if time.monotonic() - self._shown >= self._INTERVAL:
            self._write(entry)

    def close(self) -> None:
        """Show the last step, and end the line."""
        if self._last is not None:
            self._write(self._last)
            sys.stderr.write("\n")

    def _write(self, entry: Entry) -> None:
        self._shown = time.monotonic()
        done = entry["step"]
        rate = done / max(self._shown - self._start, 1e-9)
        text = f"{rate:.3g} steps/s"
        if self._total is None:
            text = f"{done}  {text}"
        else:
            bar = "#" * (self._WIDTH * done // self._total)
            seconds_left = (self._total - done) / rate
            text = f"[{bar:-<{self._WIDTH}}] {done}/{self._total}  {text}, {seconds_left:.0f} s left"
        text += "  " + ", ".join(f"{name} {value:.4g}" for name, value in self._metrics.items())
        # A line that wraps could not be overwritten.
        sys.stderr.write(f"\r{text[: shutil.get_terminal_size().columns - 1]}\x1b[K")
        sys.stderr.flush()

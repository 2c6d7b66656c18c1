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
        batches: Batches, as a list or whatever can be gone through; for several epochs more than once. Or a function that
            gives them anew for each epoch, shuffled for instance.
        epochs: How often to go through all batches; once, if `steps` is not given either.
        steps: After how many steps to stop, however many epochs that takes.
        log_every: Of so many steps one is in the result; the last is in any case.
        checkpoint: Where `step.save` writes at the end, and in between.
        checkpoint_every: After how many steps it does.
        progress: Show a line with the last loss and metrics, if standard error is a terminal.
        on_step: Called after each step with what it gave: `{"step": 3, "loss": …, …}`. What it adds to that, such as a
            loss of other data, is in the result and on the line. If it returns True, that was the last.

    Returns:
        `{"step": n, "loss": …, …}` with the metrics, for each step that is logged; steps are counted from 1.

    Raises:
        Error: An option is wrong, or an epoch has no batch; and what the step raises.
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
        given = batches() if callable(batches) else batches
        if not isinstance(given, Iterable) or isinstance(given, Mapping):
            what = "the function of batches gives" if callable(batches) else "batches is"
            raise Error(f"{what} {type(given).__name__}; expected batches, each a mapping of names to arrays")
        for batch in given:
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
    known = None if epochs is None and steps is not None else len(batches) * (epochs or 1)
    return min((n for n in (known, steps) if n is not None), default=None)


class _Progress:
    """One line on a terminal, written over and over, at most ten times a second."""

    _WIDTH = 24
    _INTERVAL = 0.1

    def __init__(self, total: int | None, wanted: bool):
        self._total = total
        self._on = wanted and sys.stderr is not None and sys.stderr.isatty()
        self._start = self._shown = time.monotonic()
        self._last: Entry | None = None
        self._metrics: dict[str, Real] = {}

    def show(self, entry: Entry) -> None:
        """Tell of a step."""
        if not self._on:
            return
        self._last = entry
        # Metrics that only some steps have stay on the line.
        self._metrics |= {n: v for n, v in entry.items() if n != "step" and isinstance(v, Real)}
        if time.monotonic() - self._shown >= self._INTERVAL:
            self._write(entry)

    def close(self) -> None:
        """Leave the last step standing."""
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
            left = (self._total - done) / rate
            text = f"[{bar:-<{self._WIDTH}}] {done}/{self._total}  {text}, {left:.0f} s left"
        text += "  " + ", ".join(f"{name} {value:.4g}" for name, value in self._metrics.items())
        # A line that wraps could not be written over.
        sys.stderr.write(f"\r{text[: shutil.get_terminal_size().columns - 1]}\x1b[K")
        sys.stderr.flush()

"""`fit`: the training loop."""

from __future__ import annotations

import inspect
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import count, islice
from numbers import Real
from typing import Any

from rlx.ir.calls import with_call_errors
from rlx.support.errors import Error
from rlx.support.files import file_name
from rlx.support.printable import printable
from rlx.train.loggers import Logger
from rlx.train.schedules import check_count, check_flag
from rlx.train.step import TrainStep
from rlx.train.validation import Judge

Batches = Iterable[Mapping[str, Any]] | Callable[..., Iterable[Mapping[str, Any]]]
Entry = dict[str, Any]
Place = tuple[int, int, int]  # steps, epoch, batches of the epoch


@with_call_errors
def fit(
    step: TrainStep,
    batches: Batches,
    *,
    epochs: int | None = None,
    steps: int | None = None,
    log_every: int = 1,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int | None = None,
    resume: bool = False,
    validation: Batches | None = None,
    validate_every: int | None = None,
    patience: int | None = None,
    keep_best: bool = False,
    callbacks: Sequence[Callable[[Entry], Any]] = (),
    progress: bool = True,
    on_step: Callable[[Entry], Any] | None = None,
) -> list[Entry]:
    """Call a training step for each batch.

    Args:
        step: The step.
        batches: The batches, as a list or another iterable that each epoch iterates over. Or a function that returns
            the batches of an epoch, for example shuffled. A function with a parameter gets the number of the epoch,
            from 0.
        epochs: The number of iterations over all batches; 1 if `steps` is not given either.
        steps: The number of steps after which to stop, over any number of epochs.
        log_every: Every n-th step is in the result. The last step, and steps with a validation, always are.
        checkpoint: The file that `step.save` writes at the end, and every `checkpoint_every` steps.
        checkpoint_every: The number of steps between two checkpoints.
        resume: Continue from `checkpoint` if the file exists, with the batch after its last one. `epochs`, `steps`, the
            numbers of steps, `patience` and `keep_best` then refer to the whole training.
        validation: Batches for `step.evaluate`, which computes the graph of `TrainStep(…, evaluation=…)` and adds
            `val_loss` and `val_<metric>` to the entry of a step.
        validate_every: The number of steps between two validations; by default, at the end of each epoch.
        patience: Stop after this number of consecutive validations without a new smallest loss.
        keep_best: At the end, restore parameters and states of the validation with the smallest loss. With a
            checkpoint, they are stored in a file of its name with the suffix `.best`.
        callbacks: Called one after the other, like `on_step`: a `CSVLogger`, a `TensorBoardLogger` or your function.
        progress: Show a line with the last loss and metrics, if standard error is a terminal.
        on_step: Called after each step with its entry: `{"step": 3, "loss": …, …}`. Items that it adds, such as another
            loss, are included in the result and on the line. If it returns True, training ends.

    Returns:
        `{"step": n, "loss": …, …}` with the metrics, for each logged step. Steps are counted from 1.

    Raises:
        Error: An option is wrong, an epoch has no batch, or the step raises it.
    """
    _check_counts(epochs=epochs, steps=steps, checkpoint_every=checkpoint_every, validate_every=validate_every)
    _check_counts(log_every=log_every, patience=patience)
    observers = _check(step, on_step, callbacks)
    _check_files(checkpoint, checkpoint_every, resume)
    judge = _judge(step, validation, validate_every, patience, keep_best, checkpoint)
    _begin(step, checkpoint if resume else None)
    line = _Progress(_total(batches, epochs, steps), progress, step.position[0])
    placed = _placed(batches, epochs, steps, step.position)
    return _FitRun(step, placed, judge, observers, log_every, checkpoint, checkpoint_every, line).run()


@dataclass
class _FitRun:
    """The loop of `fit`, after its options have been checked."""

    step: TrainStep
    placed: Iterator[tuple[Mapping[str, Any], Place, bool]]
    judge: Judge | None
    observers: Sequence[Callable[[Entry], Any]]
    log_every: int
    checkpoint: Any
    checkpoint_every: int | None
    line: _Progress

    def run(self) -> list[Entry]:
        step, judge = self.step, self.judge
        history: list[Entry] = []
        entry: Entry = {}
        if judge is not None and judge.is_over:  # the resumed training had already ended
            judge.go_back()
            return history
        try:
            for batch, place, ends_epoch in self.placed:
                entry = {"step": place[0], **step(batch)}
                step.position = place
                wants_end = judge is not None and judge(entry, ends_epoch)
                if place[0] % self.log_every == 0 or (judge is not None and judge.has_judged):
                    history.append(entry)
                if self._is_due(place[0]):
                    step.save(self.checkpoint)
                for observer in self.observers:
                    wants_end = observer(entry) is True or wants_end
                self.line.show(entry)
                if wants_end:
                    break
        finally:
            self.line.close()
            for observer in self.observers:
                if isinstance(observer, Logger):
                    observer.close()
        if entry and (not history or history[-1] is not entry):
            history.append(entry)
        went_back = judge is not None and judge.go_back()
        if entry and self.checkpoint is not None and (went_back or not self._is_due(entry["step"])):
            step.save(self.checkpoint)
        return history

    def _is_due(self, number: int) -> bool:
        every = self.checkpoint_every
        return self.checkpoint is not None and every is not None and number % every == 0


def _begin(step: TrainStep, checkpoint: Any) -> None:
    """Start from a checkpoint if it exists, else at the first batch."""
    step.position, step.validation = (0, 0, 0), (math.inf, 0)
    if checkpoint is not None and os.path.exists(checkpoint):
        step.load(checkpoint)


def _check_files(checkpoint: Any, checkpoint_every: Any, resume: Any) -> None:
    if checkpoint_every is not None and checkpoint is None:
        raise Error("checkpoint_every needs a file: checkpoint=path")
    check_flag("resume", resume)
    if resume and checkpoint is None:
        raise Error("resume needs a file: checkpoint=path")
    if checkpoint is not None:  # checked before any results could be lost
        name = file_name(checkpoint)
        folder = os.path.dirname(name) or os.curdir
        if not os.path.isdir(folder):
            raise Error(f"checkpoint: there is no folder {folder}")
        if os.path.isdir(name):
            raise Error(f"checkpoint: {name} is a folder", hint="give the path of a file in it")


def _check_counts(**counts: Any) -> None:
    for name, value in counts.items():
        if value is not None:
            check_count(name, value)


def _check(step: Any, on_step: Any, callbacks: Any) -> list[Callable[[Entry], Any]]:
    """Return all functions that are called after each step."""
    if not isinstance(step, TrainStep):
        raise Error(f"step must be a TrainStep, got {type(step).__name__}")
    if on_step is not None and not callable(on_step):
        raise Error(f"on_step must be a function of what a step gives, got {on_step!r}")
    if not isinstance(callbacks, (list, tuple)) or not all(map(callable, callbacks)):
        raise Error(f"callbacks must be a list of functions of what a step gives, got {callbacks!r:.60}")
    return [*([on_step] if on_step is not None else []), *callbacks]


def _judge(
    step: TrainStep, validation: Any, every: Any, patience: Any, keep_best: Any, checkpoint: Any
) -> Judge | None:
    check_flag("keep_best", keep_best)
    if validation is not None:
        return Judge(step, lambda: epoch_of(validation, 0, "validation"), every, patience, keep_best, checkpoint)
    for name, value in {"validate_every": every, "patience": patience, "keep_best": keep_best or None}.items():
        if value is not None:
            raise Error(f"{name} needs batches to validate with: validation=batches")
    return None


def epoch_of(batches: Any, epoch: int, what: str) -> Iterable[Mapping[str, Any]]:
    """Return the batches of an epoch.

    Raises:
        Error: They are not batches. `what` is the name of the argument.
    """
    given = batches
    if callable(batches):
        given = batches(epoch) if _takes_epoch(batches) else batches()
    if not isinstance(given, Iterable) or isinstance(given, Mapping):
        subject = f"the function of {what} gives" if callable(batches) else f"{what} is"
        raise Error(f"{subject} {type(given).__name__}; expected batches, each a mapping of names to arrays")
    return given


def _takes_epoch(function: Callable[..., Any]) -> bool:
    """Return whether a function requires an argument."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a function of C
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(p.kind in positional and p.default is inspect.Parameter.empty for p in parameters)


def _placed(
    batches: Batches, epochs: int | None, steps: int | None, begin: Place
) -> Iterator[tuple[Mapping[str, Any], Place, bool]]:
    """Yield the batches from a position on: each with the position after it, and whether an epoch ends there."""
    if epochs is None and steps is None:
        epochs = 1
    number, first, skipped = begin
    for epoch in count(first):
        if (epochs is not None and epoch >= epochs) or (steps is not None and number >= steps):
            return
        present = iter(epoch_of(batches, epoch, "batches"))
        index = sum(1 for _ in islice(present, skipped))
        batch = next(present, None)
        if batch is None and not skipped:
            hint = None if epoch == 0 else "an iterator ends for good: give a list, or a function that makes a new one"
            raise Error(f"epoch {epoch + 1} has no batch", hint=hint)
        skipped = 0
        while batch is not None:
            number, index = number + 1, index + 1
            if number == steps:
                yield batch, (number, epoch, index), True
                return
            following = next(present, None)
            yield batch, (number, epoch, index) if following is not None else (number, epoch + 1, 0), following is None
            batch = following


def _total(batches: Batches, epochs: int | None, steps: int | None) -> int | None:
    """Return the total number of steps, if it is known."""
    if not isinstance(batches, Sized):
        return steps
    num_batches = None if epochs is None and steps is not None else len(batches) * (epochs or 1)
    return min((n for n in (num_batches, steps) if n is not None), default=None)


class _Progress:
    """One line on a terminal, which is rewritten at most ten times a second."""

    _WIDTH = 24
    _INTERVAL = 0.1

    def __init__(self, total: int | None, enabled: bool, before: int):
        self._total, self._before = total, before  # the number of steps, in total and before this call
        self._on = enabled and sys.stderr is not None and sys.stderr.isatty()
        self._start = self._shown = time.monotonic()
        self._last: Entry | None = None
        self._metrics: dict[str, Real] = {}

    def show(self, entry: Entry) -> None:
        """Show a step."""
        if not self._on:
            return
        self._last = entry
        # Metrics that only some steps have stay on the line with their last values.
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
        rate = (done - self._before) / max(self._shown - self._start, 1e-9)
        text = f"{rate:.3g} steps/s"
        if self._total is None:
            text = f"{done}  {text}"
        else:
            bar = "#" * (self._WIDTH * done // self._total)
            seconds_left = (self._total - done) / max(rate, 1e-9)
            text = f"[{bar:-<{self._WIDTH}}] {done}/{self._total}  {text}, {seconds_left:.0f} s left"
        text += "  " + ", ".join(f"{name} {value:.4g}" for name, value in self._metrics.items())
        # A line that wraps could not be overwritten.
        text = printable(text, keep="")
        sys.stderr.write(f"\r{text[: shutil.get_terminal_size().columns - 1]}\x1b[K")
        sys.stderr.flush()

"""The training loop of `fit`."""

from __future__ import annotations

import functools
import inspect
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any, Protocol

from rlx.support.errors import Error
from rlx.train.fit_options import LoopOptions
from rlx.train.loggers import Logger
from rlx.train.progress_bar import ProgressBar
from rlx.train.step import TrainStep
from rlx.train.training_history import TrainingHistory
from rlx.train.validation import Judge, best_file

Batches = Iterable[Mapping[str, Any]] | Callable[..., Iterable[Mapping[str, Any]]]
Entry = dict[str, Any]
Place = tuple[int, int, int]  # steps, epoch, batches of the epoch


class TrainingLog(Protocol):
    """Records the steps of a loop and shows them.

    Attributes:
        history: The entries that `fit` returns.
    """

    history: TrainingHistory

    def record(self, entry: Entry, place: Place, *, ends_epoch: bool, has_judged: bool) -> Entry | None:
        """Record a step. Return the entry that callbacks are called with, if there is one."""
        ...

    def show(self, entry: Entry, row: Entry | None) -> None:
        """Show a step, after the callbacks."""
        ...

    def store(self, step: TrainStep) -> None:
        """Set the part of the history that a checkpoint contains."""
        ...

    def finish(self, entry: Entry) -> None:
        """Record the last step, after the last checkpoint."""
        ...

    def close(self) -> None:
        """End the display."""
        ...


class StepLog:
    """The history and display of `fit` for a `TrainStep`: an entry for each step."""

    def __init__(self, every: int, bar: ProgressBar):
        self.history = TrainingHistory()
        self._every, self._bar = every, bar

    def record(self, entry: Entry, place: Place, *, ends_epoch: bool, has_judged: bool) -> Entry | None:
        """Record a step."""
        if place[0] % self._every == 0 or has_judged:
            self.history.append(entry)
        return entry

    def show(self, entry: Entry, row: Entry | None) -> None:
        """Show a step."""
        self._bar.show(entry["step"], entry)

    def store(self, step: TrainStep) -> None:
        """Store nothing: the caller has the entries."""

    def finish(self, entry: Entry) -> None:
        """Record the last step, if it is not recorded."""
        if entry and (not self.history or self.history[-1] is not entry):
            self.history.append(entry)

    def close(self) -> None:
        """End the line."""
        self._bar.close()


def fit_step(step: TrainStep, batches: Any, validation: Any, options: LoopOptions) -> TrainingHistory:
    """Call a training step for each batch: see `fit`."""
    judge = judge_of(step, validation, options)
    begin(step, options)
    bar = ProgressBar(total_steps(batches, options), enabled=options.progress, done=step.position[0])
    log = StepLog(options.log_every, bar)
    FitLoop(step, batches, judge, log, options).run()
    return log.history


@dataclass
class FitLoop:
    """The loop of `fit`, after its options have been checked.

    Attributes:
        by_epoch: Whether a checkpoint is written after each epoch, if `checkpoint_every` is absent.
        is_interrupted: Whether the loop should end after a step.
    """

    step: TrainStep
    batches: Any
    judge: Judge | None
    log: TrainingLog
    options: LoopOptions
    by_epoch: bool = False
    is_interrupted: Callable[[], bool] = lambda: False

    def run(self) -> None:
        """Run until the end."""
        step, judge, options = self.step, self.judge, self.options
        if judge is not None and judge.is_over:  # the resumed training had already ended
            self._report_stop(judge)
            judge.go_back()
            return
        entry: Entry = {}
        is_saved = True
        try:
            for batch, place, ends_epoch in placed(self.batches, options.epochs, options.steps, step.position):
                entry = {"step": place[0], **step(batch)}
                step.position = place
                wants_end = judge is not None and judge(entry, ends_epoch)
                has_judged = judge is not None and judge.has_judged
                row = self.log.record(entry, place, ends_epoch=ends_epoch, has_judged=has_judged)
                is_saved = self._is_due(place[0], ends_epoch)
                if is_saved:
                    self._save()
                wants_end = self._observe(entry, row) or wants_end
                self.log.show(entry, row)
                if wants_end or self.is_interrupted():
                    break
        finally:
            self.log.close()
            for observer in options.observers:
                if isinstance(observer, Logger):
                    observer.close()
        if judge is not None and judge.is_over:
            self._report_stop(judge)
        went_back = judge is not None and judge.go_back()
        if entry and options.checkpoint is not None and (went_back or not is_saved):
            self._save()
        self.log.finish(entry)

    def _report_stop(self, judge: Judge) -> None:
        """Set the epoch that `patience` has ended the training in, and show a line about it."""
        _, epoch, batches = self.step.position
        self.log.history.stopped_epoch = epoch + (batches > 0)
        if self.options.progress and sys.stderr is not None:
            sys.stderr.write(f"{judge.stop_line(self.log.history)}\n")

    def _observe(self, entry: Entry, row: Entry | None) -> bool:
        """Call `on_step` and the callbacks. Return whether one of them ends the training."""
        on_step = self.options.on_step
        wants_end = on_step is not None and on_step(entry) is True
        if row is not None:
            for observer in self.options.callbacks:
                wants_end = observer(row) is True or wants_end
        return wants_end

    def _save(self) -> None:
        if self.options.checkpoint is not None:
            self.log.store(self.step)
            self.step.save(self.options.checkpoint)

    def _is_due(self, number: int, ends_epoch: bool) -> bool:
        every = self.options.checkpoint_every
        if self.options.checkpoint is None:
            return False
        return number % every == 0 if every is not None else self.by_epoch and ends_epoch


def begin(step: TrainStep, options: LoopOptions) -> None:
    """Start from a checkpoint if it exists and the training is resumed, else at the first batch."""
    step.position, step.validation, step.log = (0, 0, 0), (math.inf, 0), {}
    if options.resume and options.checkpoint is not None and os.path.exists(options.checkpoint):
        step.load(options.checkpoint)
    elif options.checkpoint is not None:  # the best state of an earlier training is not that of this one
        try:
            Path(best_file(options.checkpoint)).unlink(missing_ok=True)
        except OSError as problem:
            raise Error(f"cannot remove the best state of an earlier training: {problem}") from None


def judge_of(step: TrainStep, validation: Any, options: LoopOptions) -> Judge | None:
    """Return the validation of a loop.

    Raises:
        Error: An option needs a validation.
    """
    if validation is not None:
        return Judge(
            step,
            lambda: epoch_of(validation, 0, "validation"),
            options.validate_every,
            options.patience,
            options.keep_best,
            options.checkpoint,
        )
    for name in ("validate_every", "patience", "keep_best"):
        if getattr(options, name):
            raise Error(f"{name} needs batches to validate with: validation=batches")
    return None


def epoch_of(batches: Any, epoch: int, what: str) -> Iterable[Mapping[str, Any]]:
    """Return the batches of an epoch.

    Raises:
        Error: They are not batches. `what` is the name of the argument.
    """
    is_called = is_function(batches)
    given = _called(batches, epoch) if is_called else batches
    if not isinstance(given, Iterable) or isinstance(given, Mapping):
        subject = f"the function of {what} gives" if is_called else f"{what} is"
        raise Error(f"{subject} {type(given).__name__}; expected batches, each a mapping of names to arrays")
    return given


def is_function(batches: Any) -> bool:
    """Return whether batches are those that a function returns. An iterable that can be called is an iterable."""
    return callable(batches) and not isinstance(batches, Iterable)


def _called(function: Callable[..., Any], epoch: int) -> Any:
    """Call a function, with the epoch if it has a parameter of this name or requires an argument."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # a function of C
        return function()
    kind = inspect.Parameter
    named = parameters.get("epoch")
    is_bound = isinstance(function, functools.partial) and "epoch" in function.keywords
    if named is not None and not is_bound and named.kind in (kind.POSITIONAL_OR_KEYWORD, kind.KEYWORD_ONLY):
        return function(epoch=epoch)
    positional = (kind.POSITIONAL_ONLY, kind.POSITIONAL_OR_KEYWORD)
    is_required = any(p.kind in positional and p.default is kind.empty for p in parameters.values())
    return function(epoch) if is_required else function()


def placed(
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


def total_steps(batches: Any, options: LoopOptions) -> int | None:
    """Return the total number of steps, if it is known."""
    epochs, steps = options.epochs, options.steps
    length = num_batches(batches)
    if length is None:
        return steps
    whole = None if epochs is None and steps is not None else length * (epochs or 1)
    return min((n for n in (whole, steps) if n is not None), default=None)


def num_batches(batches: Any) -> int | None:
    """Return the number of batches of an epoch, if it is known."""
    try:
        return len(batches) if isinstance(batches, Sized) else None
    except TypeError:  # a DataLoader of an IterableDataset
        return None

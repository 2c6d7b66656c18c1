"""`find_learning_rate`: the loss of a module over increasing learning rates."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Unpack

import numpy as np

from rlx.ir.calls import Answered, with_call_errors
from rlx.nn.module import Module
from rlx.runtime.session import Session
from rlx.support.errors import Error
from rlx.support.options import takes_options
from rlx.support.packages import import_package
from rlx.support.short import short_repr
from rlx.train.data import Data
from rlx.train.fit import model_step, optimizer_of, training_data
from rlx.train.fit_options import FIT_NAMES, FitKeywords, FitOptions
from rlx.train.model_step import ModelStep
from rlx.train.schedules import check_count, check_number, exponential
from rlx.train.training_history import save_figure

_SMOOTHING, _DIVERGED = 0.9, 4.0


@dataclass(frozen=True)
class LearningRateSearch(Answered):
    """The losses of a search for a learning rate.

    Attributes:
        rates: The learning rates, increasing.
        losses: The loss of the batch at each of them.
    """

    rates: Sequence[float]
    losses: Sequence[float]

    @property
    def smoothed(self) -> list[float]:
        """Exponential moving averages of the losses, without the bias of their start."""
        mean, result = 0.0, []
        for i, loss in enumerate(self.losses, 1):
            mean = _SMOOTHING * mean + (1 - _SMOOTHING) * loss
            result.append(mean / (1 - _SMOOTHING**i))
        return result

    @property
    def suggestion(self) -> float:
        """The rate at which the smoothed loss decreases fastest, before its minimum.

        L. N. Smith, Cyclical learning rates for training neural networks, 2017, describes the search.

        Raises:
            Error: The loss never decreases.
        """
        losses = np.array(self.smoothed)
        end = int(losses.argmin()) + 1
        if end < 3:
            raise Error("the loss decreases at none of the learning rates", hint="begin lower: start=1e-9")
        slopes = np.gradient(losses[:end], np.log(np.array(self.rates[:end])))
        return float(self.rates[int(slopes.argmin())])

    def plot(self, *, path: Any = None) -> Any:
        """Draw the losses with matplotlib. Returns the `matplotlib.figure.Figure`.

        Args:
            path: A file to write the picture to.

        Raises:
            Error: matplotlib is not installed, or the file cannot be written.
        """
        figure = import_package("matplotlib.figure", "plot()").Figure(figsize=(5.5, 3.6), layout="constrained")
        place = figure.subplots()
        place.semilogx(self.rates, self.losses, alpha=0.3, color="C0", label="loss of a batch")
        place.semilogx(self.rates, self.smoothed, color="C0", label="smoothed")
        with contextlib.suppress(Error):  # the loss never decreases: there is no suggestion to draw
            suggestion = self.suggestion
            place.axvline(suggestion, color="C1", linestyle="--", label=f"suggestion {suggestion:.2g}")
        place.set(xlabel="learning rate", ylabel="loss")
        place.grid(alpha=0.3)
        place.legend()
        if path is not None:
            save_figure(figure, path)
        return figure

    def __repr__(self) -> str:
        return f"<LearningRateSearch of {len(self.rates)} rates from {self.rates[0]:.3g} to {self.rates[-1]:.3g}>"


@with_call_errors
@takes_options(FitOptions)
def find_learning_rate(
    model: Module,
    data: Any,
    *,
    start: float = 1e-6,
    end: float = 10.0,
    num_rates: int = 100,
    **options: Unpack[FitKeywords],
) -> LearningRateSearch:
    """Train from the initial parameters with a learning rate that grows with each step, and record the losses.

    It ends early if the loss grows to four times its minimum. If the minimum is not positive, it ends when the loss is above
    the minimum by three times the larger of the minimum's absolute value and the decrease since the first loss. The model
    is not changed.

    Args:
        model: A module.
        data: The data, as for `fit`.
        start: The first learning rate.
        end: The last learning rate.
        num_rates: The number of steps.
        options: Options of `fit`, such as `loss`, `optimizer` and `batch_size`. The optimiser's own rate is not used.

    Raises:
        Error: As for `fit`.
    """
    unknown = options.keys() - FIT_NAMES
    if unknown:
        raise TypeError(f"got an unexpected keyword argument '{min(unknown)}'")
    if not isinstance(model, Module):
        raise Error(f"model must be a module of rlx.nn, got {short_repr(model)}")
    check_number("start", start, above=0)
    check_number("end", end, above=start)
    check_count("num_rates", num_rates, least=10)
    chosen = FitOptions(**options)
    train, _, layout = training_data(model, data, chosen)
    growth = end / start
    schedule = exponential(start, num_rates - 1, growth)
    optimizer = replace(optimizer_of(chosen.optimizer), learning_rate=schedule)
    step = model_step(model, train, layout, optimizer, Session(chosen.device, threads=chosen.threads), chosen)
    step.checks_loss = False  # the loss is expected to diverge
    losses = _losses(step, train, num_rates)
    return LearningRateSearch([start * growth ** (i / (num_rates - 1)) for i in range(len(losses))], losses)


def _limit(losses: Sequence[float]) -> float:
    """Return the loss that ends a search: four times the minimum, or its equivalent for a minimum that is not positive."""
    least = min(losses)
    size = least if least > 0 else max(-least, losses[0] - least)
    return least + (_DIVERGED - 1) * size


def _losses(step: ModelStep, data: Data, most: int) -> list[float]:
    losses: list[float] = []
    for epoch in count():
        done = len(losses)
        for batch in data(epoch):
            loss = step(batch)["loss"]
            if not math.isfinite(loss) or (losses and loss > _limit(losses)):
                if losses:
                    return losses
                raise Error(f"the first loss is {loss}", hint="check the data for NaN, or begin lower: start=1e-9")
            losses.append(loss)
            if len(losses) == most:
                return losses
        if len(losses) == done:
            raise Error(
                f"epoch {epoch + 1} has no batch", hint="give data that can be read more than once, such as a list"
            )
    raise AssertionError

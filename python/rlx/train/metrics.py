"""Metrics of `fit`: sums that the program computes for each batch, and numbers computed from their totals."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rlx import ops
from rlx.ir.calls import Answered
from rlx.ir.graph.builder import Tensor
from rlx.support.errors import Error, ShapeError
from rlx.support.short import short_repr
from rlx.support.suggestions import suggestion
from rlx.train.losses import Task, fitted

Average = Literal["macro", "micro", "weighted"]
_AVERAGES = ("macro", "micro", "weighted")


class Metric(Answered, ABC):
    """A number that is exact over all batches, whatever their sizes. Subclass it for another metric.

    Attributes:
        name: The name in the history.
    """

    name: str = "metric"

    @abstractmethod
    def sums(self, outputs: Any, targets: Any, task: Task) -> Tensor:
        """Return the sums of a batch as one tensor of fixed shape. Those of several batches are added.

        Args:
            outputs: The outputs of the model: logits, if it ends with a softmax or sigmoid and the loss is a cross
                entropy.
            targets: The targets.
            task: The meaning of both.
        """

    @abstractmethod
    def result(self, totals: np.ndarray) -> float:
        """Return the metric of the totals of some batches, an array of f64."""


@dataclass(frozen=True)
class _Mean(Metric):
    """The mean of a number over all elements, from its sum and the number of elements."""

    def sums(self, outputs: Any, targets: Any, task: Task) -> Tensor:
        values = self.values(outputs, targets, task)
        whole = values.dtype.is_integer or values.dtype.is_bool
        values = ops.cast(values, "i32" if whole else "f32")
        count = ops.sum(ops.ones_like(values))
        return ops.stack([ops.sum(values), count])

    @abstractmethod
    def values(self, outputs: Any, targets: Any, task: Task) -> Tensor:
        """Return the numbers to average."""

    def result(self, totals: np.ndarray) -> float:
        return float(totals[0] / totals[1]) if totals[1] else float("nan")


@dataclass(frozen=True)
class Accuracy(_Mean):
    """The share of right labels. With binary targets, an output is positive if its logit is, or its probability is over 0.5."""

    name: str = "accuracy"

    def values(self, outputs: Any, targets: Any, task: Task) -> Tensor:
        predicted, expected = labels(outputs, targets, task, self.name)
        return ops.eq(predicted, expected)


@dataclass(frozen=True)
class TopAccuracy(_Mean):
    """The share of labels that are among the `k` largest outputs."""

    name: str = "top_5_accuracy"
    k: int = 5

    def values(self, outputs: Any, targets: Any, task: Task) -> Tensor:
        if task.kind != "labels" or task.classes < self.k:
            raise ShapeError(f"metric '{self.name}' needs labels of at least {self.k} classes", hint="use 'accuracy'")
        logits = ops.moveaxis(outputs, task.axis, -1)
        own = ops.take_along_axis(logits, ops.expand_dims(targets, -1), axis=-1)
        above = ops.sum(ops.cast(logits > own, "i32"), -1)  # an equal output counts as smaller
        return above < self.k


@dataclass(frozen=True)
class MeanAbsoluteError(_Mean):
    """The mean absolute difference of outputs and targets."""

    name: str = "mae"

    def values(self, outputs: Any, targets: Any, task: Task) -> Tensor:
        return ops.abs(outputs - _numbers(outputs, targets, self.name))


@dataclass(frozen=True)
class MeanSquaredError(_Mean):
    """The mean squared difference of outputs and targets; `root` takes its square root."""

    name: str = "mse"
    root: bool = False

    def values(self, outputs: Any, targets: Any, task: Task) -> Tensor:
        difference = outputs - _numbers(outputs, targets, self.name)
        return difference * difference

    def result(self, totals: np.ndarray) -> float:
        mean = super().result(totals)
        return float(np.sqrt(mean)) if self.root else mean


@dataclass(frozen=True)
class R2Score(Metric):
    """The coefficient of determination, `1 - Σ(y - f)² / Σ(y - mean(y))²`, over all elements."""

    name: str = "r2"

    def sums(self, outputs: Any, targets: Any, task: Task) -> Tensor:
        targets = ops.cast(_numbers(outputs, targets, self.name), "f32")
        difference = ops.cast(outputs, "f32") - targets
        parts = [difference * difference, targets, targets * targets, ops.ones_like(targets)]
        return ops.stack([ops.sum(part) for part in parts])

    def result(self, totals: np.ndarray) -> float:
        rest, total, squares, count = totals
        spread = squares - total * total / count if count else 0.0
        return float(1 - rest / spread) if spread > 0 else float("nan")


@dataclass(frozen=True)
class _FromCounts(Metric):
    """A metric of the right, the predicted and the actual number of each class.

    As in scikit-learn, `macro` is the mean over the classes that occur in predictions or targets, `weighted` the mean
    weighted by the actual numbers, and `micro` is computed from the sums over classes. For two classes of one output, it
    is the metric of class 1. A quotient of zeros is 0.
    """

    average: Average = "macro"

    def __post_init__(self) -> None:
        if self.average not in _AVERAGES:
            raise Error(f"average must be one of {', '.join(_AVERAGES)}, got {short_repr(self.average)}")

    def sums(self, outputs: Any, targets: Any, task: Task) -> Tensor:
        predicted, expected = labels(outputs, targets, task, self.name)
        if task.kind == "binary":
            counts = [
                ops.reshape(ops.sum(ops.cast(c, "i32")), (1,)) for c in (predicted * expected, predicted, expected)
            ]
            return ops.stack(counts)
        flat = [ops.reshape(x, (-1,)) for x in (predicted, expected)]
        ours, theirs = (ops.one_hot(x, task.classes, "i32") for x in flat)
        return ops.stack([ops.sum(ours * theirs, 0), ops.sum(ours, 0), ops.sum(theirs, 0)])

    def result(self, totals: np.ndarray) -> float:
        if self.average == "micro":
            return float(self.share(*totals.sum(1, keepdims=True))[0])
        right, predicted, actual = totals
        shares = self.share(right, predicted, actual)
        present = (predicted > 0) | (actual > 0) if self.average == "macro" else actual
        return float(np.average(shares, weights=present)) if present.any() else 0.0

    @staticmethod
    @abstractmethod
    def share(right: np.ndarray, predicted: np.ndarray, actual: np.ndarray) -> np.ndarray:
        """Return the metric of each class."""


@dataclass(frozen=True)
class PrecisionScore(_FromCounts):
    """The share of predictions that are right, of each class: see `average`."""

    name: str = "precision"

    @staticmethod
    def share(right: np.ndarray, predicted: np.ndarray, actual: np.ndarray) -> np.ndarray:
        return _quotient(right, predicted)


@dataclass(frozen=True)
class RecallScore(_FromCounts):
    """The share of each class that is found: see `average`."""

    name: str = "recall"

    @staticmethod
    def share(right: np.ndarray, predicted: np.ndarray, actual: np.ndarray) -> np.ndarray:
        return _quotient(right, actual)


@dataclass(frozen=True)
class F1Score(_FromCounts):
    """The harmonic mean of precision and recall, of each class: see `average`."""

    name: str = "f1"

    @staticmethod
    def share(right: np.ndarray, predicted: np.ndarray, actual: np.ndarray) -> np.ndarray:
        return _quotient(2 * right, predicted + actual)


@dataclass(frozen=True)
class MeanOf(_Mean):
    """The mean of a function of outputs and targets. It returns a number for each sample, or the mean of a batch."""

    name: str = "metric"
    function: Callable[[Any, Any], Any] | None = None

    def sums(self, outputs: Any, targets: Any, task: Task) -> Tensor:
        values = self.values(outputs, targets, task)
        if values.rank:
            return super().sums(outputs, targets, task)
        first: Any = outputs if isinstance(outputs, Tensor) else next(iter(_leaves(outputs)))
        size = ops.sum(ops.ones_like(ops.reshape(first, (first.shape.dims[0], -1))[:, 0]))
        return ops.stack([ops.cast(values, "f32") * ops.cast(size, "f32"), ops.cast(size, "f32")])

    def values(self, outputs: Any, targets: Any, task: Task) -> Tensor:
        assert self.function is not None
        value = self.function(outputs, targets)
        if not isinstance(value, Tensor):
            raise ShapeError(f"the metric {self.name} must return a tensor, got {type(value).__name__}")
        return value


def _leaves(value: Any) -> Sequence[Any]:
    return list(value.values() if isinstance(value, Mapping) else value)


def _quotient(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    return np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0)


def labels(outputs: Any, targets: Any, task: Task, name: str) -> tuple[Tensor, Tensor]:
    """Return predicted and actual labels, i32 of one shape.

    Raises:
        ShapeError: The task has no labels.
    """
    if task.kind == "labels":
        return ops.argmax(outputs, task.axis), ops.cast(targets, "i32")
    if task.kind == "probabilities":
        return ops.argmax(outputs, task.axis), ops.argmax(targets, task.axis)
    if task.kind == "binary":
        targets = fitted(outputs, targets, f"metric '{name}'")
        return ops.cast(outputs > 0, "i32"), ops.cast(targets > 0.5, "i32")
    raise ShapeError(
        f"metric '{name}' needs labels, which this loss does not have",
        hint="use a loss of labels, such as 'cross_entropy', or a function: metrics={'accuracy': lambda outputs, targets: …}",
    )


def _numbers(outputs: Any, targets: Any, name: str) -> Any:
    if not isinstance(outputs, Tensor) or not isinstance(targets, Tensor):
        raise ShapeError(f"metric '{name}' takes one tensor of outputs and of targets", hint="pass a function instead")
    return fitted(outputs, targets, f"metric '{name}'")


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        *(Accuracy(), TopAccuracy(), F1Score(), PrecisionScore(), RecallScore()),
        *(MeanAbsoluteError(), MeanSquaredError(), MeanSquaredError("rmse", root=True), R2Score()),
    )
}
_OTHER_NAMES = {
    **dict.fromkeys(["acc", "sparse_categorical_accuracy", "categorical_accuracy", "binary_accuracy"], "accuracy"),
    **dict.fromkeys(["f1_score", "f1score"], "f1"),
    **dict.fromkeys(["top5", "top_5", "top_k_categorical_accuracy"], "top_5_accuracy"),
    **{"mean_absolute_error": "mae", "mean_squared_error": "mse", "root_mean_squared_error": "rmse"},
    **dict.fromkeys(["r2_score"], "r2"),
}
_RESERVED = ("loss", "step", "epoch", "learning_rate")


def metrics_of(given: Any) -> dict[str, Metric]:
    """Return metrics by name: from names, `Metric`s and functions in a list, or by name in a mapping.

    Raises:
        Error: An entry is not one of these, or two have one name; the message lists the names.
    """
    if isinstance(given, (str, Metric)) or not isinstance(given, (Sequence, Mapping)):
        raise Error(f"metrics must be a list, got {short_repr(given)}", hint="metrics=['accuracy', 'f1']")
    pairs = list(given.items()) if isinstance(given, Mapping) else [(None, entry) for entry in given]
    result: dict[str, Metric] = {}
    for name, entry in pairs:
        metric = _metric(entry, name)
        name = metric.name if name is None else str(name)
        if name in result or name in _RESERVED or name.startswith("val_"):
            raise Error(f"a metric cannot have the name '{name}', which is already used", hint="metrics={'name': …}")
        result[name] = metric
    return result


def _metric(entry: Any, name: Any) -> Metric:
    if isinstance(entry, type) and issubclass(entry, Metric):
        entry = entry()
    if isinstance(entry, Metric):
        return entry
    if isinstance(entry, str):
        known = METRICS.get(_OTHER_NAMES.get(entry, entry))
        if known is None:
            close = suggestion(entry, [*METRICS, *_OTHER_NAMES])
            raise Error(
                f"there is no metric {short_repr(entry)}{close}; there are {', '.join(METRICS)}",
                hint="another metric is a function: metrics={'name': lambda outputs, targets: …}",
            )
        return known
    if callable(entry) and not isinstance(entry, type):
        return MeanOf(str(name if name is not None else getattr(entry, "__name__", "metric")), entry)
    raise Error(
        f"a metric is a name, a Metric or a function, got {short_repr(entry)}", hint=f"names: {', '.join(METRICS)}"
    )

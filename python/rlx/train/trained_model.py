"""`TrainedModel`: the result of `fit` for a module."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlx.ir.calls import Answered
from rlx.nn.module import Module
from rlx.runtime.program import Program
from rlx.runtime.session import Session
from rlx.support.answers import answers
from rlx.support.errors import Error
from rlx.support.packages import import_package
from rlx.support.printable import printable
from rlx.train.batch_layout import BatchLayout, layout_of, place_of
from rlx.train.confusion import ConfusionMatrix
from rlx.train.data import ArrayData, data_of
from rlx.train.model_graphs import ModelGraphs
from rlx.train.model_step import ModelStep, set_values
from rlx.train.schedules import check_count
from rlx.train.training_history import TrainingHistory


class TrainedModel(Answered):
    """A module with trained parameters, its history, and the programs of its training.

    Attributes:
        model: The module.
        history: The losses and metrics of each epoch.
        step: The training step, with the optimiser's state.
        graphs: The graphs of training, evaluation and prediction.
        interrupted: Whether the training was ended by Ctrl-C.
        validation_indices: The positions of the samples that `validation=0.2` held out, `[samples]` integers in ascending
            order. None if validation was not a share of the arrays.
    """

    def __init__(self, model: Module, step: ModelStep, session: Session, history: TrainingHistory, batch_size: int):
        self.model, self.step, self.history, self.interrupted = model, step, history, False
        self.validation_indices: np.ndarray | None = None
        self._session, self._batch_size = session, batch_size
        self._predictor: Program | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"'TrainedModel' object has no attribute '{name}'")
        known = [n for n in (*dir(type(self)), *vars(self)) if n[0] != "_"]
        raise answers().attribute_problem("a TrainedModel", name, "trained", known)

    @property
    def graphs(self) -> ModelGraphs:
        """The graphs of training, evaluation and prediction: `graphs.prediction` can be compiled for any target."""
        return self.step.graphs

    # --- parameters -------------------------------------------------------------------------------

    @property
    def params(self) -> dict[str, np.ndarray]:
        """The trained parameters and buffers by name, in PyTorch's layouts; moving averages, if there are any (`ema=`)."""
        values = self.step.values()
        return {name: values[name] for name in self.model.parameters()}

    def state_dict(self) -> dict[str, Any]:
        """Return the parameters as tensors of PyTorch, for `load_state_dict` of the same network.

        Raises:
            Error: PyTorch is not installed.
        """
        torch = import_package("torch", "state_dict()")
        return {name: torch.from_numpy(array) for name, array in self.params.items()}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the parameters to a safetensors file, which `Module.load` and PyTorch read.

        Raises:
            Error: The file cannot be written.
        """
        self.model.save(path, self.params)

    # --- use --------------------------------------------------------------------------------------

    def evaluate(self, data: Any, *, batch_size: int | None = None) -> dict[str, float]:
        """Return the loss and the metrics of data, in inference mode.

        Args:
            data: Inputs and targets in any form that `fit` takes.
            batch_size: The number of samples of a batch, for arrays; that of the training by default.

        Raises:
            Error: The data is empty, does not fit the model or has NaN that makes the loss NaN, or `batch_size` is not a
                positive integer.
        """
        batches, layout = data_of(data, self.model, "data", self._checked_size(batch_size))
        check_layout(self.graphs.layout, layout, "data")
        return self.step.evaluate(batches(0))

    def predict(self, x: Any, *, batch_size: int | None = None) -> Any:
        """Return the outputs of the module for inputs, in inference mode.

        Args:
            x: An array of samples; a tuple or dictionary of arrays, for a module with several inputs.
            batch_size: The number of samples that are computed at once; that of the training by default.

        Returns:
            An array, or arrays in the container that `forward` returns. A last layer without softmax gives logits.

        Raises:
            Error: The inputs are empty or do not fit the model, or `batch_size` is not a positive integer.
        """
        size = self._checked_size(batch_size)
        layout = layout_of(self.model, x, "x", target=False)
        arrays = layout.batch(x, "x")
        program = self._ready()
        parts = [program.run(batch) for batch in ArrayData(arrays, size)(0)]
        joined = [np.concatenate(entries) for entries in zip(*parts, strict=True)]
        container = self.graphs.container
        if container is None:
            return joined[0]
        if issubclass(container, Mapping):
            return dict(zip((o.name for o in self.graphs.prediction.outputs), joined, strict=True))
        if hasattr(container, "_make"):  # a named tuple
            return container(*joined)
        return joined if issubclass(container, list) else tuple(joined)

    def _checked_size(self, batch_size: int | None) -> int:
        return self._batch_size if batch_size is None else check_count("batch_size", batch_size)

    def _ready(self) -> Program:
        """Return the program of the prediction graph, with the current parameters."""
        graph, values = self.graphs.prediction, self.step.values()
        if self._predictor is None:
            self._predictor = self._session.compile(graph, params={a.name: values[a.name] for a in graph.params})
        else:
            set_values(self._predictor, graph, values)
        return self._predictor

    def __call__(self, x: Any) -> Any:
        """Return the outputs for inputs: see `predict`."""
        return self.predict(x)

    def confusion_matrix(self, data: Any, *, names: Sequence[str] | None = None) -> ConfusionMatrix:
        """Return the numbers of samples of each actual and predicted class. Notebooks show a picture.

        The labels of samples with several labels of 0 or 1 are counted together, in one matrix of 2×2.

        Args:
            data: Inputs and labels in any form that `fit` takes.
            names: The names of the classes.

        Raises:
            Error: The targets are not labels, a label is not that of a class, or the data does not fit.
        """
        task = self.graphs.task
        if task.kind == "values":
            raise Error(
                "a confusion matrix needs labels, which this loss does not have", hint="train with cross_entropy"
            )
        batches, layout = data_of(data, self.model, "data", self._batch_size)
        check_layout(self.graphs.layout, layout, "data")
        target = self.graphs.layout.targets[0]
        counts, program = np.zeros((task.classes, task.classes), np.int64), self._ready()
        targets = np.zeros((0,))
        for batch in batches(0):
            targets = self.graphs.with_targets_as_trained(batch)[target]
            what, samples = place_of(batch, "a batch")
            self.step.check_labels(targets, f"{target} of {what}", samples)
            outputs = program.run({n: batch[n] for n in layout.inputs})[0]
            predicted, actual = self._labels(outputs, targets)
            wrong = (actual < 0) | (actual >= task.classes)
            if wrong.any():  # labels that a loss function of the caller ignores
                raise Error(
                    f"{target} of a batch has the label {actual[wrong][0]}; expected 0 to {task.classes - 1}",
                    hint="leave out samples without a class",
                )
            np.add.at(counts, (actual.reshape(-1), predicted.reshape(-1)), 1)
        labels = int(np.prod(targets.shape[1:])) if task.kind == "binary" else 1
        return ConfusionMatrix(counts, names, pooled=labels if labels > 1 else None)

    def _labels(self, outputs: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        task = self.graphs.task
        if task.kind == "binary":
            limit = 0.5 if self.step.ends_with_probabilities else 0.0
            return (outputs > limit).astype(int), (targets > 0.5).astype(int)
        actual = targets if task.kind == "labels" else targets.argmax(task.axis)
        return outputs.argmax(task.axis), actual

    def plot(self, names: Sequence[str] | None = None, *, path: Any = None) -> Any:
        """Draw the curves of the history: see `TrainingHistory.plot`."""
        return self.history.plot(names, path=path)

    def __repr__(self) -> str:
        last = {n: v for n, v in (self.history[-1] if self.history else {}).items() if is_number(v)}
        numbers = ", ".join(f"{n}={v:.4g}" for n, v in last.items())
        return printable(f"<TrainedModel {type(self.model).__name__}: {numbers or 'not trained'}>", keep="")

    def _repr_html_(self) -> str | None:
        return self.history._repr_html_()


def is_number(value: Any) -> bool:
    """Whether a value of an entry is a number."""
    return isinstance(value, (int, float))


def check_layout(expected: BatchLayout, layout: BatchLayout, what: str) -> None:
    """Check that data has the arrays of the training data.

    Raises:
        Error: It has other arrays.
    """
    # The same arrays may be named in one and in order in the other.
    if {*layout.inputs} != {*expected.inputs} or {*layout.targets} != {*expected.targets}:
        ours = ", ".join((*expected.inputs, *expected.targets))
        theirs = ", ".join((*layout.inputs, *layout.targets))
        raise Error(f"{what} has the arrays {theirs}; the training data has {ours}")

"""The graphs of a module for training, evaluation and prediction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.shape import Shape
from rlx.nn.module import Module
from rlx.support.errors import Error, ShapeError
from rlx.support.guards import is_dict, is_sequence
from rlx.train.batch_layout import Batch, BatchLayout
from rlx.train.losses import Loss, Task
from rlx.train.metrics import Metric

BATCH = "batch"  # the symbol of the number of samples
SUMS = "sums/"  # the prefix of the outputs with the sums of a metric


@dataclass(frozen=True)
class ModelGraphs:
    """The three graphs of a module. All have its parameters under the same names, and the symbol `batch`.

    Attributes:
        training: Takes inputs and targets. Returns the loss and the sums of the metrics, in training mode.
        evaluation: The same in inference mode.
        prediction: Takes the inputs and returns the outputs of the module, in inference mode.
        layout: The names of inputs and targets.
        task: The meaning of outputs and targets.
        ends_with_probabilities: Whether the module ends with a softmax or sigmoid that the loss leaves out.
        container: The type of the dictionary or sequence that `forward` returns; None for one tensor.
    """

    training: Graph
    evaluation: Graph
    prediction: Graph
    layout: BatchLayout
    task: Task
    ends_with_probabilities: bool = False
    container: type[Any] | None = None

    def with_targets_as_trained(self, batch: Mapping[str, np.ndarray], what: str = "a batch") -> Batch:
        """Return a batch whose targets have the shapes and dtypes of those of the training.

        A last axis of size 1 is added or removed, integers become floats, and floats with integer values integers.

        Raises:
            Error: The targets have other sizes or values.
        """
        shapes = {argument.name: argument.shape for argument in self.evaluation.inputs}
        arrays = dict(batch)
        for name in self.layout.targets:
            if name in arrays:
                arrays[name] = _as_trained(np.asarray(arrays[name]), shapes[name], f"{name} of {what}")
        return arrays


def _as_trained(array: np.ndarray, expected: Shape, what: str) -> np.ndarray:
    """Return an array of targets in the shape and dtype of an input of a graph; see `with_targets_as_trained`."""
    sizes: tuple[int, ...] = array.shape[1:]
    wanted: Any = expected.dims[1:]  # fixed, except for the samples
    dtype = np.dtype(expected.dtype.numpy)
    converted = array if array.dtype == dtype else _converted(array, dtype)
    if converted is None or (sizes != wanted and sizes != (*wanted, 1) and wanted != (*sizes, 1)):
        got = Shape((BATCH, *sizes), array.dtype)
        raise Error(f"{what} is {got}, and that of the training data {expected}")
    return converted if sizes == wanted else converted.reshape((len(array), *wanted))


def _converted(array: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray | None:
    """Return numbers in another dtype, if that is exact for integers."""
    if dtype.kind == "i" or dtype.kind == "u":
        with np.errstate(invalid="ignore"):
            result = array.astype(dtype)
        return result if np.array_equal(result, array) else None
    return array.astype(dtype)


def build_graphs(
    model: Module, layout: BatchLayout, first: Batch, loss: Loss, metrics: Mapping[str, Metric], seed: int
) -> ModelGraphs:
    """Return the graphs of a module.

    Args:
        model: The module.
        layout: The names of the arrays of a batch.
        first: A batch, for shapes and dtypes.
        loss: The loss.
        metrics: The metrics by name.
        seed: The seed of layers such as `Dropout`.

    Raises:
        Error: Shapes do not fit the module, the loss or a metric.
    """
    shapes = {n: Shape((BATCH, *a.shape[1:]), _dtype(a)) for n, a in first.items()}
    name = type(model).__name__
    tasks: list[tuple[Task, bool]] = []

    def with_loss(kind: str, training: bool) -> Graph:
        g = Graph(f"{name}_{kind}")
        outputs = _called(model, g, layout, shapes, training, seed)
        targets = _targets(g, layout, shapes)
        task = loss.task(outputs, targets)
        logits = loss.logits(outputs, task)
        tasks.append((task, logits is not outputs))
        found = {"loss": loss.emit(logits, targets, task)}
        for metric_name, metric in metrics.items():
            sums = metric.sums(logits, targets, task)
            if not isinstance(sums, Tensor) or not all(type(d) is int for d in sums.shape.dims):
                raise ShapeError(f"metric '{metric_name}': sums must return a tensor of fixed shape, got {sums!r:.80}")
            found[SUMS + metric_name] = sums
        g.set_outputs(found)
        return g

    training = with_loss("training", True)
    evaluation = with_loss("evaluation", False)
    prediction, container = prediction_graph(model, layout, shapes)
    return ModelGraphs(training, evaluation, prediction, layout, *tasks[0], container)


def prediction_graph(model: Module, layout: BatchLayout, shapes: Mapping[str, Shape]) -> tuple[Graph, type[Any] | None]:
    """Return the graph of a module in inference mode, and the type of its container of outputs."""
    g = Graph(type(model).__name__)
    outputs = _called(model, g, layout, shapes, False, 0)
    is_single = isinstance(outputs, Tensor)
    g.set_outputs({"output": outputs} if is_single else outputs)
    return g, None if is_single else type(outputs)


def _dtype(array: np.ndarray) -> Any:
    return array.dtype


def _called(
    model: Module, g: Graph, layout: BatchLayout, shapes: Mapping[str, Shape], training: bool, seed: int
) -> Any:
    """Call the module on inputs of a graph. Returns its outputs: a tensor, or tensors in a list or dictionary."""
    tensors = {n: g.input(n, shapes[n].dims, shapes[n].dtype) for n in layout.inputs}
    args = [tensors[n] for n in layout.args]
    kwargs = {n: tensors[n] for n in layout.kwargs}
    try:
        outputs = model(*args, training=training, seed=seed, **kwargs)
    except TypeError as problem:
        if "DimExpr" not in str(problem):
            raise
        raise Error(
            f"{type(model).__name__}.forward needs a fixed number of samples, and it is the symbol '{BATCH}': {problem}",
            hint="ops take it, x.reshape((x.shape[0], -1)) or rlx.ops.zeros_like(x); NumPy and range() do not",
        ) from problem
    entries = outputs.values() if is_dict(outputs) else outputs if is_sequence(outputs) else [outputs]
    for entry in entries:
        if not isinstance(entry, Tensor):
            raise Error(f"{type(model).__name__}.forward must return tensors, got {type(entry).__name__}")
    return outputs


def _targets(g: Graph, layout: BatchLayout, shapes: Mapping[str, Shape]) -> Any:
    tensors = {n: g.input(n, shapes[n].dims, shapes[n].dtype) for n in layout.targets}
    if isinstance(layout.target, dict):
        return {key: tensors[n] for key, n in layout.target.items()}
    return tuple(tensors.values()) if isinstance(layout.target, tuple) else tensors[layout.target]

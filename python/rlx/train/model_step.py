"""`ModelStep`: the training step of a module, for batches of any size and with exact metrics."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from rlx.ir.graph.graph import Graph
from rlx.runtime.program import Program
from rlx.runtime.session import Session
from rlx.support.errors import Error
from rlx.train.batch_layout import Batch, converted, place_of, unusual_number
from rlx.train.losses import Loss
from rlx.train.metrics import Metric
from rlx.train.model_graphs import BATCH, SUMS, ModelGraphs
from rlx.train.optimizers import Optimizer
from rlx.train.step import TrainStep


class ModelStep(TrainStep):
    """The step of a module that `fit` makes. It is a `TrainStep`, with these differences.

    A batch of another size than the first one runs in a second program for any size, to which the parameters and states are
    copied and from which they are copied back. `evaluate` weighs each batch by its number of samples. Metrics are
    computed from sums over all samples.

    Args:
        graphs: The graphs of the module.
        optimizer: The optimiser.
        batch_size: The size of most batches.
        loss: The loss.
        metrics: The metrics by name.
        session: The session that compiles.
        options: Other arguments of `TrainStep`, and its options.

    Attributes:
        graphs: The graphs.
        batch_size: The size that the first program is compiled for.
        checks_loss: Whether a loss that is not finite is an error.
        sums: The sums of the last batch: its number of samples, the loss times that number, and those of the metrics.

    Raises:
        Error: As for `TrainStep`.
    """

    def __init__(
        self,
        graphs: ModelGraphs,
        optimizer: Optimizer,
        batch_size: int,
        loss: Loss,
        metrics: Mapping[str, Metric],
        session: Session,
        options: Mapping[str, Any],
    ):
        self.graphs, self.batch_size, self._loss_function, self._metrics = graphs, batch_size, loss, metrics
        self.sums: dict[str, np.ndarray] = {}
        self._arguments = (optimizer, dict(options), session)
        self._any_size: TrainStep | None = None
        self._evaluator: Program | None = None
        bind = {**(options.get("bind") or {}), BATCH: batch_size}
        arguments: Any = {**options, "bind": bind, "device": session.device, "threads": session.threads}
        super().__init__(graphs.training, optimizer, **arguments)
        # With a scale, steps whose gradients are not finite are skipped.
        self.checks_loss = self.loss_scale is None and options.get("loss_scale") is None

    def __call__(self, batch: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Take one step; see `TrainStep`.

        Returns:
            The loss before the update, and the metrics of this batch.

        Raises:
            Error: An array does not fit, a label is out of range, or the loss is not finite.
        """
        arrays = _arrays(batch or {})
        size = self._checked(arrays, batch)
        if size == self.batch_size:
            results = super().__call__(arrays)
        else:
            step = self._of_any_size()
            step.restore(self.snapshot())
            results = step(arrays)
            self.restore(step.snapshot())
        self._check_loss(results["loss"], batch or {})
        self.sums = self._summed(results, size)
        return self.results(self.sums)

    @property
    def ends_with_probabilities(self) -> bool:
        """Whether the module ends with a softmax or sigmoid that the loss leaves out."""
        return self.graphs.ends_with_probabilities

    def check_labels(self, targets: np.ndarray, what: str, samples: np.ndarray | None = None) -> None:
        """Check the values of labels; see `Loss.check_labels`."""
        self._loss_function.check_labels(targets, self.graphs.task, what, samples)

    def _of_any_size(self) -> TrainStep:
        if self._any_size is None:
            optimizer, options, session = self._arguments
            arguments: Any = {**options, "device": session.device, "threads": session.threads, "params": self.params()}
            self._any_size = TrainStep(self.graphs.training, optimizer, **arguments)
        return self._any_size

    def _checked(self, batch: Batch, source: Any) -> int:
        """Check the labels of a batch that was made from `source`. Returns its number of samples."""
        layout, (what, samples) = self.graphs.layout, place_of(source, "a batch")
        for name in layout.targets:
            if name in batch:
                self.check_labels(batch[name], f"{name} of {what}", samples)
        first = batch.get(layout.inputs[0])
        return len(first) if first is not None and first.ndim else self.batch_size

    def _check_loss(self, loss: float, batch: Mapping[str, Any]) -> None:
        if math.isfinite(loss):
            return
        at = f"the loss is {loss} at step {self.position[0] + 1} (epoch {self.position[1] + 1})"
        if (found := unusual_number(batch)) is not None:
            raise Error(f"{at}: {found}", hint="clean the data")
        if not self.checks_loss:
            return
        raise Error(
            f"{at}, and the numbers of this batch are finite",
            hint="use a smaller learning rate (rlx.train.find_learning_rate tries several), or clip_norm=1.0; infinities in an "
            "earlier batch can cause it too",
        )

    def _summed(self, results: Mapping[str, Any], size: int) -> dict[str, np.ndarray]:
        sums = {"samples": np.array(size, np.float64), "loss": np.array(size * float(results["loss"]))}
        for name in self._metrics:
            sums[name] = np.asarray(results[SUMS + name], np.float64)
        return sums

    def results(self, sums: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Return the mean loss and the metrics for sums over batches."""
        results = {"loss": float(sums["loss"] / sums["samples"])}
        return results | {name: metric.result(sums[name]) for name, metric in self._metrics.items()}

    def evaluate(self, batches: Iterable[Mapping[str, Any]]) -> dict[str, float]:
        """Return the loss and the metrics over all samples of batches, in inference mode and without an update.

        The parameters are the current ones, or their moving averages (`ema=`). Targets may have, or lack, a last axis
        of size 1 that those of the training lack or have, and may be integers instead of floats.

        Raises:
            Error: There is no batch, an array does not fit, or the loss is not finite because a batch has NaN or infinity.
        """
        program = self._evaluator = self._evaluator or self._compiled(self.graphs.evaluation)
        set_values(program, self.graphs.evaluation, self.values())
        sums: dict[str, np.ndarray] = {}
        for batch in batches:
            arrays = self.graphs.with_targets_as_trained(_arrays(batch))
            size = self._checked(arrays, batch)
            own = self._summed(program.run_named(arrays), size)
            if not math.isfinite(own["loss"]) and (found := unusual_number(batch)) is not None:
                raise Error(f"the loss of the evaluation is {own['loss'] / size}: {found}", hint="clean the data")
            sums = {name: sums[name] + value for name, value in own.items()} if sums else own
        if not sums:
            raise Error("no batch to evaluate")
        return self.results(sums)

    def values(self) -> dict[str, np.ndarray]:
        """Return the parameters for inference, with moving averages if there are any, and the states of the module."""
        params = self.ema_params() if self._averaged else self.params()
        return params | {name: self.compiled.state(name) for name in self._own_states}


def _arrays(batch: Mapping[str, Any]) -> Batch:
    return {name: converted(value, f"{name} of a batch") for name, value in batch.items()}


def set_values(program: Program, graph: Graph, values: Mapping[str, np.ndarray]) -> None:
    """Set the parameters and states of a program of a graph."""
    program.set_params({a.name: values[a.name] for a in graph.params}, copy=False)
    for argument in graph.states:
        program.set_state(argument.name, values[argument.name])

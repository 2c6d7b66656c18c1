"""`JaxStep`: a training step as a pure function of JAX, for models that are too large for one machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np

from rlx.ir.calls import Answered
from rlx.runtime.jax import to_jax
from rlx.runtime.jax.spreading import JaxShardings
from rlx.support.errors import Error
from rlx.support.options import documents_options, takes_options
from rlx.support.printable import printable
from rlx.support.suggestions import suggestion
from rlx.train.optimizers import Optimizer
from rlx.train.options import TrainingKeywords, TrainingOptions
from rlx.train.program import AVERAGE, TrainingGraph, training_graph
from rlx.weights import open_parameters


@documents_options(TrainingOptions)
class JaxStep(Answered):
    """Loss, gradients and update as a function of a state and a batch. JAX compiles it for one device or for many.

    `state, results = step(state, batch)` is pure, so `jax.jit(step, donate_argnums=0)` is a whole step. The state is a
    dictionary of arrays by name: parameters, including frozen ones, the states of the optimiser, and the states of the
    graph. The names are those of `TrainStep.snapshot`, and `TrainStep.restore` accepts them.

    If the graph has a mesh, parameters and batch are distributed over it according to their shardings. States of the
    optimiser are distributed like their parameter.

    Args:
        graph: As of `TrainStep`.
        optimizer: As of `TrainStep`.
        options: As of `TrainStep`, by name.

    Attributes:
        graph: The step as a graph.

    Raises:
        Error: As for `TrainStep`, or JAX is not installed.
    """

    @takes_options(TrainingOptions)
    def __init__(self, graph: Any, optimizer: Optimizer, **options: Unpack[TrainingKeywords]):
        values = dict(getattr(graph, "weights", {}))
        self._take(training_graph(graph, optimizer, TrainingOptions(**options)), values)

    @classmethod
    def of(cls, training: TrainingGraph, values: Mapping[str, Any]) -> JaxStep:
        """Return the step of an existing training graph.

        Args:
            training: The graph.
            values: The default values of `init`.
        """
        self = cls.__new__(cls)
        self._take(training, values)
        return self

    def _take(self, training: TrainingGraph, values: Mapping[str, Any]) -> None:
        self.graph = training.graph
        self._results, self._trained, self._frozen = training.results, training.trained, training.frozen
        self._arguments = {a.name: a for a in training.graph.arguments if a.kind != "input"}
        self._inputs = [a.name for a in training.graph.inputs]
        self._values = {n: v for n, v in values.items() if n in self._arguments}
        self._function = to_jax(training.graph, training.options)

    def __call__(self, state: Mapping[str, Any], batch: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Take one step.

        Args:
            state: The result of `init`, or the state after the last step.
            batch: Arrays by the names of the graph's inputs.

        Returns:
            The next state, and a dictionary with `"loss"`, before the update, and the metrics by name.

        Raises:
            Error: An array is missing or unknown.
            ShapeError: An array has a different shape or dtype.
        """
        _check_names("the state", state, self._arguments)
        _check_names("the batch", batch, self._inputs)
        params = {name: state[name] for name in self._frozen}
        states = {name: state[name] for name in self._arguments if name not in params}
        outputs, following = self._function(*(batch[n] for n in self._inputs), params=params, states=states)
        return following | params, dict(zip(self._results, outputs, strict=True))

    def shardings(self, mesh: Any = None) -> JaxShardings:
        """Return the shardings of state and batch over devices: see `JaxGraph.shardings`."""
        return self._function.shardings(mesh)

    def init(self, values: Any = None, *, mesh: Any = None) -> dict[str, Any]:
        """Return the first state.

        Args:
            values: Parameters by name, or the path of a file with them. Other entries of a state may be included, as in
                `TrainStep.snapshot()` or an earlier state. Missing states get the optimiser's initial values. Missing
                parameters get the values that came with the graph.
            mesh: The JAX mesh to distribute over, if the graph has a mesh: see `shardings`. All processes pass the same
                values, and each stores its part.

        Raises:
            Error: A parameter is missing, or a name is unknown.
            ShapeError: An array has a different shape or dtype.
        """
        given = self._values | dict(open_parameters({} if values is None else values))
        for name in given:
            if name not in self._arguments:
                raise Error(f"the state has no '{name}'{suggestion(name, self._arguments)}")
        missing = [n for n in (*self._trained, *self._frozen) if n not in given]
        if missing:
            raise Error(
                f"{len(missing)} parameters are missing: {', '.join(missing[:10])}", hint="init({name: array, …})"
            )
        for name in self._trained:
            if AVERAGE + name in self._arguments and AVERAGE + name not in given:
                kind = self._arguments[AVERAGE + name].shape.dtype.numpy
                given[AVERAGE + name] = np.asarray(given[name]).astype(kind)
        first = {n: given.get(n) for n in self._arguments}
        if self.graph.mesh is None:
            return {n: self._function.to_array(self._arguments[n], v) for n, v in first.items()}
        filled = {n: self._arguments[n].initial_array() if v is None else v for n, v in first.items()}
        return self.shardings(mesh).put(filled)

    def __repr__(self) -> str:
        return printable(f"<JaxStep {self.graph.name} of {len(self._trained)} parameters>", keep="")


def _check_names(what: str, given: Any, names: Any) -> None:
    if not isinstance(given, Mapping):
        raise Error(f"{what} must be a mapping of names to arrays, got {type(given).__name__}")
    for name in names:
        if name not in given:
            raise Error(f"{what} has no '{name}'{suggestion(name, given)}")
    for name in given:
        if name not in names:
            raise Error(f"{what} has an unknown '{name}'{suggestion(name, names)}")

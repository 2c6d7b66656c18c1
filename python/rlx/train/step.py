"""`TrainStep`: a graph of a loss, its gradients and an optimiser as one compiled program."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, Unpack

import numpy as np

from rlx.ir.calls import Answered
from rlx.ir.graph.graph import Graph
from rlx.ir.interface import Argument, argument_array
from rlx.ir.parameters import named_values
from rlx.runtime.arguments import check_flags
from rlx.runtime.device import Device
from rlx.runtime.program import Program
from rlx.runtime.session import Session
from rlx.support.answers import answers
from rlx.support.errors import Error
from rlx.support.locks import holding, make_lock
from rlx.support.options import documents_options, takes_options
from rlx.support.printable import printable
from rlx.targets import stages
from rlx.train import checkpoint
from rlx.train.jax_step import JaxStep
from rlx.train.loss_scale import SCALE
from rlx.train.optimizers import Optimizer
from rlx.train.options import TrainingKeywords, TrainingOptions
from rlx.train.program import AVERAGE, STEP, training_graph
from rlx.transforms.base import tensor_graph
from rlx.weights import Weights, open_parameters
from rlx.weights.arrays import keep


@documents_options(TrainingOptions)
class TrainStep(Answered):
    """Trains a graph: each call takes a batch and moves the parameters one step down the loss.

    Loss, gradients and update are one compiled program. The parameters and the values that the optimiser keeps are states of
    the program: they stay on the device, and a call copies only the batch in and the loss and metrics out. Any thread may call
    any method: the calls run one after the other, and a checkpoint holds the state after one step. With `precision`, forward
    and backward compute in another dtype; parameters, the optimiser and the loss stay in f32.

    Args:
        graph: A `Graph` or `GraphModule`, HIR or MIR. One of its outputs is the loss, a scalar. The other outputs are
            metrics, which must not be called `loss` or `step`.
        optimizer: The optimiser, such as `rlx.train.Adam(1e-3)`.
        device: A `rlx.Device` or its name.
        threads: As in `rlx.Session`.
        evaluation: The graph that `evaluate` computes, and with it the validation of `fit`: that of the same model as it is
            used, without dropout and with the running statistics of a batch normalisation. It has the same loss, and parameters
            that are parameters or states of `graph`. When absent, `graph` itself, which is right for a model that does the same
            in training.
        params: Values of the parameters, by name or as the path of a file, for those that did not come with the graph
            (`graph.weights`); they can be set later.
        cache: As in `Session.compile`.
        timeout: As in `Session.compile`.
        options: The options of the step and of its compilation, by name.

    Attributes:
        graph: The program as a graph.
        compiled: The program.
        position: The position of `fit`, which checkpoints store: its steps, the epoch, and the batches of the epoch.
        validation: The smallest validation loss in `fit`, and the number of validations since then. Checkpoints store
            it too.
        log: The history of `fit` for a module, which checkpoints store.

    Raises:
        Error: An option is wrong, the loss is not a scalar, an op has no derivative, or a parameter does not fit.
    """

    @takes_options(TrainingOptions)
    def __init__(
        self,
        graph: Any,
        optimizer: Optimizer,
        *,
        device: Any = Device.CPU,
        threads: int | None = None,
        evaluation: Any = None,
        params: Mapping[str, Any] | str | os.PathLike[str] | None = None,
        cache: Any = True,
        timeout: float | None = None,
        **options: Unpack[TrainingKeywords],
    ):
        self._session, chosen = Session(device, threads=threads), TrainingOptions(**options)
        training = training_graph(graph, optimizer, chosen)
        self._training, self.graph, self._loss = training, training.graph, chosen.loss
        self._source = stages.prepare_graph(tensor_graph(graph if evaluation is None else evaluation), chosen)
        self._building: dict[str, Any] = {"cache": cache, "timeout": timeout}
        self._tester: Program | None = None
        self.position, self.validation = (0, 0, 0), (math.inf, 0)
        self.log: dict[str, Any] = {}
        self._averaged = chosen.ema is not None
        self._trained = training.trained
        self._results, self._optimizer = training.results, optimizer.name
        self._params = {a.name: a for a in training.graph.arguments if a.name in {*training.trained, *training.frozen}}
        self._own_states = {a.name: a for a in graph.states}
        self._check_evaluation()
        self._frozen: dict[str, np.ndarray] = {}
        self._unset = frozenset(self._params)
        self._lock = make_lock()
        self.compiled: Program = self._compiled(training.graph)
        if graph.weights:
            self.set_params({n: value for n, value in graph.weights.items() if n in self._params})
        if params is not None:
            self.set_params(params)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(f"'TrainStep' object has no attribute '{name}'")
        raise answers().attribute_problem("a TrainStep", name, "steps", [n for n in dir(type(self)) if n[0] != "_"])

    def _compiled(self, graph: Graph) -> Program:
        return self._session.compile(graph, **self._building, **self._training.options.keywords())

    def _check_evaluation(self) -> None:
        missing = [a.name for a in (*self._source.params, *self._source.states) if a.name not in self._params]
        if missing := [name for name in missing if name not in self._own_states]:
            raise Error(
                f"the graph of evaluation= has {missing[0]!r}, which the one that is trained has not",
                hint="build both of one model, with the same names of parameters",
            )

    def __call__(self, batch: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Take one step.

        Args:
            batch: Arrays by name, as in `Program.run`.

        Returns:
            `"loss"`, before the update, and the metrics by name, in the order of the graph's outputs: a Python number
            for a scalar, an array for others.

        Raises:
            Error: A parameter is not set, or an input is missing, unknown, or of the wrong shape or dtype.
        """
        values = holding(self._lock, self._run, batch)
        return {n: v if v.ndim else v.item() for n, v in zip(self._results, values, strict=True)}

    def _run(self, batch: Mapping[str, Any] | None) -> list[np.ndarray]:
        if self._unset:
            self._check_set()
        return self.compiled.run(batch)

    # --- parameters and states --------------------------------------------------------------------

    @property
    def num_updates(self) -> int:
        """The number of updates of the parameters."""
        return int(self.compiled.state(STEP))

    @property
    def loss_scale(self) -> float | None:
        """The current scale of a `DynamicLossScale`; None without one."""
        names = {a.name for a in self.graph.states}
        return float(self.compiled.state(SCALE)) if SCALE in names else None

    def params(self) -> dict[str, np.ndarray]:
        """Copies of all parameters by name, including those that are not trained.

        Raises:
            Error: A parameter is not set.
        """
        return holding(self._lock, self._read_params)

    def _read_params(self) -> dict[str, np.ndarray]:
        self._check_set()
        return {n: self.compiled.state(n) if n in self._trained else self._frozen[n].copy() for n in self._params}

    def ema_params(self) -> dict[str, np.ndarray]:
        """Copies of the parameters by name, with moving averages for the trained ones.

        Raises:
            Error: There are no averages (`ema=`), or a parameter is not set.
        """
        if not self._averaged:
            raise Error("there are no moving averages", hint="TrainStep(…, ema=0.999)")
        return holding(self._lock, self._read_averages)

    def _read_averages(self) -> dict[str, np.ndarray]:
        present = self._read_params()
        means = {n: self.compiled.state(AVERAGE + n).astype(present[n].dtype) for n in self._trained}
        return present | means

    def evaluate(self, batches: Iterable[Mapping[str, Any]]) -> dict[str, float]:
        """Return the means over batches of the loss and of the scalar metrics, without an update.

        The graph, or that of `evaluation=`, is computed with the current parameters, or with their moving averages
        (`ema=`), and with the current states, in its own precision.

        Args:
            batches: Arrays by name, for each batch.

        Raises:
            Error: There is no batch, a parameter is not set, or an input does not fit.
        """
        params = self.ema_params() if self._averaged else self.params()
        tester = self._tester = self._tester or self._compiled(self._source)
        values = params | {name: self.compiled.state(name) for name in self._own_states}
        tester.set_params({a.name: values[a.name] for a in self._source.params}, copy=False)
        states = {a.name: values[a.name] for a in self._source.states}
        sums: dict[str, float] = {}
        count = 0
        for batch in batches:
            for name, value in states.items():
                tester.set_state(name, value)
            results = tester.run_named(batch)
            loss = self._loss if self._loss is not None else next(iter(results))
            values = {"loss": results.pop(loss), **results}
            count += 1
            for name, value in values.items():
                if not value.ndim:
                    sums[name] = sums.get(name, 0.0) + float(value)
        if not count:
            raise Error("there is no batch to evaluate", hint="an iterator ends for good: give a list, or a function")
        return {name: total / count for name, total in sums.items()}

    def set_params(
        self, params: Mapping[str, Any] | str | os.PathLike[str], *, copy: bool = True, cast: bool = False
    ) -> None:
        """Set parameters, by name or from a file, which must have all of them. The optimiser's state is preserved.

        Args:
            params: Arrays by name, the `Weights` from `rlx.weights.open`, or a path that it accepts. States of the
                original graph, such as running means, may be included.
            copy: False lends the arrays of parameters that are not trained. They must not be changed while the step is
                in use. Other arrays are always copied.
            cast: True converts arrays of other dtypes: see `Program.set_params`.

        Raises:
            Error: A parameter does not fit or a name is unknown; then none is set.
        """
        params = open_parameters(params)
        check_flags(copy=copy, cast=cast)
        if isinstance(params, Weights):
            own = [a for n, a in self._own_states.items() if n in params]
            params, copy = params.values_of([*self._params.values(), *own], cast=cast), False
        arrays, states = {}, {}
        for name, value in named_values(params, {**self._params, **self._own_states}).items():
            if name in self._own_states:
                states[name] = argument_array(self._own_states[name], value, cast=cast)
            else:
                arrays[name] = argument_array(self._params[name], value, cast=cast)
        frozen = {n: keep(a, copy) for n, a in arrays.items() if n not in self._trained}
        holding(self._lock, self._write, arrays, frozen, states, self._averaged)

    def _write(
        self,
        arrays: Mapping[str, np.ndarray],
        frozen: Mapping[str, np.ndarray],
        states: Mapping[str, np.ndarray],
        averages: bool,
    ) -> None:
        self._unset |= arrays.keys()  # until all are written: an interrupt must not mix old and new values
        if frozen:
            self.compiled.set_params(frozen, copy=False)
            self._frozen = {**self._frozen, **frozen}
        for name, array in arrays.items():
            if name in self._trained:
                self.compiled.set_state(name, array)
                if averages:
                    wide = next(a.shape.dtype.numpy for a in self.graph.states if a.name == AVERAGE + name)
                    self.compiled.set_state(AVERAGE + name, array.astype(wide))
        for name, array in states.items():
            self.compiled.set_state(name, array)
        self._unset -= arrays.keys()

    def state(self) -> dict[str, np.ndarray]:
        """Copies of all states except the parameters, by name.

        These are the states of the optimiser (`adam_m/<param>`), sums of gradients (`gradient_sum/<param>`), counters
        and the scale of the loss (`train/…`), and the states of the original graph.

        Raises:
            Error: A parameter is not set.
        """
        return holding(self._lock, self._read_states)

    def _read_states(self) -> dict[str, np.ndarray]:
        self._check_set()
        return {a.name: self.compiled.state(a.name) for a in self.graph.states if a.name not in self._params}

    def _check_set(self) -> None:
        if self._unset:
            missing = [f"'{n}' ({a.shape})" for n, a in self._params.items() if n in self._unset]
            raise Error(f"{len(missing)} parameters are not set: {', '.join(missing[:10])}", hint="call set_params")

    def __reduce__(self) -> NoReturn:
        raise Error(
            "a training step cannot be pickled",
            hint="step.save(path) writes its parameters and states, step.load(path) reads them",
        )

    # --- checkpoints ------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write parameters and states to a safetensors file. Training continues from it with exactly the same numbers.

        The file appears once it is complete: it is written under another name, and then renamed. It can also be used as
        a file of weights, `Session.compile(graph, params=path)`: with `ema`, the weights are the moving averages.

        Raises:
            Error: A parameter is not set, or the file cannot be written.
        """
        of_fit: dict[str, np.ndarray] = {}
        if any(self.position):
            of_fit[checkpoint.POSITION] = np.array(self.position, np.int64)
        if self.validation != (math.inf, 0):
            of_fit[checkpoint.VALIDATION] = np.array(self.validation, np.float64)
        if self.log:
            of_fit[checkpoint.LOG] = checkpoint.log_tensor(self.log)
        checkpoint.write(path, self.snapshot() | of_fit, self._trained if self._averaged else ())

    def snapshot(self) -> dict[str, np.ndarray]:
        """Return copies of all parameters and states, by name. `save` writes these, and `restore` accepts them.

        Raises:
            Error: A parameter is not set.
        """
        return holding(self._lock, lambda: self._read_params() | self._read_states())

    def restore(self, snapshot: Mapping[str, np.ndarray]) -> None:
        """Continue from a result of `snapshot`."""
        holding(self._lock, self._restore, snapshot)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Continue from a file of `save`, for the same graph and the same kind of optimiser.

        Options of the optimiser may have changed.

        Raises:
            Error: The file is missing or damaged, or does not fit. The message lists the tensors that are missing,
                unknown, or of a different shape or dtype. In this case, nothing is changed.
        """
        arguments: dict[str, Argument] = self._params | {a.name: a for a in self.graph.states}
        tensors = checkpoint.read(path, arguments, self._optimizer, self._trained if self._averaged else ())
        steps, epoch, batches = tensors.pop(checkpoint.POSITION, np.zeros(3, np.int64)).tolist()
        least, waited = tensors.pop(checkpoint.VALIDATION, np.array([math.inf, 0])).tolist()
        log = checkpoint.log_of(tensors.pop(checkpoint.LOG, None))
        holding(self._lock, self._restore, tensors)
        self.position, self.validation = (steps, epoch, batches), (least, int(waited))
        self.log = log

    def _restore(self, tensors: Mapping[str, np.ndarray]) -> None:
        self._unset = frozenset(self._params)  # after an interrupt, a mixture of old and new values must not be used
        for name, array in tensors.items():
            if name not in self._params:
                self.compiled.set_state(name, array)
        params = {n: a for n, a in tensors.items() if n in self._params}
        self._write(params, {n: a for n, a in params.items() if n not in self._trained}, {}, False)

    def to_jax(self) -> JaxStep:
        """Return the step as a pure function of JAX that starts from the current parameters and states: see `JaxStep`.

        Raises:
            Error: JAX is not installed, a parameter is not set, or a parameter is 64-bit and JAX has 64-bit types
                disabled.
        """
        return JaxStep.of(self._training, self.snapshot())

    def __repr__(self) -> str:
        text = f"<TrainStep {self.graph.name} of {len(self._trained)} parameters, {self.compiled!r}>"
        return printable(text, keep="")

"""`TrainStep`: a graph of a loss, its gradients and an optimiser as one compiled program."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlx.ir.attributes import suggestion
from rlx.ir.errors import Error
from rlx.ir.evaluate import argument_array
from rlx.ir.locks import holding, make_lock
from rlx.ir.signature import Argument
from rlx.runtime.compiled import CompiledGraph
from rlx.runtime.device import Device
from rlx.runtime.session import Session
from rlx.train import checkpoint
from rlx.train.loss_scale import SCALE, DynamicLossScale
from rlx.train.optimizers import Optimizer
from rlx.train.program import STEP, training_graph
from rlx.weights import Weights, opened
from rlx.weights.arrays import keep


class TrainStep:
    """Trains a graph: each call takes a batch and moves the parameters one step down the loss.

    Loss, gradients and update are one compiled program. The parameters and the values that the optimiser keeps are states of
    the program: they stay on the device, and a call copies only the batch in and the loss and metrics out. Any thread may call
    any method: the calls run one after the other, and a checkpoint holds the state after one step.

    Args:
        graph: A `Graph` or `GraphModule`, HIR or MIR, one of whose outputs is the loss, a scalar. The other outputs are
            metrics, which must not be called `loss` or `step`.
        optimizer: The optimiser, such as `rlx.train.Adam(1e-3)`.
        wrt: Names of the parameters to train; all that hold floats when absent. Other parameters do not change.
        loss: The name of the output that is the loss; the first when absent.
        device: A `rlx.Device` or its name.
        threads: As in `rlx.Session`.
        precision: `"f16"` or `"bf16"`: forward and backward compute in that dtype, by `rlx-precision`; parameters, the
            optimiser and the loss stay in f32.
        loss_scale: The factor by which the loss is multiplied and the gradients are divided: a `DynamicLossScale` or a
            number. With either, a step whose gradients are not all finite changes neither parameters nor optimiser. When
            absent, it is `DynamicLossScale()` for f16, and no scale for other dtypes.
        accumulate: The parameters are updated once in this many calls, by the mean of the gradients of these calls.
        clip_norm: The largest norm of the gradients, taken together as one vector; longer ones are scaled down to it.
        params: Values of the parameters, by name or as the path of a file, for those that did not come with the graph
            (`graph.weights`); they can be set later.
        bind: Sizes of symbols that are fixed now.
        cache: As in `Session.compile`.
        timeout: As in `Session.compile`.

    Attributes:
        graph: The program as a graph.
        compiled: The program.

    Raises:
        Error: An option is wrong, the loss is no scalar, an op has no derivative, or a parameter does not fit.
    """

    def __init__(
        self,
        graph: Any,
        optimizer: Optimizer,
        *,
        wrt: Any = None,
        loss: str | None = None,
        device: Any = Device.CPU,
        threads: int | None = None,
        precision: Any = None,
        loss_scale: DynamicLossScale | float | None = None,
        accumulate: int = 1,
        clip_norm: float | None = None,
        params: Mapping[str, Any] | str | os.PathLike[str] | None = None,
        bind: Mapping[str, int] | None = None,
        cache: Any = True,
        timeout: float | None = None,
    ):
        session = Session(device, threads=threads)
        training = training_graph(
            graph,
            optimizer,
            wrt=wrt,
            loss=loss,
            precision=precision,
            loss_scale=loss_scale,
            accumulate=accumulate,
            clip_norm=clip_norm,
            bind=bind,
        )
        self.graph = training.graph
        self._trained = training.trained
        self._results = training.results
        self._params = {a.name: a for a in training.graph.arguments if a.name in {*training.trained, *training.frozen}}
        self._own_states = {a.name: a for a in graph.states}
        self._frozen: dict[str, np.ndarray] = {}
        self._unset = frozenset(self._params)
        self._lock = make_lock()
        self.compiled: CompiledGraph = session.compile(training.graph, cache=cache, timeout=timeout)
        if graph.weights:
            self.set_params({n: value for n, value in graph.weights.items() if n in self._params})
        if params is not None:
            self.set_params(params)

    def __call__(self, batch: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Take one step.

        Args:
            batch: Arrays by name, as in `CompiledGraph.run`.

        Returns:
            `"loss"`, before the update, and the metrics by their names, in the order of the graph's outputs: a Python number
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
        """How often the parameters were updated."""
        return int(self.compiled.state(STEP))

    @property
    def loss_scale(self) -> float | None:
        """The present scale of a `DynamicLossScale`; None without one."""
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

    def set_params(self, params: Mapping[str, Any] | str | os.PathLike[str], *, copy: bool = True) -> None:
        """Set parameters, by name or as the path of a file, which must have all of them. The optimiser keeps its state.

        Args:
            params: Arrays by name, the `Weights` that `rlx.weights.open` gives, or a path that it takes. There may be states
                that the graph has itself among them, such as running means.
            copy: False lends the arrays of parameters that are not trained; they must not be changed while the step is in
                use. Other arrays are always copied.

        Raises:
            Error: A parameter does not fit or a name is unknown; then none is set.
        """
        params = opened(params)
        if isinstance(params, Weights):
            own = [a for n, a in self._own_states.items() if n in params]
            params, copy = params.values_of([*self._params.values(), *own]), False
        arrays, states = {}, {}
        for name, value in params.items():
            if name in self._own_states:
                states[name] = argument_array(self._own_states[name], value)
                continue
            if name not in self._params:
                known_names = ", ".join(self._params)
                raise Error(
                    f"there is no parameter '{name}'{suggestion(str(name), self._params)}; there are {known_names}"
                )
            arrays[name] = argument_array(self._params[name], value)
        frozen = {n: keep(a, copy) for n, a in arrays.items() if n not in self._trained}
        holding(self._lock, self._write, arrays, frozen, states)

    def _write(
        self, arrays: Mapping[str, np.ndarray], frozen: Mapping[str, np.ndarray], states: Mapping[str, np.ndarray]
    ) -> None:
        self._unset |= arrays.keys()  # until all are written: an interrupt must not leave old values beside new ones
        if frozen:
            self.compiled.set_params(frozen, copy=False)
            self._frozen = {**self._frozen, **frozen}
        for name, array in arrays.items():
            if name in self._trained:
                self.compiled.set_state(name, array)
        for name, array in states.items():
            self.compiled.set_state(name, array)
        self._unset -= arrays.keys()

    def state(self) -> dict[str, np.ndarray]:
        """Copies of all states except the parameters, by name.

        These are the states of the optimiser (`adam_m/<param>`), sums of gradients (`gradient_sum/<param>`), counters and the
        scale of the loss (`train/…`), and the states that the graph had before.

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

    # --- checkpoints ------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write parameters and states to a safetensors file, from which training continues with exactly the same numbers.

        The file appears once it is complete: it is written under another name, and then renamed. It can also be used as a
        file of weights, `Session.compile(graph, params=path)`.

        Raises:
            Error: A parameter is not set, or the file cannot be written.
        """
        checkpoint.write(path, holding(self._lock, lambda: self._read_params() | self._read_states()))

    def load(self, path: str | os.PathLike[str]) -> None:
        """Continue from a file that `save` wrote, for the same graph and the same kind of optimiser.

        Options of the optimiser may have changed.

        Raises:
            Error: The file is missing or damaged, or does not fit; the message lists the tensors that are missing, unknown
                or of another shape or dtype. Nothing has changed then.
        """
        arguments: dict[str, Argument] = self._params | {a.name: a for a in self.graph.states}
        tensors = checkpoint.read(path, arguments)
        holding(self._lock, self._restore, tensors)

    def _restore(self, tensors: Mapping[str, np.ndarray]) -> None:
        self._unset = frozenset(self._params)  # after an interrupt, a mixture of old and new values must not be used
        for name, array in tensors.items():
            if name not in self._params:
                self.compiled.set_state(name, array)
        self.set_params({n: a for n, a in tensors.items() if n in self._params}, copy=False)

    def __repr__(self) -> str:
        return f"<TrainStep {self.graph.name} of {len(self._trained)} parameters, {self.compiled!r}>"

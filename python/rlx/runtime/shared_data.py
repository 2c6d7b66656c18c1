"""`SharedData`: the weights, states and loaded code of a program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.ir.interface import Argument
from rlx.runtime.arguments import unset_params
from rlx.runtime.entry_point import CompiledFunction, EntryPoint
from rlx.runtime.order import Order
from rlx.runtime.shared_states import States
from rlx.support.errors import ExecutionError
from rlx.support.locks import make_lock
from rlx.targets.artifacts.signature import shared_arguments
from rlx.targets.contract import calling, check_results
from rlx.targets.protocol import CachingRuntime, JointRuntime, LoadedProgram
from rlx.targets.registry import backend_of, runtime_of

if TYPE_CHECKING:
    from rlx.runtime.tier import Improvement

Call = Callable[[list[np.ndarray]], list[np.ndarray]]


@dataclass(frozen=True)
class Content:
    """Weights, and the functions that are loaded with them. It is replaced as a whole, so that an interrupt leaves both.

    Attributes:
        weights: Values of the parameters, by name.
        programs: The loaded functions.
    """

    weights: Mapping[str, np.ndarray] = field(default_factory=dict)
    programs: Mapping[CompiledFunction, LoadedProgram] = field(default_factory=dict)


def companions_of(functions: Iterable[CompiledFunction]) -> dict[CompiledFunction, tuple[CompiledFunction, ...]]:
    """Return the functions of the same program for each function that is not the only one of its program."""
    groups: dict[bytes, list[CompiledFunction]] = {}
    listed = list(functions)
    for function in listed if len(listed) > 1 else ():
        groups.setdefault(bytes(function.artifact.program), []).append(function)
    return {f: tuple(group) for group in groups.values() if len(group) > 1 for f in group}


class SharedData:
    """The data that all entry points of a program share by name. Methods require the lock.

    Attributes:
        lock: Serialises calls and changes.
        order: The order of the calls of `run_async`, once there is one.
        improvement: The compilation of the optimised program, if the program was compiled with `tier="auto"`.
        params: The parameters, by name.
        states: The states, with their values.
        content: The weights, and the loaded functions.
        ready: The functions that may be called directly: they have returned valid results before, and hold the newest
            values of their states. At most one of those with states is ready.
    """

    def __init__(self, entries: Mapping[str | None, EntryPoint]):
        self.lock = make_lock()
        self.order: Order | None = None
        self.improvement: Improvement | None = None
        together = shared_arguments({name or "": entry.signature.arguments for name, entry in entries.items()})
        self.params: dict[str, Argument] = {name: a for name, a in together.items() if a.kind == "param"}
        self.states = States({name: a for name, a in together.items() if a.kind == "state"})
        self.content = Content()
        self._companions = companions_of(f for entry in entries.values() for f in entry.functions.values())
        self.ready: Mapping[CompiledFunction, Call] = {}
        # Functions that were replaced, with those that replaced them. Pending calls may still be of the former.
        self._successors: Mapping[CompiledFunction, CompiledFunction] = {}

    def settle(self) -> None:
        """Wait for the calls of `run_async`, without the lock."""
        if self.order is not None:
            self.order.settle()

    def begin_order(self) -> Order:
        """Return the order of calls. It has no thread before the first call."""
        if self.order is None:
            self.order = Order()
        return self.order

    # --- values -----------------------------------------------------------------------------------

    def set_weights(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Set weights. The functions that have them load them at their next run."""
        before = self.content
        leaving = {
            f: p
            for f, p in before.programs.items()
            if any(not arrays.keys().isdisjoint(other.params) for other in self._all_of(f))
        }
        self.ready = {f: call for f, call in self.ready.items() if f not in leaving}
        self.states.leave(leaving.values())
        staying = {f: p for f, p in before.programs.items() if f not in leaving}
        self.content = Content({**before.weights, **arrays}, staying)

    def write_states(self, values: Mapping[str, np.ndarray | None]) -> None:
        """Set states; None is the initial value. The arrays must not be changed."""
        self._hold_states()
        self.states.write(values)

    def values(
        self, params: Iterable[str], states: Iterable[str]
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Return the weights of some parameters that are set, and copies of the newest values of some states."""
        weights = self.content.weights
        return (
            {name: weights[name] for name in params if name in weights},
            {name: self.states.read(name) for name in states},
        )

    # --- functions --------------------------------------------------------------------------------

    def check_weights(self, function: CompiledFunction) -> None:
        """Check that all parameters of a function are set.

        Raises:
            Error: One is not.
        """
        weights = self.content.weights
        if missing := [self.params[name] for name in function.params if name not in weights]:
            raise unset_params(missing)

    def _all_of(self, function: CompiledFunction) -> Sequence[CompiledFunction]:
        """Return all functions of the program that a function belongs to."""
        return self._companions.get(function, (function,))

    def load(self, function: CompiledFunction) -> LoadedProgram:
        """Return a function on its device. It is loaded if it is not.

        Raises:
            Error: A parameter has not been set.
            ExecutionError: The device is not available.
        """
        content, function = self.content, self._successors.get(function, function)
        if function in content.programs:
            return content.programs[function]
        self.check_weights(function)
        program = self.loaded(function, content.weights, content.programs)
        self.content = replace(content, programs={**content.programs, function: program})
        self.states.adopt(program, function.states)
        return program

    def loaded(
        self,
        function: CompiledFunction,
        weights: Mapping[str, np.ndarray],
        others: Mapping[CompiledFunction, LoadedProgram],
    ) -> LoadedProgram:
        """Return a function, newly loaded with weights. Does not require the lock.

        Args:
            function: The function.
            weights: The weights.
            others: Functions that are loaded with these weights. Those of the same program share its memory.

        Raises:
            ExecutionError: The device is not available.
        """
        together = self._all_of(function)
        own = {name: weights[name] for f in together for name in f.params if f is function or name in weights}
        target = function.artifact.target
        with calling(backend_of(target), "load", ExecutionError):
            runtime, (artifact, threads) = runtime_of(target), (function.artifact, function.threads)
            if isinstance(runtime, CachingRuntime):
                return runtime.load_cached(artifact, own, threads, function.cache)
            if len(together) > 1 and isinstance(runtime, JointRuntime):
                loaded = next((others[f] for f in together if f in others), None)
                return runtime.load_beside(artifact, own, threads, loaded)
            return runtime.load(artifact, own, threads)

    def replace(
        self,
        functions: Mapping[CompiledFunction, CompiledFunction],
        programs: Mapping[CompiledFunction, LoadedProgram],
    ) -> None:
        """Replace functions by others with the same arguments and results.

        Args:
            functions: The new functions, by the old ones.
            programs: Those of the new ones that are loaded, with the current weights.
        """
        before = self.content
        self.ready = {f: call for f, call in self.ready.items() if f not in functions}
        self._companions = {**self._companions, **companions_of(functions.values())}
        self.states.leave([program for f, program in before.programs.items() if f in functions])
        staying = {f: program for f, program in before.programs.items() if f not in functions}
        self.content = replace(before, programs={**staying, **programs})
        self._successors = {**self._successors, **functions}
        for function, program in programs.items():
            self.states.adopt(program, function.states)

    def call(self, function: CompiledFunction, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """Call a function. Its results are checked if it is not ready; later calls save this time.

        Raises:
            Error: It cannot be loaded, or its results are not valid.
        """
        function = self._successors.get(function, function)
        if function in self.ready:
            return self.ready[function](arrays)
        program, backend = self._current(function), backend_of(function.artifact.target)
        with calling(backend, "call", ExecutionError):
            results = program.call(arrays)
        check_results(backend, results, function.artifact.signature.outputs)
        self.ready = {**self.ready, function: program.call}
        return results

    def call_on_device(self, function: CompiledFunction, arrays: list[Any]) -> list[Any]:
        """Call a function whose program implements `KeepingResults`.

        Raises:
            Error: It cannot be loaded, or the call failed.
        """
        program: Any = self._current(function)
        with calling(backend_of(function.artifact.target), "call", ExecutionError):
            return program.call_on_device(arrays)

    def _current(self, function: CompiledFunction) -> LoadedProgram:
        """Return a loaded function that holds the newest values of its states."""
        program = self.load(function)
        if function.states and function not in self.ready:
            self._hold_states()
            self.states.bring(program, function.states)
        return program

    def _hold_states(self) -> None:
        """Let no function with states be called directly, before states move."""
        self.ready = {f: call for f, call in self.ready.items() if not f.states}

"""`CompiledGraph`: a compiled program with its weights and its state."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.ir.interface import Argument, Output, Requirement, argument_array, bind_symbols, check_argument
from rlx.ir.parameters import unknown_parameter
from rlx.ir.python_values import given_array
from rlx.runtime.arguments import (
    checked_threads,
    given_params,
    missing_input,
    unknown_input,
    unknown_name,
    unset_params,
)
from rlx.runtime.content import Content
from rlx.runtime.device_array import DeviceArray
from rlx.runtime.order import Order
from rlx.runtime.saving import SavedProgram
from rlx.support.errors import Error, ExecutionError
from rlx.support.locks import holding, make_lock
from rlx.targets.artifacts.artifact import Artifact
from rlx.targets.contract import calling, check_results
from rlx.targets.protocol import KeepingResults, LoadedProgram, Remarking
from rlx.targets.registry import backend_of, runtime_of
from rlx.weights.arrays import keep

if TYPE_CHECKING:
    from concurrent.futures import Future

    from rlx.ir.op.card import Cost
    from rlx.report.profile import ProfileReport
    from rlx.report.tuning import TuningReport
    from rlx.targets.compilation import Compilation


class CompiledGraph(SavedProgram):
    """A compiled program. Created by `Session.compile` and `rlx.load`.

    Set its parameters, then run it: arrays in, arrays out. Any thread may call any method. Runs and changes of
    parameters or states are serialised.

    Attributes:
        artifact: The program in the form that can be saved.
        phases: Seconds of each compile phase.
        tuning: The trials and the choice of tuning, for a program that was compiled with `tune=`.
    """

    def __init__(self, artifact: Artifact, *, threads: int | None = None, compilation: Compilation | None = None):
        self.artifact = artifact
        self.phases = compilation.phases if compilation is not None else {}
        self._compilation = compilation
        self.tuning: TuningReport | None = None
        self._threads = checked_threads(threads)
        signature = artifact.signature
        self._inputs = signature.of_kind("input")
        self._params = {a.name: a for a in signature.of_kind("param")}
        self._states = {a.name: a for a in signature.of_kind("state")}
        self._lock = make_lock()
        self._order: Order | None = None
        self._content = Content()
        # Data for checking a call without attribute look-ups: name, dtype, static shape or None.
        self._checks = [
            (a.name, a.shape.dtype.numpy, a.shape.static if a.shape.is_static else None, a) for a in self._inputs
        ]
        self._requirements = [Requirement.from_json(r) for r in artifact.info.get("requirements", ())]
        self._symbolic = [a for a in self._inputs if not a.shape.is_static]

    @property
    def inputs(self) -> tuple[Argument, ...]:
        """The inputs, in order."""
        return self._inputs

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The outputs, in order."""
        return self.artifact.signature.outputs

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs, in order."""
        return [o.name for o in self.artifact.signature.outputs]

    # --- parameters -------------------------------------------------------------------------------

    def set_param(self, name: str, value: Any, *, copy: bool = True, cast: bool = False) -> None:
        """Set one weight; the next run loads it.

        Args:
            name: The parameter's name.
            value: Its value.
            copy: False lends the array, which must not be changed during the lifetime of this program.
            cast: True converts an array of a different dtype: see `set_params`.

        Raises:
            Error: The parameter does not exist, or shape or dtype differ.
        """
        if not isinstance(name, str):
            raise unknown_parameter(name, self._params)
        self.set_params({name: value}, copy=copy, cast=cast)

    def set_params(
        self, params: Mapping[str, Any] | str | os.PathLike[str], *, copy: bool = True, cast: bool = False
    ) -> None:
        """Set several weights; the next run loads them.

        Args:
            params: Arrays by name, or weights opened by `rlx.weights.open`, or a path for it. Tensors of such a file
                that are not parameters are ignored, and the others are mapped: the file must not be written to.
            copy: False lends the arrays, which must not be changed during the lifetime of this program.
            cast: True converts tensors of other dtypes, such as those of a checkpoint in f16, bf16 or f64 for
                parameters of f32: floats are rounded to nearest, all other values must be exact. Without it, another
                dtype is an error.

        Raises:
            Error: A parameter does not fit, a name is unknown (mapping), or the file is missing, damaged, lacks a
                parameter or contains NaN. Then none is set.
        """
        arrays = given_params(self._params, params, copy, cast)
        self._settle()
        holding(self._lock, self._replace_weights, arrays)

    def _replace_weights(self, arrays: Mapping[str, np.ndarray]) -> None:
        before = self._content
        states = before.states
        if before.program is not None:
            states = {name: before.program.read_state(name) for name in self._states}
        self._content = Content({**before.weights, **arrays}, states)

    def load(self) -> None:
        """Load the program and its weights on the device now, rather than at the first run.

        Raises:
            Error: A parameter has not been set.
            ExecutionError: The device is not available.
        """
        holding(self._lock, self._loaded)

    def _loaded(self) -> LoadedProgram:
        content = self._content
        if content.program is not None:
            return content.program
        missing = [name for name in self._params if name not in content.weights]
        if missing:
            raise unset_params([self._params[name] for name in missing])
        with calling(backend_of(self.artifact.target), "load", ExecutionError):
            program = self._load_on_device(content)
        self._content = Content(content.weights, program=program, proved=False)
        return program

    def _load_on_device(self, content: Content) -> LoadedProgram:
        program = runtime_of(self.artifact.target).load(self.artifact, content.weights, self._threads)
        for name, value in content.states.items():
            program.write_state(name, value)
        return program

    def _run_first(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """Call a program for the first time, and check its results. Later calls are not checked, to save time."""
        program, backend = self._loaded(), backend_of(self.artifact.target)
        with calling(backend, "call", ExecutionError):
            results = program.call(arrays)
        check_results(backend, results, self.artifact.signature.outputs)
        self._content = replace(self._content, proved=True)
        return results

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks of the device about the last run, such as the cycles of a simulation; empty for most devices."""
        program = self._content.program
        return tuple(program.remarks()) if isinstance(program, Remarking) else ()

    # --- running ----------------------------------------------------------------------------------

    def run(self, inputs: Mapping[str, Any] | None = None) -> list[np.ndarray]:
        """Run the program once.

        Args:
            inputs: Arrays by name: anything with `__array__` or `__dlpack__`, and Python numbers or lists of numbers,
                which take the dtype of the input if they fit. They are never changed, unless donated.

        Returns:
            One array for each output, in order. They own their memory.

        Raises:
            Error: An input is missing, unknown, or of the wrong shape or dtype; the message names the input.
        """
        if self._order is not None:
            self._order.settle()
        arrays = self._collected(inputs)
        if not self._content.proved:
            return holding(self._lock, self._run_first, arrays)
        # `holding`, inlined to save the time of the call
        with self._lock: return (self._content.program or self._loaded()).call(arrays)  # noqa: E701  # fmt: skip

    __call__ = run

    def _collected(self, inputs: Mapping[str, Any] | None, *, for_device: bool = False) -> list[Any]:
        """Return the arrays of a call, in order, checked. Donated device arrays lose their memory.

        Args:
            inputs: Arrays by name.
            for_device: Whether the program accepts arrays on its device unchanged; otherwise all are NumPy arrays.
        """
        if inputs is None:
            inputs = {}
        elif type(inputs) is not dict and not isinstance(inputs, Mapping):
            raise Error(f"inputs must be a mapping of names to arrays, got {type(inputs).__name__}")
        if self._content.program is None:
            self.load()
        arrays: list[Any] = []
        donated: list[tuple[int, DeviceArray]] | None = None
        for name, dtype, shape, argument in self._checks:
            try:
                array = inputs[name]
            except (KeyError, TypeError, IndexError):
                raise missing_input(inputs, argument, self._inputs) from None
            if type(array) is not np.ndarray:
                if type(array) is DeviceArray:
                    if argument.donate:
                        donated = [*(donated or ()), (len(arrays), array)]
                    array = array.lent(for_device, f"input '{name}'")
                else:
                    array = given_array(array, argument.shape.dtype, f"input '{name}'")
            if array.dtype != dtype or array.shape != shape:
                if isinstance(array, np.ndarray):
                    array = argument_array(argument, array)
                else:
                    check_argument(argument, array)
            if isinstance(array, np.ndarray) and not array.flags.c_contiguous:
                array = array.copy()
            arrays.append(array)
        if len(inputs) != len(arrays):
            raise unknown_input(inputs, self._inputs, self._params)
        if self._symbolic:
            sizes = bind_symbols([(a, array.shape) for a, array in zip(self._inputs, arrays, strict=True)])
            for requirement in self._requirements:
                requirement.check(sizes)
        for index, array in donated or ():  # donate only after all checks have passed
            arrays[index] = array.given_away(for_device, f"input '{self._inputs[index].name}'")
        return arrays

    def run_named(self, inputs: Mapping[str, Any] | None = None) -> dict[str, np.ndarray]:
        """Run the program once. Returns the outputs by name."""
        return dict(zip(self.output_names, self.run(inputs), strict=True))

    def run_device(self, inputs: Mapping[str, Any] | None = None) -> list[DeviceArray]:
        """Run the program once, and keep the outputs on its device. Programs on the same device take them without a copy.

        Args:
            inputs: Inputs as for `run`, or device arrays. A device array passed for a donated input cannot be used
                afterwards.

        Returns:
            One array for each output, in order.

        Raises:
            Error: As for `run`, or a device array was donated before, or the device cannot keep outputs.
        """
        self._settle()
        program, device = holding(self._lock, self._loaded), self.artifact.target
        results: list[Any]
        if isinstance(program, KeepingResults):
            arrays = self._collected(inputs, for_device=True)
            with calling(backend_of(device), "call", ExecutionError):
                results = holding(self._lock, program.call_on_device, arrays)
        elif getattr(program, "in_host_memory", True):
            results = self.run(inputs)
        else:
            hint = "run copies them to the host; states stay on the device: g.state, g.update"
            raise Error(f"outputs of programs for {device} cannot stay on the device", hint=hint)
        return [DeviceArray(r, device, name) for r, name in zip(results, self.output_names, strict=True)]

    def run_async(self, inputs: Mapping[str, Any] | None = None) -> Future[list[np.ndarray]]:
        """Run the program once in a separate thread, and return immediately.

        Several calls may be pending: they run one after the other, in the order of the calls, so states are the same as
        without threads. All other methods wait for them. Arrays are copied first, and may be changed after the call
        returns; donated arrays, device arrays and read-only arrays are not copied.

        Args:
            inputs: As for `run`.

        Returns:
            A `concurrent.futures.Future`: `result()` waits and returns or raises what `run` does, `done()` returns
            whether the call has run, and `cancel()` cancels a call that has not begun.

        Raises:
            Error: An input is missing, unknown, or of the wrong shape or dtype.
        """
        arrays = self._collected(inputs)
        given = inputs or {}
        kept = [
            array if a.donate or type(given[a.name]) is DeviceArray else keep(array)
            for a, array in zip(self._inputs, arrays, strict=True)
        ]
        return holding(self._lock, self._ordered).submit(self._run_collected, kept)

    def _run_collected(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        if not self._content.proved or self._content.program is None:
            return holding(self._lock, self._run_first, arrays)
        return holding(self._lock, self._content.program.call, arrays)

    def _ordered(self) -> Order:
        if self._order is None:
            self._order = Order()
        return self._order

    def _settle(self) -> None:
        """Wait for the calls of `run_async`."""
        if self._order is not None:
            self._order.settle()

    def profile(self, inputs: Mapping[str, Any] | None = None, *, runs: int = 20) -> ProfileReport:
        """Measure each kernel of the program: its time, and the user's lines that it computes.

        The program is compiled again for this and run separately: the states and parameters of this one are not
        changed.

        Args:
            inputs: Arrays by name; missing inputs, and weights that are not set, are random.
            runs: The number of runs.

        Raises:
            Error: An array does not fit, the target cannot be measured here, the program was loaded from a file, or its
                graph has been changed since.
        """
        compilation = self._made_of()
        from rlx.runtime.profiling import profile

        return profile(compilation, inputs, self._content.weights, runs=runs, threads=self._threads)

    def cost(self) -> Cost:
        """Return the work of one run, summed over the ops of the LIR: `flops`, and the `bytes` that each op reads and writes.

        Both are numbers, or expressions of the symbols. Values that kernels keep in registers are included, and so are
        computations at load time.

        Raises:
            Error: The program was loaded from a file, or its graph has been changed since.
        """
        lir = self._made_of().lir
        from rlx.ir.graph.listing import inspect_graph

        return inspect_graph(lir).cost

    def _made_of(self) -> Compilation:
        if self._compilation is None:
            raise Error(
                "a program from a file does not say what it was made of", hint="take what Session.compile gives"
            )
        self._compilation.check_unchanged()
        return self._compilation

    # --- state ------------------------------------------------------------------------------------

    def state(self, name: str) -> np.ndarray:
        """Return a copy of a state's current value.

        Raises:
            Error: The state does not exist.
        """
        self._check_state(name)
        self._settle()
        return holding(self._lock, self._read_state, name)

    def _read_state(self, name: str) -> np.ndarray:
        return self._loaded().read_state(name)

    def set_state(self, name: str, value: Any) -> None:
        """Set a state to another value, which is copied to the device.

        Raises:
            Error: The state does not exist, or shape or dtype differ.
        """
        self._check_state(name)
        array = np.array(argument_array(self._states[name], value), order="C")
        self._settle()
        holding(self._lock, self._write_state, name, array)

    def _write_state(self, name: str, array: np.ndarray) -> None:
        content = self._content
        if content.program is None:
            self._content = Content(content.weights, {**content.states, name: array})
        else:
            content.program.write_state(name, array)

    def _check_state(self, name: str) -> None:
        if not isinstance(name, str) or name not in self._states:
            raise unknown_name("state", name, self._states)

    def reset_state(self) -> None:
        """Reset every state to its initial value."""
        self._settle()
        holding(self._lock, self._reset_state)

    def _reset_state(self) -> None:
        content = self._content
        if content.program is None:
            self._content = Content(content.weights)
            return
        for name, argument in self._states.items():
            shape = argument.shape
            content.program.write_state(name, np.full(shape.static, argument.init, shape.dtype.numpy))

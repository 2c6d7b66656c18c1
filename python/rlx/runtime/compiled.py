"""`CompiledGraph`: a compiled program with its weights and its state."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.ir.given import given_array
from rlx.ir.interface import Argument, Output, Requirement, argument_array, bind_symbols, check_argument
from rlx.ir.parameters import unknown_parameter
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
from rlx.runtime.saved import Saved
from rlx.support.errors import Error, ExecutionError
from rlx.support.locks import holding, make_lock
from rlx.targets.artifacts.artifact import Artifact
from rlx.targets.contract import calling, check_results
from rlx.targets.protocol import KeepingResults, Program, Remarking
from rlx.targets.registry import backend_of, runtime_of
from rlx.weights.arrays import keep

if TYPE_CHECKING:
    from concurrent.futures import Future

    from rlx.ir.op.card import Cost
    from rlx.report.profile import ProfileReport
    from rlx.report.tuning import TuningReport
    from rlx.targets.compilation import Compilation


class CompiledGraph(Saved):
    """A compiled program. Made by `Session.compile` and `rlx.load`.

    Set its parameters, then run it: arrays in, arrays out. Any thread may call any method: runs, and whatever changes
    parameters or states, come one after the other.

    Attributes:
        artifact: The program as it can be saved.
        phases: Seconds that each phase of compiling took.
        tuning: What tuning tried and kept, for a program that was compiled with `tune=`.
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
        # What the check of a call reads, without attribute look-ups: name, dtype, static shape or None.
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
        """Give one weight; the next run loads it.

        Args:
            name: The parameter's name.
            value: Its value.
            copy: False lends the array, which must not be changed as long as this program is there.
            cast: True converts an array of another dtype: see `set_params`.

        Raises:
            Error: There is no such parameter, or shape or dtype differ.
        """
        if not isinstance(name, str):
            raise unknown_parameter(name, self._params)
        self.set_params({name: value}, copy=copy, cast=cast)

    def set_params(
        self, params: Mapping[str, Any] | str | os.PathLike[str], *, copy: bool = True, cast: bool = False
    ) -> None:
        """Give several weights; the next run loads them.

        Args:
            params: Arrays by name, or weights that `rlx.weights.open` gave, or the path that it takes. Of those, tensors
                that are no parameters are left alone, and the others are mapped: the file must not be written to.
            copy: False lends the arrays, which must not be changed as long as this program is there.
            cast: True converts tensors of other dtypes, such as those of a checkpoint in f16, bf16 or f64 for parameters of
                f32: floats are rounded to nearest, all else must be exact. Without it, another dtype is an error.

        Raises:
            Error: A parameter does not fit, a name is unknown (mapping), or the file is missing, damaged, lacks a
                parameter or holds NaN. Then none is set.
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
        """Load the program and its weights on the device now, not at the first run.

        Raises:
            Error: A parameter has not been set.
            ExecutionError: The device is not there.
        """
        holding(self._lock, self._loaded)

    def _loaded(self) -> Program:
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

    def _load_on_device(self, content: Content) -> Program:
        program = runtime_of(self.artifact.target).load(self.artifact, content.weights, self._threads)
        for name, value in content.states.items():
            program.write_state(name, value)
        return program

    def _run_first(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """The first call of a program: what it returns is checked. Every later one is trusted, for the time that takes."""
        program, backend = self._loaded(), backend_of(self.artifact.target)
        with calling(backend, "call", ExecutionError):
            results = program.call(arrays)
        check_results(backend, results, self.artifact.signature.outputs)
        self._content = replace(self._content, proved=True)
        return results

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the device says of the last run, such as the cycles of a simulation; most devices say nothing."""
        program = self._content.program
        return tuple(program.remarks()) if isinstance(program, Remarking) else ()

    # --- running ----------------------------------------------------------------------------------

    def run(self, inputs: Mapping[str, Any] | None = None) -> list[np.ndarray]:
        """Run the program once.

        Args:
            inputs: Arrays by name: anything with `__array__` or `__dlpack__`, and Python numbers or lists of them, which take
                the dtype of the input if they fit it. They are never changed, unless donated.

        Returns:
            One array for each output, in order. They own their memory.

        Raises:
            Error: An input is missing, unknown, or of the wrong shape or dtype; it names the input.
        """
        if self._order is not None:
            self._order.settle()
        arrays = self._collected(inputs)
        if not self._content.proved:
            return holding(self._lock, self._run_first, arrays)
        # `holding` without the time of its call
        with self._lock: return (self._content.program or self._loaded()).call(arrays)  # noqa: E701  # fmt: skip

    __call__ = run

    def _collected(self, inputs: Mapping[str, Any] | None, *, for_device: bool = False) -> list[Any]:
        """The arrays of a call, in order, checked. What is donated of device arrays is theirs no longer.

        Args:
            inputs: Arrays by name.
            for_device: Whether the program takes arrays that lie on its device as they are; else all are NumPy's.
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
        for index, array in donated or ():  # when nothing is wrong with the others
            arrays[index] = array.given_away(for_device, f"input '{self._inputs[index].name}'")
        return arrays

    def run_named(self, inputs: Mapping[str, Any] | None = None) -> dict[str, np.ndarray]:
        """Run the program once; outputs by name."""
        return dict(zip(self.output_names, self.run(inputs), strict=True))

    def run_device(self, inputs: Mapping[str, Any] | None = None) -> list[DeviceArray]:
        """Run the program once; the outputs stay on its device, and any program on that device takes them without a copy.

        Args:
            inputs: As for `run`; device arrays too. One that is given for a donated input cannot be used afterwards.

        Returns:
            One array for each output, in order.

        Raises:
            Error: As for `run`; or a device array was donated before, or the device keeps no outputs.
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
        """Run the program once, in a thread of its own; returns at once.

        Several may be under way: they run one after the other, in the order of the calls, so that states are what they would
        be without threads. All other methods wait for them. Arrays are copied first, and may be changed as soon as this
        returns; donated ones, device arrays and those that nobody can write are not copied.

        Args:
            inputs: As for `run`.

        Returns:
            A `concurrent.futures.Future`: `result()` waits and gives what `run` does, or raises what it raises, `done()` says
            whether it has run, and `cancel()` takes back a call that has not begun.

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
        """Measure each kernel of the program: how long it takes, and which of the user's lines it computes.

        The program is compiled once more for this, and run by itself: states and parameters of this one stay as they are.

        Args:
            inputs: Arrays by name; those that are not given, and weights that are not set, are drawn at random.
            runs: How often it is run.

        Raises:
            Error: An array does not fit, the target cannot be measured here, the program comes from a file, or its graph has
                been changed since.
        """
        compilation = self._made_of()
        from rlx.runtime.profiling import profile

        return profile(compilation, inputs, self._content.weights, runs=runs, threads=self._threads)

    def cost(self) -> Cost:
        """The work of one run, summed over the ops of the LIR: `flops`, and the `bytes` that each op reads and writes.

        Both are numbers, or expressions of the symbols. What kernels keep in registers is counted too, and what is computed at
        load.

        Raises:
            Error: The program comes from a file, or its graph has been changed since.
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
        """A copy of a state's present value.

        Raises:
            Error: There is no such state.
        """
        self._check_state(name)
        self._settle()
        return holding(self._lock, self._read_state, name)

    def _read_state(self, name: str) -> np.ndarray:
        return self._loaded().read_state(name)

    def set_state(self, name: str, value: Any) -> None:
        """Give a state another value, which is copied to the device.

        Raises:
            Error: There is no such state, or shape or dtype differ.
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
        """Give every state its initial value again."""
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

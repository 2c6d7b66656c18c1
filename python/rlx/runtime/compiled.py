"""`CompiledGraph`: a compiled program with its weights and its state."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.backends.artifact import Artifact
from rlx.backends.contract import calling, check_results
from rlx.backends.protocol import Program, Remarking
from rlx.backends.registry import backend_of, runtime_of
from rlx.ir.attributes import suggestion
from rlx.ir.errors import Error, ExecutionError
from rlx.ir.evaluate import argument_array, bind_symbols
from rlx.ir.files import file_name
from rlx.ir.given import given_array
from rlx.ir.locks import holding, make_lock
from rlx.ir.requirements import Requirement
from rlx.ir.signature import Argument
from rlx.weights import Weights, opened
from rlx.weights.arrays import keep

if TYPE_CHECKING:
    from rlx.backends.compilation import Compilation
    from rlx.ir.card import Cost
    from rlx.report.profile import ProfileReport
    from rlx.report.tuning import TuningReport


@dataclass(frozen=True)
class _Content:
    """All of a `CompiledGraph` that changes. It is replaced as a whole, so that an interrupt leaves the old or the new.

    Attributes:
        weights: Values of the parameters.
        states: What the states get when the program is loaded, where that is not their first value.
        program: The program, once it is loaded.
        proved: Whether the program has been called, and returned what it should.
    """

    weights: Mapping[str, np.ndarray] = field(default_factory=dict)
    states: Mapping[str, np.ndarray] = field(default_factory=dict)
    program: Program | None = None
    proved: bool = True


_MOST_THREADS = 4096  # more than cores of any machine; each has a stack of its own


def checked_threads(threads: int | None) -> int | None:
    """How many threads a program may use; None is one for each core.

    Raises:
        Error: It is no integer from 1 to 4096.
    """
    if threads is None:
        return None
    if not isinstance(threads, int) or isinstance(threads, bool) or not 1 <= threads <= _MOST_THREADS:
        raise Error(f"threads must be an integer from 1 to {_MOST_THREADS}, got {threads!r:.60}")
    return threads


_LISTED = 20  # how many names a message lists


def listed(names: Collection[str]) -> str:
    """Names for a message, which does not get longer than a few lines."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return (", ".join(list(names)[:_LISTED]) or "none") + more


def checked_cast(cast: Any) -> bool:
    """Whether dtypes are converted.

    Raises:
        Error: It is neither True nor False.
    """
    if not isinstance(cast, bool):
        raise Error(f"cast is True or False, not {cast!r:.60}")
    return cast


class CompiledGraph:
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
        self._content = _Content()
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
            raise self._no_parameter(name)
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
        params, cast = opened(params), checked_cast(cast)
        if isinstance(params, Weights):
            params, copy = params.values_of(self._params.values(), cast=cast), False
        arrays = {}
        for name, value in params.items():
            if name not in self._params:
                raise self._no_parameter(name)
            arrays[name] = argument_array(self._params[name], value, cast=cast)
        arrays = {name: keep(array, copy) for name, array in arrays.items()}
        holding(self._lock, self._replace_weights, arrays)

    def _no_parameter(self, name: Any) -> Error:
        return Error(
            f"there is no parameter '{name}'{suggestion(str(name), self._params)}; the program has {listed(self._params)}"
        )

    def _replace_weights(self, arrays: Mapping[str, np.ndarray]) -> None:
        before = self._content
        states = before.states
        if before.program is not None:
            states = {name: before.program.read_state(name) for name in self._states}
        self._content = _Content({**before.weights, **arrays}, states)

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
            described = ", ".join(f"'{n}' ({self._params[n].shape})" for n in missing[:10])
            raise Error(f"{len(missing)} parameters are not set: {described}", hint="call set_param or set_params")
        runtime, backend = runtime_of(self.artifact.target), backend_of(self.artifact.target)
        with calling(backend, "load", ExecutionError):
            program = runtime.load(self.artifact, content.weights, self._threads)
            for name, value in content.states.items():
                program.write_state(name, value)
        self._content = _Content(content.weights, program=program, proved=False)
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
        if inputs is None:
            inputs = {}
        elif type(inputs) is not dict and not isinstance(inputs, Mapping):
            raise Error(f"inputs must be a mapping of names to arrays, got {type(inputs).__name__}")
        if self._content.program is None:
            self.load()
        arrays: list[np.ndarray] = []
        for name, dtype, shape, argument in self._checks:
            try:
                array = inputs[name]
            except (KeyError, TypeError, IndexError):
                raise missing_input(inputs, argument, self._inputs) from None
            if type(array) is not np.ndarray:
                array = given_array(array, argument.shape.dtype, f"input '{name}'")
            if array.dtype != dtype or array.shape != shape:
                array = argument_array(argument, array)
            if not array.flags.c_contiguous:
                array = array.copy()
            arrays.append(array)
        if len(inputs) != len(arrays):
            raise unknown_input(inputs, self._inputs, self._params)
        if self._symbolic:
            sizes = bind_symbols([(a, array.shape) for a, array in zip(self._inputs, arrays, strict=True)])
            for requirement in self._requirements:
                requirement.check(sizes)
        if not self._content.proved:
            return holding(self._lock, self._run_first, arrays)
        # `holding` without the time of its call
        with self._lock: return (self._content.program or self._loaded()).call(arrays)  # noqa: E701  # fmt: skip

    __call__ = run

    def run_named(self, inputs: Mapping[str, Any] | None = None) -> dict[str, np.ndarray]:
        """Run the program once; outputs by name."""
        return dict(zip(self.output_names, self.run(inputs), strict=True))

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
        from rlx.runtime.profiling import profile

        return profile(self._made_of(), inputs, self._content.weights, runs=runs, threads=self._threads)

    def cost(self) -> Cost:
        """The work of one run, summed over the ops of the LIR: `flops`, and the `bytes` that each op reads and writes.

        Both are numbers, or expressions of the symbols. What kernels keep in registers is counted too, and what is computed at
        load.

        Raises:
            Error: The program comes from a file, or its graph has been changed since.
        """
        from rlx.ir.listing import inspect_graph

        return inspect_graph(self._made_of().lir).cost

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
        holding(self._lock, self._write_state, name, array)

    def _write_state(self, name: str, array: np.ndarray) -> None:
        content = self._content
        if content.program is None:
            self._content = _Content(content.weights, {**content.states, name: array})
        else:
            content.program.write_state(name, array)

    def _check_state(self, name: str) -> None:
        if not isinstance(name, str) or name not in self._states:
            close = suggestion(name, self._states)
            raise Error(f"there is no state '{name}'{close}; the program has {listed(self._states)}")

    def reset_state(self) -> None:
        """Give every state its initial value again."""
        holding(self._lock, self._reset_state)

    def _reset_state(self) -> None:
        content = self._content
        if content.program is None:
            self._content = _Content(content.weights)
            return
        for name, argument in self._states.items():
            shape = argument.shape
            content.program.write_state(name, np.full(shape.static, argument.init, shape.dtype.numpy))

    # --- keeping ----------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program (without weights) to a file that `rlx.load` and `rlx run` read."""
        self.artifact.save(file_name(path))

    def _repr_html_(self) -> str:
        from rlx.report import html
        from rlx.report.text import bytes_text

        signature = self.artifact.signature
        rows = [(a.kind, a.name, str(a.shape)) for a in signature.arguments if a.kind != "param"]
        rows += [("output", o.name, str(o.shape)) for o in signature.outputs]
        params = [
            (a.name, str(a.shape), "set" if a.name in self._content.weights else "not set")
            for a in self._params.values()
        ]
        weights = html.table(params, ("parameter", "shape", ""), most=100)
        phases = [(name, f"{1e3 * seconds:.4g} ms") for name, seconds in self.phases.items() if name != "cached"]
        parts = [html.table(rows, ("", "name", "shape"))]
        parts += [html.details(f"{len(params)} parameters", weights)] if params else []
        parts += (
            [html.details("Time of compiling", html.table(phases, ("phase", "time"), right=(1,)))] if phases else []
        )
        size = bytes_text(len(self.artifact.program))
        return html.fragment(
            f"@{signature.name} for {self.artifact.target} ({self.artifact.arch}), {size}", "".join(parts)
        )

    def __repr__(self) -> str:
        artifact, signature = self.artifact, self.artifact.signature
        inputs = ", ".join(f"{a.name}: {a.shape}" for a in signature.arguments if a.kind != "param")
        outputs = ", ".join(f"{o.name}: {o.shape}" for o in signature.outputs)
        return f"<CompiledGraph {signature.name}({inputs}) -> {outputs} for {artifact.target} ({artifact.arch})>"


def missing_input(inputs: Any, argument: Argument, arguments: Sequence[Argument]) -> Error:
    """The error that an input is not among those given, or that they are no mapping."""
    if not isinstance(inputs, Mapping):
        return Error(f"inputs must be a mapping of names to arrays, got {type(inputs).__name__}")
    names = [a.name for a in arguments]
    given = [name for name in inputs if name not in names]
    close = [name for name in given if suggestion(name, [argument.name])]
    other = f"; there is no input {(close or given)[0]!r:.60}" if given else ""
    meant = suggestion(close[0], [argument.name]) if close else ""
    hint = f"the program takes {listed(names)}" if given and not close else None
    return Error(f"input '{argument.name}' ({argument.shape}) is missing{other}{meant}", hint=hint)


def unknown_input(inputs: Mapping[str, Any], arguments: Sequence[Argument], params: Collection[str]) -> Error:
    """The error that more is given than the inputs there are."""
    names = [a.name for a in arguments]
    unknown = next(name for name in inputs if not isinstance(name, str) or name not in names)
    kind = " (it is a parameter: use set_param)" if unknown in params else suggestion(str(unknown), names)
    return Error(f"there is no input '{unknown}'{kind}; the program takes {listed(names)}")

"""`Program`: compiled code with its weights and states."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.ir.interface import Argument, Output
from rlx.runtime.arguments import check_flags, unknown_name, unset_params
from rlx.runtime.device_array import DeviceArray
from rlx.runtime.entry_point import CompiledFunction, EntryPoint, PaddedCall, UnknownEntryPointError, lasting_arrays
from rlx.runtime.program_file import archive_of, entries_of
from rlx.runtime.program_tier import ProgramTier
from rlx.runtime.program_values import ProgramValues
from rlx.runtime.shared_data import SharedData
from rlx.support.errors import Error
from rlx.support.files import file_name
from rlx.support.locks import holding
from rlx.support.short import join_names, short_repr
from rlx.targets.artifacts.archive import Archive
from rlx.targets.artifacts.artifact import Artifact
from rlx.targets.artifacts.buckets import Sizes
from rlx.targets.protocol import KeepingResults, Remarking

if TYPE_CHECKING:
    from concurrent.futures import Future

    from rlx.ir.op.card import Cost
    from rlx.report.profile import ProfileReport
    from rlx.report.tuning import TuningReport


class Program(ProgramValues, ProgramTier, Mapping[str, "Program"]):
    """Compiled code with its weights and states. Created by `Session.compile` and `rlx.load`.

    A program has one entry point or several. With one, `run` and the other methods apply to it. With several, the
    program is a mapping: `program["decode"]` is a program with this entry point alone, and calls of the whole program
    raise an error. Entry points share parameters and states by name. A state with the same name is one state: an entry
    point continues from the value that the previous one left.

    An entry point may have buckets, programs for some sizes of symbols (`Session.compile(…, buckets={"seq": [32, 128]})`).
    A run uses the smallest bucket that holds the sizes of its inputs. Inputs are padded with zeros at the end of the
    symbol's axes, and outputs are cut to the real sizes. Therefore results for real positions must not depend on later
    positions: an encoder needs an attention mask (0 for padding), a causal decoder does not.

    Any thread may call any method. Runs and changes of parameters or states are serialised.

    Args:
        source: The artifact of a single graph, or entry points by name; the name None is that of a single graph.
        threads: Threads that an artifact may use on the CPU.

    Attributes:
        tuning: The trials and the choice of tuning, for a program that was compiled with `tune=`.
    """

    def __init__(self, source: Artifact | Mapping[str | None, EntryPoint], *, threads: int | None = None):
        if isinstance(source, Artifact):
            source = {None: EntryPoint.of(CompiledFunction(source, threads=threads))}
        elif (
            not isinstance(source, Mapping) or not source or not all(isinstance(e, EntryPoint) for e in source.values())
        ):
            hint = "Session.compile compiles graphs, and rlx.load reads files"
            raise Error(f"Program takes an Artifact or entry points by name, got {type(source).__name__}", hint=hint)
        self._set(source, SharedData(source))

    def _set(self, entries: Mapping[str | None, EntryPoint], data: SharedData) -> None:
        self._entries, self._data = entries, data
        self.tuning: TuningReport | None = None
        names = {a.name for entry in entries.values() for a in entry.signature.arguments}
        self._params = {name: a for name, a in data.params.items() if name in names}
        self._states = {name: a for name, a in data.states.arguments.items() if name in names}
        entry = next(iter(entries.values())) if len(entries) == 1 else None
        self._entry, self._function = entry, entry.function if entry is not None else None
        self._functions = [function for each in entries.values() for function in each.functions.values()]
        parts, sized = (vars(self).get(name, {}) for name in ("_parts", "_sized"))
        self._parts: dict[str, Program] = {
            name: self._part(part, parts.get(name)) for name, part in entries.items() if name is not None
        }
        self._sized: dict[Sizes, Program] = {}
        if entry is not None and entry.buckets is not None:
            self._sized = {s: self._part(EntryPoint.of(f), sized.get(s)) for s, f in entry.functions.items()}

    def _part(self, entry: EntryPoint, part: Program | None) -> Program:
        """Return a program with one entry point, which shares the data of this one: a given program or a new one."""
        part = Program.__new__(Program) if part is None else part
        part._set({None: entry}, self._data)
        return part

    # --- entry points -----------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Program:
        """Return an entry point.

        Raises:
            Error: The entry point does not exist.
        """
        if not isinstance(name, str) or name not in self._parts:
            unknown = unknown_name("entry point", name, self._parts).message
            single = f"there is no entry point {short_repr(name)}: the program is of a single graph"
            raise UnknownEntryPointError(unknown if self._parts else single)
        return self._parts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __bool__(self) -> bool:
        return True  # a program of a single graph has no names

    def __eq__(self, other: object) -> bool:
        return self is other  # unlike mappings

    def __hash__(self) -> int:
        return id(self)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the entry points; empty for a single graph."""
        return tuple(self._parts)

    def _one(self, what: str) -> EntryPoint:
        """Return the only entry point.

        Raises:
            Error: There are several.
        """
        if self._entry is None:
            hint = f"take one of them: program[{next(iter(self._parts))!r:.60}].{what}"
            raise Error(f"{what}: the program has the entry points {join_names(self._parts)}", hint=hint)
        return self._entry

    def _one_function(self, what: str) -> CompiledFunction:
        """Return the only compiled function, the optimised one.

        Raises:
            Error: There are several entry points or buckets, or the optimised function cannot be compiled.
        """
        self.wait_for_best()
        buckets = self._one(what).buckets
        if self._function is None:
            assert buckets is not None
            hint = f"take one of them: program.program_for({buckets.example}).{what}"
            raise Error(f"{what}: the program has the buckets {buckets}", hint=hint)
        return self._function

    @property
    def buckets(self) -> Mapping[str, tuple[int, ...]]:
        """The sizes of each bucketed symbol; empty without buckets."""
        buckets = self._one("buckets").buckets
        return {} if buckets is None else dict(buckets.sizes)

    def program_for(self, **sizes: int) -> Program:
        """Return the program that runs for sizes of the bucketed symbols. It shares the weights of this one.

        Raises:
            Error: There are no buckets, a symbol is unknown or missing, or a size is not an integer.
            ShapeError: A size is larger than the largest bucket.
        """
        buckets = self._one("program_for").buckets
        if buckets is None:
            raise Error("program_for: the program has no buckets", hint="compile(g, buckets={symbol: sizes}) has")
        return self._sized[buckets.choose(sizes)]

    @property
    def artifact(self) -> Artifact:
        """The compiled code in the form that can be saved. A program that calls LAPACK is compiled again without the calls."""
        return self._one_function("artifact").saved_artifact

    @property
    def phases(self) -> Mapping[str, float]:
        """Seconds of each compile phase; empty for a program from a file."""
        each = [f.compilation.phases for f in self._functions if f.compilation is not None]
        return {name: sum(phases.get(name, 0) for phases in each) for phases in each for name in phases}

    @property
    def inputs(self) -> tuple[Argument, ...]:
        """The inputs, in order."""
        return self._one("inputs").inputs.arguments

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The outputs, in order."""
        return self._one("outputs").signature.outputs

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs, in order."""
        return [o.name for o in self.outputs]

    def load(self) -> None:
        """Load the program and its weights on the device now, rather than at the first run.

        Raises:
            Error: A parameter has not been set.
            ExecutionError: The device is not available.
        """
        for function in self._functions:
            holding(self._data.lock, self._data.load, function)

    # --- running ----------------------------------------------------------------------------------

    def run(self, inputs: Any = None, **named: Any) -> list[np.ndarray]:
        """Run the program once.

        Args:
            inputs: A mapping of names to arrays: anything with `__array__` or `__dlpack__`, and Python numbers or lists
                of numbers, which take the dtype of the input if they fit. They are never changed, unless donated. For a
                program with one input, its value, or a list of this one array: `run(x)`, `run([x])`.
            named: Inputs by name: `run(x=…)`.

        Returns:
            One array for each output, in order. They own their memory.

        Raises:
            Error: An input is missing, unknown, of the wrong shape or dtype, or larger than the largest bucket; the
                message names the input. Or there are several entry points.
        """
        function, data = self._function, self._data
        if named or type(inputs) is not dict:
            inputs = self._one("run").inputs.by_name(inputs, named)
        if function is None:
            call = self._padded("run", inputs)
            data.settle()
            return call.cut(holding(data.lock, data.call, call.function, call.arrays))
        if data.order is not None:
            data.order.settle()
        if function not in data.ready:  # an error of loading comes before inputs are donated
            function = self._loaded(function)
        arrays = function.inputs.arrays(inputs)
        # `holding`, inlined to save the time of the call
        with data.lock: return data.ready[function](arrays) if function in data.ready else data.call(function, arrays)  # noqa: E701  # fmt: skip

    __call__ = run

    def _padded(self, what: str, inputs: Mapping[str, Any], *, lasting: bool = False) -> PaddedCall:
        """Return the call of the bucket of some inputs: see `EntryPoint.padded`."""
        entry = self._one(what)
        self._data.check_weights(next(iter(entry.functions.values())))  # before inputs are donated
        return entry.padded(inputs, lasting=lasting)

    def run_named(self, inputs: Any = None, **named: Any) -> dict[str, np.ndarray]:
        """Run the program once, like `run`. Returns the outputs by name."""
        names = [o.name for o in self._one("run_named").signature.outputs]
        return dict(zip(names, self.run(inputs, **named), strict=True))

    def run_device(self, inputs: Any = None, **named: Any) -> list[DeviceArray]:
        """Run the program once, and keep the outputs on its device. Programs on the same device take them without a copy.

        Outputs of buckets are cut in the host's memory.

        Args:
            inputs: Inputs as for `run`, or device arrays. A device array passed for a donated input cannot be used
                afterwards.
            named: Inputs by name.

        Returns:
            One array for each output, in order.

        Raises:
            Error: As for `run`, or a device array was donated before, or the device cannot keep outputs.
        """
        entry, data = self._one("run_device"), self._data
        inputs = entry.inputs.by_name(inputs, named, "run_device")
        function = self._function or next(iter(entry.functions.values()))
        device = function.artifact.target
        data.settle()
        program = holding(data.lock, data.load, function)
        results: list[Any]
        if isinstance(program, KeepingResults) and self._function is not None:
            arrays = function.inputs.arrays(inputs, for_device=True)
            results = holding(data.lock, data.call_on_device, function, arrays)
        elif isinstance(program, KeepingResults) or getattr(program, "in_host_memory", True):
            results = self.run(inputs)
        else:
            hint = "run copies them to the host; states stay on the device: g.state, g.update"
            raise Error(f"outputs of programs for {device} cannot stay on the device", hint=hint)
        return [DeviceArray(r, device, o.name) for r, o in zip(results, entry.signature.outputs, strict=True)]

    def run_async(self, inputs: Any = None, **named: Any) -> Future[list[np.ndarray]]:
        """Run the program once in a separate thread, and return immediately.

        Several calls may be pending: they run one after the other, in the order of the calls, so states are the same as
        without threads. All other methods wait for them. Arrays are copied first, and may be changed after the call
        returns; donated arrays, device arrays and read-only arrays are not copied.

        Args:
            inputs: As for `run`.
            named: Inputs by name.

        Returns:
            A `concurrent.futures.Future`: `result()` waits and returns or raises what `run` does, `done()` returns
            whether the call has run, and `cancel()` cancels a call that has not begun.

        Raises:
            Error: As for `run`.
        """
        function, data = self._function, self._data
        inputs = self._one("run_async").inputs.by_name(inputs, named, "run_async")
        if function is None:
            call = self._padded("run_async", inputs, lasting=True)
            order = holding(data.lock, data.begin_order)
            return order.submit(lambda: call.cut(holding(data.lock, data.call, call.function, call.arrays)))
        holding(data.lock, data.load, function)
        arrays = lasting_arrays(function.inputs, inputs, function.inputs.arrays(inputs))
        order = holding(data.lock, data.begin_order)
        return order.submit(holding, data.lock, data.call, function, arrays)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks of the device about the last run, such as the cycles of a simulation; empty for most devices."""
        loaded = (self._data.content.programs.get(function) for function in self._functions)
        return tuple(remark for program in loaded if isinstance(program, Remarking) for remark in program.remarks())

    def profile(self, inputs: Mapping[str, Any] | None = None, *, runs: int = 20) -> ProfileReport:
        """Measure each kernel of the program: its time, and the user's lines that it computes.

        The program is compiled again for this and run separately: the states and parameters of this one are not
        changed.

        Args:
            inputs: Arrays by name; missing inputs, and weights that are not set, are random.
            runs: The number of runs.

        Raises:
            Error: An array does not fit, the target cannot be measured here, the program was loaded from a file, or its
                graph has been changed since. Or there are several entry points or buckets.
        """
        function = self._one_function("profile")
        compilation = function.checked_compilation()
        from rlx.runtime.profiling import profile

        return profile(compilation, inputs, self._values()[0], runs=runs, threads=function.threads)

    def cost(self) -> Cost:
        """Return the work of one run, summed over the ops of the LIR: `flops`, and the `bytes` that each op reads and writes.

        Both are numbers, or expressions of the symbols. Values that kernels keep in registers are included, and so are
        computations at load time.

        Raises:
            Error: The program was loaded from a file, or its graph has been changed since. Or there are several entry
                points or buckets.
        """
        lir = self._one_function("cost").checked_compilation().lir
        from rlx.ir.graph.listing import inspect_graph

        return inspect_graph(lir).cost

    # --- files, copies and repr -------------------------------------------------------------------

    def save(
        self,
        path: str | os.PathLike[str],
        *others: Program,
        params: bool = False,
        params_file: str | os.PathLike[str] | None = None,
    ) -> None:
        """Write the program to a file for `rlx.load`, `rlx.deploy.load` and `rlx run`, completely or not at all.

        A program that calls LAPACK (`lapack="auto"`) is compiled again without the calls, which work in this process only.

        Args:
            path: The file; its name usually ends with `.rlxa`.
            others: The same program for other targets or architectures. Loading selects the one for the machine.
            params: True writes the weights of this program into the file, each once, up to 2 GiB.
            params_file: A file to write the weights to, in IREE's format (`.irpa`). The program refers to it by name
                and hash, and the file must be in the same folder.

        Raises:
            Error: A file cannot be written, the programs have other inputs or outputs, or a weight has not been set.
        """
        if wrong := [type(other).__name__ for other in others if not isinstance(other, Program)]:
            raise Error(f"expected a compiled program, got {wrong[0]:.200}", hint="take what Session.compile gives")
        for program in (self, *others):
            program.wait_for_best()
        archive = archive_of(self._entries, [other._entries for other in others])
        check_flags(params=params)
        weights = None
        if params or params_file is not None:
            weights = self._values()[0]
            if missing := [argument for name, argument in self._params.items() if name not in weights]:
                raise unset_params(missing)
        archive.save(file_name(path), weights, params_file)

    def _values(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Return the weights, and copies of the newest values of the states."""
        self._data.settle()
        return holding(self._data.lock, self._data.values, self._params, self._states)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the artifacts, with weights and current states, as a separate program."""
        self.wait_for_best()
        threads = {name: next(iter(entry.functions.values())).threads for name, entry in self._entries.items()}
        return Program._restored, (archive_of(self._entries).to_bytes(), threads, *self._values(), self.tuning)

    @classmethod
    def _restored(cls, data: bytes, threads: Any, weights: Any, states: Any, tuning: Any) -> Program:
        """Restore a pickled program. As for files, whether this machine can run it is checked when it is loaded."""
        program = cls(entries_of(Archive.from_bytes(data, "the pickled program"), threads=threads))
        program._data.set_weights(weights)
        program._data.write_states(states)
        program.tuning = tuning
        return program

    def _repr_html_(self) -> str | None:
        if importlib.util.find_spec("rlx.report.html") is None:  # the distribution for running programs has no pages
            return None
        from rlx.runtime.display import program_html

        return program_html(self._entries, self._data.content.weights, self.phases)

    def __repr__(self) -> str:
        from rlx.runtime.display import program_text

        return program_text(self._entries, self._data.content.weights)

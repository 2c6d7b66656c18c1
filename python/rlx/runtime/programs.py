"""`Programs`: compiled entry points that share parameters and states by name."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rlx.ir.interface import Argument, argument_array
from rlx.ir.parameters import unknown_parameter
from rlx.runtime.arguments import given_params, unknown_name, unset_params
from rlx.runtime.compiled import CompiledGraph
from rlx.runtime.content import Content
from rlx.runtime.order import Order
from rlx.runtime.shared_states import SharedStates, States, sharing
from rlx.support.errors import Error
from rlx.support.files import file_name
from rlx.support.locks import holding, make_lock
from rlx.support.printable import printable
from rlx.support.short import join_names
from rlx.targets.artifacts.archive import Archive
from rlx.targets.artifacts.artifact import Artifact
from rlx.targets.artifacts.signature import shared_arguments
from rlx.targets.protocol import LoadedProgram


class _Shared:
    """The shared data of entry points. Changes require the lock.

    Attributes:
        params: The parameters, by name.
        states: The states, with their values.
        contents: The content of each entry. The mapping is replaced as a whole, so that new weights apply to all
            entries or none.
    """

    def __init__(self, arguments: Mapping[str, Mapping[str, Argument]]):
        self.lock, self.order = make_lock(), Order()
        together = shared_arguments({entry: own.values() for entry, own in arguments.items()})
        self.params = {name: a for name, a in together.items() if a.kind == "param"}
        self.states = States({name: a for name, a in together.items() if a.kind == "state"})
        self.contents = dict.fromkeys(arguments, Content())
        self._arguments = arguments

    def set_weights(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Set weights in all entries that have them. Each entry loads them at its next run."""
        contents, leaving = {}, []
        for entry, content in self.contents.items():
            own = {name: array for name, array in arrays.items() if name in self._arguments[entry]}
            if own and isinstance(content.program, SharedStates):
                leaving.append(content.program.program)
            contents[entry] = Content({**content.weights, **own}) if own else content
        self.states.leave(leaving)
        self.contents = contents

    def weights(self) -> dict[str, np.ndarray]:
        """Return the weights of all entries."""
        return {name: array for content in self.contents.values() for name, array in content.weights.items()}

    def values(self) -> dict[str, np.ndarray]:
        """Return copies of the newest values of the states."""
        return {name: self.states.read(name) for name in self.states.arguments}


class EntryPoint(CompiledGraph):
    """One of several programs that share parameters and states: a change applies to all."""

    def __init__(self, of: CompiledGraph, shared: _Shared, name: str):
        self._shared, self._name = shared, name
        super().__init__(of.artifact, threads=of._threads, compilation=of._compilation)
        self.phases, self.tuning = of.phases, of.tuning
        self._lock, self._order = shared.lock, shared.order

    @property
    def _content(self) -> Content:
        return self._shared.contents[self._name]

    @_content.setter
    def _content(self, content: Content) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self._shared.contents = {**self._shared.contents, self._name: content}

    def _load_on_device(self, content: Content) -> LoadedProgram:
        return sharing(super()._load_on_device(content), self._shared.states, tuple(self._states))

    def _replace_weights(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._shared.set_weights(arrays)

    def _read_state(self, name: str) -> np.ndarray:
        return self._shared.states.read(name)

    def _write_state(self, name: str, array: np.ndarray) -> None:
        self._shared.states.write({name: array})

    def _reset_state(self) -> None:
        self._shared.states.write(dict.fromkeys(self._states))

    def _values(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        return dict(self._content.weights), {name: self._shared.states.read(name) for name in self._states}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle a separate `CompiledGraph`, with copies of the shared data."""
        return CompiledGraph._restored, super().__reduce__()[1]


class Programs:
    """Compiled entry points that share parameters and states by name. Created by `Session.compile({…})` and `rlx.load`.

    `programs["decode"]` is a `CompiledGraph`; `len`, `in` and iteration work as for a mapping. Parameters with the same
    name have one value. States with the same name are one state: an entry point continues from the value that the
    previous one left. The value is transferred only when another entry point runs. Any thread may call any method;
    calls are serialised, those of `run_async` in the order of the calls.
    """

    def __init__(self, programs: Mapping[str, CompiledGraph]):
        if not programs:
            raise Error("there are no entry points", hint='compile({"prefill": graph, "decode": other})')
        arguments = {n: {a.name: a for a in p.artifact.signature.arguments} for n, p in programs.items()}
        self._shared = _Shared(arguments)
        self._entries = {name: EntryPoint(program, self._shared, name) for name, program in programs.items()}

    # --- entry points -----------------------------------------------------------------------------

    def __getitem__(self, name: str) -> CompiledGraph:
        """Return an entry point.

        Raises:
            Error: The entry point does not exist.
        """
        if not isinstance(name, str) or name not in self._entries:
            raise unknown_name("entry point", name, self._entries)
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._entries

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the entry points."""
        return tuple(self._entries)

    @property
    def params(self) -> tuple[Argument, ...]:
        """The parameters of all entry points."""
        return tuple(self._shared.params.values())

    @property
    def states(self) -> tuple[Argument, ...]:
        """The states of all entry points."""
        return tuple(self._shared.states.arguments.values())

    def load(self) -> None:
        """Load all programs on their device now, rather than at their first run.

        Raises:
            Error: A parameter has not been set.
            ExecutionError: The device is not available.
        """
        for entry in self._entries.values():
            entry.load()

    # --- parameters -------------------------------------------------------------------------------

    def set_param(self, name: str, value: Any, *, copy: bool = True, cast: bool = False) -> None:
        """Set one weight in all entry points that have it; see `CompiledGraph.set_param`."""
        if not isinstance(name, str):
            raise unknown_parameter(name, self._shared.params)
        self.set_params({name: value}, copy=copy, cast=cast)

    def set_params(
        self, params: Mapping[str, Any] | str | os.PathLike[str], *, copy: bool = True, cast: bool = False
    ) -> None:
        """Set weights in all entry points, which share one copy in the host's memory; see `CompiledGraph.set_params`.

        Raises:
            Error: A parameter does not fit, no entry point has it, or a file lacks it. Then none is set.
        """
        arrays = given_params(self._shared.params, params, copy, cast)
        self._settle()
        holding(self._shared.lock, self._shared.set_weights, arrays)

    # --- states -----------------------------------------------------------------------------------

    def state(self, name: str) -> np.ndarray:
        """Return a copy of a state's current value.

        Raises:
            Error: The state does not exist.
        """
        self._checked_state(name)
        self._settle()
        return holding(self._shared.lock, self._shared.states.read, name)

    def set_state(self, name: str, value: Any) -> None:
        """Set a state to another value, for all entry points.

        Raises:
            Error: The state does not exist, or shape or dtype differ.
        """
        array = np.array(argument_array(self._checked_state(name), value), order="C")
        self._settle()
        holding(self._shared.lock, self._shared.states.write, {name: array})

    def reset_state(self) -> None:
        """Reset every state to its initial value."""
        self._settle()
        states = self._shared.states
        holding(self._shared.lock, states.write, dict.fromkeys(states.arguments))

    def _checked_state(self, name: Any) -> Argument:
        known = self._shared.states.arguments
        if not isinstance(name, str) or name not in known:
            raise unknown_name("state", name, known)
        return known[name]

    def _settle(self) -> None:
        """Wait for the calls of `run_async`."""
        self._shared.order.settle()

    # --- files, copies and repr ---------------------------------------------------------------------

    def save(
        self,
        path: str | os.PathLike[str],
        *others: Programs,
        params: bool = False,
        params_file: str | os.PathLike[str] | None = None,
    ) -> None:
        """Write all entry points to one file, for `rlx.load`, `rlx.deploy.load` and `rlx run --entry=NAME`.

        Args:
            path: The file; its name usually ends with `.rlxa`.
            others: The same entry points for other targets or architectures; see `CompiledGraph.save`.
            params: True writes the weights into the file, each once, up to 2 GiB.
            params_file: A separate file for the weights.

        Raises:
            Error: A file cannot be written, the programs have other inputs or outputs, or a weight has not been set.
        """
        archive = Archive.of({name: [p[name].artifact for p in (self, *map(self._alike, others))] for name in self})
        if params or params_file is not None:
            self._settle()
            weights = holding(self._shared.lock, self._shared.weights)
            if missing := [argument for argument in self.params if argument.name not in weights]:
                raise unset_params(missing)
            archive = archive.with_parameters(file_name(path), weights, params_file)
        archive.save(file_name(path))

    def _alike(self, other: Any) -> Programs:
        """Return other programs, checked to have the same entry points.

        Raises:
            Error: They are something else.
        """
        if not isinstance(other, Programs) or set(other.names) != set(self.names):
            given = type(other).__name__ if not isinstance(other, CompiledGraph) else "a single program"
            given = f"those with {', '.join(other.names)}" if isinstance(other, Programs) else given
            raise Error(f"expected programs with the entry points {', '.join(self.names)}, got {given:.200}")
        return other

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the artifacts, with weights and current states, as separate programs."""
        self._settle()
        weights, states = holding(self._shared.lock, lambda: (self._shared.weights(), self._shared.values()))
        rows = {n: (e.artifact.to_bytes(), e._threads, e.tuning) for n, e in self._entries.items()}
        return Programs._restored, (rows, weights, states)

    @classmethod
    def _restored(cls, rows: Mapping[str, Any], weights: Any, states: Any) -> Programs:
        """Restore pickled programs."""
        compiled = {}
        for name, (data, threads, tuning) in rows.items():
            compiled[name] = CompiledGraph(Artifact.from_bytes(data, "the pickled program"), threads=threads)
            compiled[name].tuning = tuning
        programs = cls(compiled)
        programs._shared.set_weights(weights)
        programs._shared.states.write(states)
        return programs

    def __repr__(self) -> str:
        count, known = len(self._shared.params), len(self._shared.weights())
        params = f"; {count} parameter{'s' if count > 1 else ''}, {'all' if count == known else known} set"
        states = f"; states {join_names(f'{a.name}: {a.shape}' for a in self.states)}" if self.states else ""
        head = f"<Programs {', '.join(self)}{params if count else ''}{states}"
        lines = [head, *(f"{name}: {entry!r}" for name, entry in self._entries.items())]
        return "\n  ".join(printable(line, keep="") for line in lines) + ">"

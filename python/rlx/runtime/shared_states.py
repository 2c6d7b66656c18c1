"""States shared by several programs. Each value is in the program that ran last, and is transferred when another one runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from rlx.ir.interface import Argument
from rlx.targets.protocol import KeepingResults, LoadedProgram, Remarking


class States:
    """The holder of the newest value of each state. Callers must hold the lock of the programs.

    Changes are made in one step, and a value is transferred before its holder is changed, so an interrupt leaves the
    newest value with its holder.

    Attributes:
        arguments: The states, by name.
    """

    def __init__(self, arguments: Mapping[str, Argument]):
        self.arguments = arguments
        # The holder of a state's value: a loaded program, an immutable array, or None for the initial value.
        self._holders: dict[str, LoadedProgram | np.ndarray | None] = dict.fromkeys(arguments)
        self.last: LoadedProgram | None = None  # the program that is known to have the newest value of all its states

    def read(self, name: str) -> np.ndarray:
        """Return a copy of the newest value of a state."""
        return self._value(name).copy()

    def _value(self, name: str) -> np.ndarray:
        holder = self._holders[name]
        if holder is None:
            argument = self.arguments[name]
            return np.full(argument.shape.static, argument.init, argument.shape.dtype.numpy)
        return holder if isinstance(holder, np.ndarray) else holder.read_state(name)

    def write(self, values: Mapping[str, np.ndarray | None]) -> None:
        """Set states to other values, which must not be changed; None is the initial value."""
        self.last = None
        self._holders = {**self._holders, **values}

    def leave(self, programs: Collection[LoadedProgram]) -> None:
        """Fetch the values held by programs that will not run again."""
        held = {name for name, holder in self._holders.items() if any(holder is program for program in programs)}
        self.write({name: self._value(name) for name in held})

    def bring(self, program: LoadedProgram, names: Sequence[str]) -> None:
        """Transfer the newest values of its states to a program, which then holds them."""
        self.last = None
        for name in names:
            if self._holders[name] is not program:
                self._hand(name, program)
                self._holders[name] = program
        self.last = program

    def _hand(self, name: str, program: LoadedProgram) -> None:
        holder = self._holders[name]
        take: Callable[[str, Any], bool] | None = getattr(program, "take_state", None)  # see `protocol.TakingStates`
        in_program = holder is not None and not isinstance(holder, np.ndarray)
        if take is None or not in_program or not take(name, holder):
            program.write_state(name, self._value(name))


class SharedStates:
    """A loaded program that has the newest values of its states whenever it runs.

    Args:
        program: The program loaded by its back end.
        states: The states shared with others.
        names: The names of its states.
    """

    def __init__(self, program: LoadedProgram, states: States, names: Sequence[str]):
        self.program = program
        self._states, self._names = states, tuple(names)
        self.in_host_memory = getattr(program, "in_host_memory", True)
        if isinstance(program, Remarking):
            self.remarks = program.remarks

    def call(self, arrays: Sequence[np.ndarray], /) -> list[np.ndarray]:
        """Call the program: see `LoadedProgram.call`."""
        if self._states.last is not self.program:
            self._states.bring(self.program, self._names)
        return self.program.call(arrays)

    def read_state(self, name: str) -> np.ndarray:
        """Return a copy of the newest value of a state."""
        return self._states.read(name)

    def write_state(self, name: str, value: np.ndarray) -> None:
        """Set the value of a state, for all programs that share it."""
        self._states.write({name: np.array(value, order="C")})


class SharingOnDevice(SharedStates):
    """A program with shared states whose results may stay on its device."""

    program: Any

    def call_on_device(self, arrays: Sequence[Any], /) -> list[Any]:
        """Call the program: see `KeepingResults.call_on_device`."""
        if self._states.last is not self.program:
            self._states.bring(self.program, self._names)
        return self.program.call_on_device(arrays)


def sharing(program: LoadedProgram, states: States, names: Sequence[str]) -> SharedStates:
    """Return a program that shares its states."""
    return (SharingOnDevice if isinstance(program, KeepingResults) else SharedStates)(program, states, names)

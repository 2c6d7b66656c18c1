"""States shared by several programs. Each value is in the program that ran last, and is transferred when another one runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from rlx.ir.interface import Argument
from rlx.targets.protocol import LoadedProgram


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

    def read(self, name: str) -> np.ndarray:
        """Return a copy of the newest value of a state."""
        return self._value(name).copy()

    def _value(self, name: str) -> np.ndarray:
        holder = self._holders[name]
        if holder is None:
            return self.arguments[name].initial_array()
        return holder if isinstance(holder, np.ndarray) else holder.read_state(name)

    def write(self, values: Mapping[str, np.ndarray | None]) -> None:
        """Set states to other values, which must not be changed; None is the initial value."""
        self._holders = {**self._holders, **values}

    def adopt(self, program: LoadedProgram, names: Sequence[str]) -> None:
        """Let a program that has just been loaded hold those of its states that still have their initial values."""
        self._holders = {**self._holders, **{name: program for name in names if self._holders[name] is None}}

    def leave(self, programs: Collection[LoadedProgram]) -> None:
        """Fetch the values held by programs that will not run again."""
        held = {name for name, holder in self._holders.items() if any(holder is program for program in programs)}
        self.write({name: self._value(name) for name in held})

    def bring(self, program: LoadedProgram, names: Sequence[str]) -> None:
        """Transfer the newest values of its states to a program, which then holds them."""
        for name in names:
            if self._holders[name] is not program:
                self._hand(name, program)
                self._holders[name] = program

    def _hand(self, name: str, program: LoadedProgram) -> None:
        holder = self._holders[name]
        take: Callable[[str, Any], bool] | None = getattr(program, "take_state", None)  # see `protocol.TakingStates`
        in_program = holder is not None and not isinstance(holder, np.ndarray)
        if take is None or not in_program or not take(name, holder):
            program.write_state(name, self._value(name))

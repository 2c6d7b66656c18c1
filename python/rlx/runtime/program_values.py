"""Parameters and states of programs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlx.ir.calls import Answered
from rlx.ir.interface import Argument, argument_array
from rlx.ir.parameters import unknown_parameter
from rlx.runtime.arguments import given_params, unknown_name
from rlx.runtime.shared_data import SharedData
from rlx.support.locks import holding


class ProgramValues(Answered):
    """The part of `Program` for its parameters and states."""

    _data: SharedData
    _params: Mapping[str, Argument]
    _states: Mapping[str, Argument]

    @property
    def params(self) -> tuple[Argument, ...]:
        """The parameters of all entry points."""
        return tuple(self._params.values())

    @property
    def states(self) -> tuple[Argument, ...]:
        """The states of all entry points."""
        return tuple(self._states.values())

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
        """Set several weights; the next run loads them. All entry points share one copy in the host's memory.

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
        self._data.settle()
        holding(self._data.lock, self._data.set_weights, arrays)

    # --- states -----------------------------------------------------------------------------------

    def state(self, name: str) -> np.ndarray:
        """Return a copy of a state's current value.

        Raises:
            Error: The state does not exist.
        """
        self._checked_state(name)
        self._data.settle()
        return holding(self._data.lock, self._data.states.read, name)

    def set_state(self, name: str, value: Any) -> None:
        """Set a state to another value, for all entry points. The value is copied.

        Raises:
            Error: The state does not exist, or shape or dtype differ.
        """
        array = np.array(argument_array(self._checked_state(name), value), order="C")
        self._data.settle()
        holding(self._data.lock, self._data.write_states, {name: array})

    def reset_state(self) -> None:
        """Reset every state to its initial value."""
        self._data.settle()
        holding(self._data.lock, self._data.write_states, dict.fromkeys(self._states))

    def _checked_state(self, name: Any) -> Argument:
        if not isinstance(name, str) or name not in self._states:
            raise unknown_name("state", name, self._states)
        return self._states[name]

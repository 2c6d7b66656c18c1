"""`CompiledGraph`: a compiled program with its weights and its state."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from rlx.backends.artifact import Artifact
from rlx.backends.protocol import Program, backend_of
from rlx.ir.arrays import as_array
from rlx.ir.attributes import suggestion
from rlx.ir.errors import Error
from rlx.ir.evaluate import argument_array, bind_symbols, check_argument
from rlx.ir.files import file_name
from rlx.ir.graph import Argument
from rlx.ir.requirements import Requirement
from rlx.runtime.weights import read_safetensors


class CompiledGraph:
    """A compiled program. Made by `Session.compile` and `rlx.load`.

    Set its parameters, then run it: arrays in, arrays out. It may be called from several threads; runs are serialised.

    Attributes:
        artifact: The program as it can be saved.
        phases: Seconds that each phase of compiling took.
    """

    def __init__(self, artifact: Artifact, *, threads: int | None = None, phases: dict[str, float] | None = None):
        self.artifact = artifact
        self.phases = phases or {}
        self._threads = threads
        signature = artifact.signature
        self._inputs = signature.of_kind("input")
        self._params = {a.name: a for a in signature.of_kind("param")}
        self._states = {a.name: a for a in signature.of_kind("state")}
        self._weights: dict[str, np.ndarray] = {}
        self._program: Program | None = None
        self._call: Any = None
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

    def set_param(self, name: str, value: Any) -> None:
        """Give one weight. It is copied when the program is loaded, which the next run does.

        Raises:
            Error: There is no such parameter, or shape or dtype differ.
        """
        if not isinstance(name, str) or name not in self._params:
            known = ", ".join(self._params) or "none"
            raise Error(f"there is no parameter '{name}'{suggestion(name, self._params)}; the program has {known}")
        array = argument_array(self._params[name], value)
        states = self._saved_states()
        self._weights[name] = array.copy()
        self._program = self._call = None
        self._restore = states

    def set_params(self, params: Mapping[str, Any] | str | os.PathLike[str]) -> None:
        """Give several weights, by name or as the path of a safetensors file (whose other tensors are ignored).

        Raises:
            Error: A parameter does not fit, a name is unknown (mapping), or the file is missing, damaged, lacks a
                parameter or holds NaN.
        """
        if isinstance(params, (str, os.PathLike)):
            params = read_safetensors(params, list(self._params))
        if not isinstance(params, Mapping):
            raise Error(f"params must be a mapping or a path, got {type(params).__name__}")
        arrays = {}
        for name, value in params.items():
            if name not in self._params:
                raise Error(f"there is no parameter '{name}'{suggestion(str(name), self._params)}")
            arrays[name] = argument_array(self._params[name], value)
        states = self._saved_states()
        self._weights |= arrays
        self._program = self._call = None
        self._restore = states

    _restore: dict[str, np.ndarray] | None = None

    def _saved_states(self) -> dict[str, np.ndarray]:
        if self._program is None:
            return self._restore or {}
        return {name: self._program.read_state(name) for name in self._states}

    def load(self) -> None:
        """Load the program and its weights on the device now, not at the first run.

        Raises:
            Error: A parameter has not been set.
            ExecutionError: The device is not there.
        """
        missing = [name for name in self._params if name not in self._weights]
        if missing:
            described = ", ".join(f"'{n}' ({self._params[n].shape})" for n in missing[:10])
            raise Error(f"{len(missing)} parameters are not set: {described}", hint="call set_param or set_params")
        self._program = backend_of(self.artifact.target).load(self.artifact, self._weights, self._threads)
        for name, value in (self._restore or {}).items():
            self._program.write_state(name, value)
        self._restore = None
        self._call = self._program.call

    # --- running ----------------------------------------------------------------------------------

    def run(self, inputs: Mapping[str, Any] | None = None) -> list[np.ndarray]:
        """Run the program once.

        Args:
            inputs: Arrays by name; anything with `__array__` or `__dlpack__`. They are never changed, unless donated.

        Returns:
            One array for each output, in order. They own their memory.

        Raises:
            Error: An input is missing, unknown, or of the wrong shape or dtype; it names the input.
        """
        if inputs is None:
            inputs = {}
        elif type(inputs) is not dict and not isinstance(inputs, Mapping):
            raise Error(f"inputs must be a mapping of names to arrays, got {type(inputs).__name__}")
        call = self._call
        if call is None:
            self.load()
            call = self._call
        arrays = []
        for name, dtype, shape, argument in self._checks:
            try:
                array = inputs[name]
            except (KeyError, TypeError, IndexError):
                raise missing_input(inputs, argument, self._inputs) from None
            if type(array) is not np.ndarray:
                array = as_array(array, f"input '{name}'")
            if array.dtype != dtype or array.shape != shape:
                check_argument(argument, array)
            if not array.flags.c_contiguous:
                array = array.copy()
            arrays.append(array)
        if len(inputs) != len(arrays):
            raise unknown_input(inputs, self._inputs, self._params)
        if self._symbolic:
            sizes = bind_symbols([(a, array.shape) for a, array in zip(self._inputs, arrays, strict=True)])
            for requirement in self._requirements:
                requirement.check(sizes)
        return call(arrays)

    __call__ = run

    def run_named(self, inputs: Mapping[str, Any] | None = None) -> dict[str, np.ndarray]:
        """Run the program once; outputs by name."""
        return dict(zip(self.output_names, self.run(inputs), strict=True))

    # --- state ------------------------------------------------------------------------------------

    def state(self, name: str) -> np.ndarray:
        """A copy of a state's present value.

        Raises:
            Error: There is no such state.
        """
        self._check_state(name)
        if self._program is None:
            self.load()
        assert self._program is not None
        return self._program.read_state(name)

    def set_state(self, name: str, value: Any) -> None:
        """Give a state another value, which is copied to the device.

        Raises:
            Error: There is no such state, or shape or dtype differ.
        """
        self._check_state(name)
        array = np.array(argument_array(self._states[name], value), order="C")
        if self._program is None:
            self._restore = (self._restore or {}) | {name: array}
        else:
            self._program.write_state(name, array)

    def _check_state(self, name: str) -> None:
        if not isinstance(name, str) or name not in self._states:
            known = ", ".join(self._states) or "none"
            raise Error(f"there is no state '{name}'{suggestion(name, self._states)}; the program has {known}")

    def reset_state(self) -> None:
        """Give every state its initial value again."""
        self._restore = None
        if self._program is None:
            return
        for name, argument in self._states.items():
            shape = argument.shape
            self._program.write_state(name, np.full(shape.static, argument.init, shape.dtype.numpy))

    # --- keeping ----------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program (without weights) to a file that `rlx.load` and `rlx run` read."""
        self.artifact.save(file_name(path))

    def __repr__(self) -> str:
        artifact = self.artifact
        return f"<CompiledGraph {artifact.signature.name} for {artifact.target} ({artifact.arch})>"


def missing_input(inputs: Any, argument: Argument, arguments: Sequence[Argument]) -> Error:
    """The error that an input is not among those given, or that they are no mapping."""
    if not isinstance(inputs, Mapping):
        return Error(f"inputs must be a mapping of names to arrays, got {type(inputs).__name__}")
    given = [name for name in inputs if name not in {a.name for a in arguments}]
    close = suggestion(argument.name, given) if given else ""
    return Error(f"input '{argument.name}' ({argument.shape}) is missing{close}")


def unknown_input(inputs: Mapping[str, Any], arguments: Sequence[Argument], params: Collection[str]) -> Error:
    """The error that more is given than the inputs there are."""
    names = [a.name for a in arguments]
    unknown = next(name for name in inputs if not isinstance(name, str) or name not in names)
    kind = " (it is a parameter: use set_param)" if unknown in params else suggestion(str(unknown), names)
    return Error(f"there is no input '{unknown}'{kind}; the program takes {', '.join(names) or 'none'}")

"""C programs in this process: loading the library of a program, and calling it."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlx.support.errors import ExecutionError
from rlx.support.locks import holding, is_abandoned, make_lock
from rlx.targets.artifacts.artifact import Artifact
from rlx.targets.c.lower.program import CSource as Source
from rlx.targets.c.lower.writer import Writer

SOURCE = "host.c"


def harness(source: Source) -> str:
    """Return C code that calls a program with arrays of pointers, and exports the size and the offsets of its states."""
    w, name = Writer(), source.name
    states = [source.names[v] for a, v in source.arguments if a.kind == "state"]
    params = [v for a, v in source.arguments if a.kind == "param"]
    inputs = sum(a.kind == "input" for a, _ in source.arguments)
    outputs = sum(o.updates is None for o in source.graph.results)
    w.line(f'#include "{source.files.header}"')
    w.line("#include <stddef.h>")
    offsets = ", ".join([f"sizeof({name}_state)", *(f"offsetof({name}_state, {s})" for s in states)])
    w.line("extern const size_t rlx_layout[];")
    w.line("void rlx_init(void *state);")
    w.line("void rlx_call(void *state, const void *const *params, const void *const *inputs, void *const *outputs);")
    w.line(f"const size_t rlx_layout[] = {{{offsets}}};")
    with w.block("void rlx_init(void *state)"):
        w.line(f"{name}_init(state);" if states else "(void)state;")
    with w.block(
        "void rlx_call(void *state, const void *const *params, const void *const *inputs, void *const *outputs)"
    ):
        arguments = ["state"]
        if params:
            w.line(f"{name}_params given;")
            for i, value in enumerate(params):
                w.line(f"given.{source.names[value]} = params[{i}];")
            arguments.append("&given")
        arguments += [f"inputs[{i}]" for i in range(inputs)] + [f"outputs[{i}]" for i in range(outputs)]
        w.line("(void)params;")
        w.line("(void)inputs;")
        w.line(f"{name}_run({', '.join(arguments)});")
    return str(w)


class CProgram:
    """A loaded program with its parameters and states.

    Args:
        artifact: The compiled artifact.
        library: The library for this machine.
        parameters: Arrays by name.

    Raises:
        ExecutionError: The library cannot be loaded here.
    """

    def __init__(self, artifact: Artifact, library: bytes, parameters: Mapping[str, np.ndarray]):
        signature = artifact.signature
        self.outputs = signature.outputs
        self.lock = make_lock()
        self._library = _loaded(library)
        states = signature.of_kind("state")
        layout = (ctypes.c_size_t * (1 + len(states))).in_dll(self._library, "rlx_layout")
        self._state = np.zeros(layout[0] // 8 + 2, np.uint64)
        self._offsets = {a.name: (layout[1 + i], a) for i, a in enumerate(states)}
        self._parameters = [parameters[a.name] for a in signature.of_kind("param")]
        self._library.rlx_init(self._state.ctypes.data_as(ctypes.c_void_p))

    def call(self, arrays: Sequence[np.ndarray], /) -> list[np.ndarray]:
        """Run it on arrays for its inputs, in order."""
        return holding(self.lock, self._run, arrays)

    def _run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        self._check()
        # An empty array has one element in C.
        results = [np.empty(o.shape.static, o.shape.dtype.numpy) for o in self.outputs]
        given = [np.ascontiguousarray(a) for a in arrays]
        groups = [_pointers(group) for group in (self._parameters, given, results)]
        self._library.rlx_call(self._state.ctypes.data_as(ctypes.c_void_p), *groups)
        return results

    def _check(self) -> None:
        if is_abandoned(self.lock):
            raise ExecutionError(
                "another thread was running the program when this process was forked",
                hint="load it again here, or start processes with multiprocessing's 'spawn'",
            )

    def _place(self, name: str) -> np.ndarray:
        self._check()
        offset, a = self._offsets[name]
        dtype, dims = a.shape.dtype.numpy, a.shape.static
        count = int(np.prod(dims))
        return self._state.view(np.uint8)[offset : offset + count * dtype.itemsize].view(dtype).reshape(dims)

    def read_state(self, name: str) -> np.ndarray:
        """A copy of the current value of a state."""
        return holding(self.lock, lambda: self._place(name).copy())

    def write_state(self, name: str, value: np.ndarray) -> None:
        """Set the value of a state."""

        def write() -> None:
            self._place(name)[...] = value

        holding(self.lock, write)


def _pointers(arrays: Sequence[np.ndarray]) -> Any:
    return (ctypes.c_void_p * max(1, len(arrays)))(*(a.ctypes.data for a in arrays))


def _loaded(library: bytes) -> ctypes.CDLL:
    """Load a library from its bytes. Its file is removed afterwards; the library stays mapped."""
    handle, path = tempfile.mkstemp(suffix=".so", prefix="rlx-c-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(library)
        return ctypes.CDLL(path)
    except OSError as problem:
        raise ExecutionError(f"this machine cannot load the program: {problem}", hint="compile it again here") from None
    finally:
        Path(path).unlink(missing_ok=True)

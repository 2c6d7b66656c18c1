"""The back end of the NumPy evaluator: nothing is compiled, and each op of a program runs as its meaning is defined.

It is slow, but ready at once, and has no compiler that could be wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from weakref import WeakValueDictionary

import numpy as np

from rlx.ir.graph.evaluate import evaluate_function
from rlx.ir.graph.graph import Graph
from rlx.ir.graph.parse import parse
from rlx.ir.interface import bind_symbols
from rlx.targets.artifacts.artifact import Artifact
from rlx.targets.artifacts.fields import Check
from rlx.targets.compilation import Compilation
from rlx.targets.evaluator.targets import NAME, Target, device_names, target, target_names
from rlx.targets.hashes import fingerprint
from rlx.targets.protocol import Compiled, DeviceInfo

# The graphs of programs that were compiled in this process and are in use: they need not be parsed.
_graphs: WeakValueDictionary[str, Graph] = WeakValueDictionary()


def version() -> str:
    """Return the version of NumPy."""
    return np.__version__


def compile_program(compilation: Compilation, timeout_s: float | None = None) -> Compiled:
    """Return the LIR of a graph as the program."""
    program = str(compilation.lir.module).encode()
    _graphs[fingerprint(program)] = compilation.lir
    return Compiled(program)


def info_fields() -> dict[str, Check]:
    """Return no fields: a program has no info."""
    return {}


def emit(kind: str, compilation: Compilation) -> None:
    """Return None: LIR is the only format."""
    return None


def notes(artifact: Artifact) -> list[str]:
    """Return no notes."""
    return []


class EvaluatedProgram:
    """A program with its weights and states.

    Args:
        artifact: The program.
        parameters: The weights by name.
    """

    def __init__(self, artifact: Artifact, parameters: Mapping[str, np.ndarray]) -> None:
        graph = _graphs.get(fingerprint(artifact.program))
        self._graph: Graph = parse(artifact.program.decode()) if graph is None else graph
        states = artifact.signature.of_kind("state")
        self._values = {s.name: s.initial_array() for s in states} | dict(parameters)

    def call(self, arrays: Sequence[np.ndarray], /) -> list[np.ndarray]:
        """Return the outputs for the inputs, and update states."""
        graph, inputs = self._graph, iter(arrays)
        values = [next(inputs) if a.kind == "input" else self._values[a.name] for a in graph.arguments]
        sizes = bind_symbols([(a, value.shape) for a, value in zip(graph.arguments, values, strict=True)])
        results = evaluate_function(graph.function, values, sizes)
        named = [(result.updates, value) for result, value in zip(graph.results, results, strict=True)]
        self._values |= {name: value for name, value in named if name is not None}
        return [value for name, value in named if name is None]

    def read_state(self, name: str) -> np.ndarray:
        """Return a copy of a state."""
        return self._values[name].copy()

    def write_state(self, name: str, value: np.ndarray) -> None:
        """Set a state."""
        self._values[name] = np.array(value)


def load(artifact: Artifact, parameters: Mapping[str, np.ndarray], threads: int | None = None) -> EvaluatedProgram:
    """Return a program, ready to run. NumPy decides how many threads it uses."""
    return EvaluatedProgram(artifact, parameters)


def devices() -> Sequence[DeviceInfo]:
    """NumPy, which is always there."""
    return [DeviceInfo(NAME, NAME, f"NumPy {np.__version__}", available=True)]


__all__: Sequence[str] = [
    "Target",
    "compile_program",
    "device_names",
    "devices",
    "emit",
    "info_fields",
    "load",
    "notes",
    "target",
    "target_names",
    "version",
]

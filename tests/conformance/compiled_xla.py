"""Compilation of graphs for XLA, the second implementation: each as its own program, or many as one program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.graph.graph import Graph
from rlx.support.errors import Error
from rlx.targets.compilation import Compilation
from rlx.targets.stablehlo import lower_module
from rlx.targets.xla import backend, client
from rlx.targets.xla.portable import to_portable
from tests.conformance.compiled import Program
from tests.conformance.functions import merged

TARGET = backend.target("xla")


def compile_graphs(graphs: Sequence[Graph], *, level: str | None = None, last_rungs: bool = False) -> list[Program]:
    """Legalise, lower and compile graphs, as a user's `Session` does. Graphs with symbols are compiled when they run.

    Args:
        graphs: The graphs.
        level: Ignored: XLA compiles for the machine that it runs on.
        last_rungs: Ignored.
    """
    return [_compiled(graph) for graph in graphs]


def _compiled(graph: Graph) -> Program:
    program = Program(graph)
    compilation = legalised(program)
    if compilation is not None:
        try:
            program.run = backend.load(compilation.artifact(), {}).call
        except Exception as problem:
            program.problem = _message(problem)
    return program


def legalised(program: Program) -> Compilation | None:
    """Return the legalised graph; on failure return None and store the problem in the program."""
    try:
        compilation = Compilation(program.graph, TARGET)
        lir = compilation.lir
    except Exception as problem:
        program.problem = _message(problem)
        return None
    program.module, program.function = lir.module, lir.function
    return compilation


def _message(problem: Exception) -> str:
    kind = "" if isinstance(problem, Error) else f"{type(problem).__name__}: "
    return f"{kind}{problem}"[:600]


class Joint:
    """Many graphs as one program, compiled in half the time and run together. Graphs that do not compile are left out.

    Args:
        graphs: The graphs, all of one stage and without symbols. Their loops must end for the values that they run on.

    Attributes:
        programs: One for each graph, without `run`.
    """

    def __init__(self, graphs: Sequence[Graph]):
        self.programs = [Program(graph) for graph in graphs]
        legal = [(i, made.lir) for i, program in enumerate(self.programs) if (made := legalised(program))]
        # Executables, with the indices of their graphs.
        self._parts: list[tuple[client.XlaExecutable, list[int]]] = []
        self._compile(legal)

    def _compile(self, legal: list[tuple[int, Graph]]) -> None:
        if not legal:
            return
        numbers = [i for i, _ in legal]
        try:
            functions = lower_module(merged([graph for _, graph in legal]), cpu=True)
            self._parts.append((client.XlaExecutable(to_portable(with_entry(functions))), numbers))
        except Exception as problem:  # any exception is caused by one of the graphs
            if len(legal) == 1:
                self.programs[numbers[0]].problem = _message(problem)
                return
            middle = len(legal) // 2
            self._compile(legal[:middle])
            self._compile(legal[middle:])

    def run(self, arrays: Sequence[Sequence[np.ndarray]]) -> Iterator[tuple[int, list[np.ndarray]]]:
        """Yield the index and the results of each compiled graph, from the arguments of all."""
        for executable, numbers in self._parts:
            given = client.to_device([array for i in numbers for array in arrays[i]])
            results = iter(executable(given))
            for i in numbers:
                yield i, [client.to_host(next(results)) for _ in self.programs[i].graph.outputs]


def with_entry(functions: Any) -> Any:
    """Return a module of the functions `f0`, `f1`, …, and of one that takes all arguments and returns all results."""
    with mlir.entered():
        arguments, results, calls = [], [], []
        for i, function in enumerate(functions.body.operations):
            given = [f"%a{i}_{j}" for j in range(len(function.type.inputs))]
            taken = [f"%r{i}_{j}" for j in range(len(function.type.results))]
            arguments += [f"{name}: {kind}" for name, kind in zip(given, function.type.inputs, strict=True)]
            results += zip(taken, map(str, function.type.results), strict=True)
            calls.append(f"{', '.join(taken)} = func.call @f{i}({', '.join(given)}) : {function.type}")
        names, kinds = (", ".join(column) for column in zip(*results, strict=True))
        entry = f"func.func @main({', '.join(arguments)}) -> ({kinds}) {{ {' '.join(calls)} return {names} : {kinds} }}"
        body = str(functions).replace("func.func @f", "func.func private @f")
        return mlir.ir.Module.parse(body[: body.rindex("}")] + entry + "}")

"""Compiling graphs for XLA, the second implementation: each as a program of its own, or many as one."""

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
    """Legalise, lower and compile graphs, as a user's `Session` does; those with symbols are compiled when they run.

    Args:
        graphs: The graphs.
        level: Has no meaning for XLA, which compiles for the machine it runs on.
        last_rungs: Has no meaning for XLA.
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
    """What a graph becomes before it is lowered; None, with the problem in the program, where it becomes nothing."""
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
    """Many graphs as one program, compiled in half the time and run together; those that do not compile are left out.

    Args:
        graphs: The graphs, all of one stage, without symbols, and whose loops end for what they are run on.

    Attributes:
        programs: One for each graph. They have no `run` of their own.
    """

    def __init__(self, graphs: Sequence[Graph]):
        self.programs = [Program(graph) for graph in graphs]
        legal = [(i, made.lir) for i, program in enumerate(self.programs) if (made := legalised(program))]
        # Executables, and of which graphs each is.
        self._parts: list[tuple[client.XlaExecutable, list[int]]] = []
        self._compile(legal)

    def _compile(self, legal: list[tuple[int, Graph]]) -> None:
        if not legal:
            return
        numbers = [i for i, _ in legal]
        try:
            functions = lower_module(merged([graph for _, graph in legal]))
            self._parts.append((client.XlaExecutable(to_portable(with_entry(functions))), numbers))
        except Exception as problem:  # whatever it is, some graph is to blame
            if len(legal) == 1:
                self.programs[numbers[0]].problem = _message(problem)
                return
            middle = len(legal) // 2
            self._compile(legal[:middle])
            self._compile(legal[middle:])

    def run(self, arrays: Sequence[Sequence[np.ndarray]]) -> Iterator[tuple[int, list[np.ndarray]]]:
        """The number and the results of each graph that was compiled, from the arguments of all."""
        for executable, numbers in self._parts:
            given = client.to_device([array for i in numbers for array in arrays[i]])
            results = iter(executable(given))
            for i in numbers:
                yield i, [client.to_host(next(results)) for _ in self.programs[i].graph.outputs]


def with_entry(functions: Any) -> Any:
    """A module of the functions `f0`, `f1`, … and of one that takes the arguments of all and gives all results."""
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

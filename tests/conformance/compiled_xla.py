"""Compiling graphs for XLA, the second implementation. Each is a program of its own: XLA compiles that in some 20 ms."""

from __future__ import annotations

from collections.abc import Sequence

from rlx.backends.compilation import Compilation
from rlx.backends.xla import backend
from rlx.ir.errors import Error
from rlx.ir.graph import Graph
from tests.conformance.compiled import Program

TARGET = backend.target("xla")


def compile_graphs(graphs: Sequence[Graph], *, level: str | None = None, last_rungs: bool = False) -> list[Program]:
    """Legalise, lower and compile graphs; those with symbols are compiled when they run.

    Args:
        graphs: The graphs.
        level: Has no meaning for XLA, which compiles for the machine it runs on.
        last_rungs: Has no meaning for XLA.
    """
    return [_compiled(graph) for graph in graphs]


def _compiled(graph: Graph) -> Program:
    program = Program(graph)
    try:
        compilation = Compilation(graph, TARGET)
        program.module, program.function = compilation.lir.module, compilation.lir.function
        program.run = backend.load(compilation.artifact(), {}).call
    except Exception as problem:
        kind = "" if isinstance(problem, Error) else f"{type(problem).__name__}: "
        program.problem = f"{kind}{problem}"[:600]
    return program

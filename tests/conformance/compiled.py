"""Compilation of many graphs at once: finding those that do not compile, and running the others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.graph.graph import Graph
from rlx.ir.op.signature import functions
from rlx.ir.shape import Shape
from rlx.passes.runner import clone_module, run_on_module
from rlx.support.errors import Error
from rlx.targets.dispatch import with_kernels
from rlx.targets.iree.abi import ArgumentType, TensorType
from rlx.targets.iree.backend import module_text
from rlx.targets.iree.compiler import ModuleCompileError, compile_module
from rlx.targets.iree.executable import IreeExecutable
from rlx.targets.iree.memory import ALIGNMENT, IMPORT_ALIGNMENT
from rlx.targets.iree.targets import Target, target
from rlx.targets.options import CompileOptions
from rlx.targets.stages import lower
from tests.conformance.elf import check_linked
from tests.conformance.functions import merged

TIMEOUT_S = 300.0
_UNALIGNED = "rlx-iree-unaligned-arguments"


@cache
def cpu(level: str = "host", rungs: int = 1) -> Target:
    """Return a CPU target with this number of rungs on the compiler's ladder. Rungs after the first would hide failures."""
    found = target("cpu", level)
    return replace(found, ladder=found.ladder[:rungs])


@dataclass
class Program:
    """One graph, legalised and, if `problem` is None, compiled.

    Attributes:
        graph: The original graph.
        module: The module that contains the legalised function and keeps it alive.
        function: The legalised function.
        run: Runs the compiled function on arrays.
        again: Returns another `run` that has not been called yet.
        problem: The reason why it did not compile.
        lacks: The reason why the compiled program cannot run on this machine.
    """

    graph: Graph
    module: Any = None
    function: Any = None
    run: Any = None
    again: Any = None
    problem: str | None = None
    lacks: str | None = None


def compile_graphs(
    graphs: Sequence[Graph],
    *,
    level: str | None = None,
    last_rungs: bool = False,
    kernels: str = "off",
    device: Target | None = None,
) -> list[Program]:
    """Legalise, lower and compile graphs as one module. If this fails, the failing graphs are left out.

    Args:
        graphs: The graphs, all of one stage.
        level: The CPU to compile for, an architecture of the target `cpu`; by default that of this machine.
        last_rungs: Whether to try the other rungs for graphs that fail at the compiler's first rung, as for users.
        kernels: The choice of kernels, as in `Session.compile`; none by default, so that lowerings are judged.
        device: Another target than the CPU, whose first driver runs the programs.
    """
    programs = [Program(graph) for graph in graphs]
    _compile(programs, _Choice(level or "host", last_rungs, CompileOptions(kernels=kernels), device))
    return programs


@dataclass(frozen=True)
class _Choice:
    """The arguments of `compile_graphs` except the graphs."""

    level: str
    last_rungs: bool
    options: CompileOptions
    device: Target | None

    def target(self, count: int) -> Target:
        """The target for a module with this number of graphs."""
        if self.device is not None:
            return replace(self.device, ladder=self.device.ladder[:1])
        return cpu(self.level, 3 if self.last_rungs and count == 1 else 1)


def _compile(programs: list[Program], choice: _Choice) -> None:
    if not programs:
        return
    module = merged([p.graph for p in programs])
    _locate(module)
    try:
        target_ = choice.target(len(programs))
        run_on_module(module, with_kernels(target_, choice.options))
        lowered = clone_module(module)
        lower(lowered, _lending(target_.lowering(target_.level)))
        compiled = compile_module(module_text(lowered), target_, timeout_s=TIMEOUT_S)
        lacks = None
        if choice.device is None:
            check_linked(compiled.vmfb)
            assert compiled.cpu is not None
            lacks = compiled.cpu.lacks()
        executable = IreeExecutable(compiled.vmfb, driver=target_.drivers[0]) if lacks is None else None
    except Exception as problem:  # any exception is caused by one of the graphs
        if len(programs) == 1:
            programs[0].problem = _told(problem)
            return
        blamed = {int(i) for i in re.findall(r"\bf(\d+):\d+", _told(problem))} or set(range(len(programs) // 2))
        groups = [[p for i, p in enumerate(programs) if (i in blamed) == guilty] for guilty in (True, False)]
        for group in groups if all(groups) else [[p] for p in programs]:
            _compile(group, choice)
        return
    for i, (program, function) in enumerate(zip(programs, functions(module), strict=True)):
        program.module, program.function, program.lacks = module, function, lacks
        if executable is None:
            continue
        program.again = partial(executable.function, f"f{i}", *_signature(program.graph), copy_results=True)
        program.run = program.again()


def _lending(pipeline: str) -> str:
    """Return a pipeline whose programs read arguments of all sizes at addresses that are not multiples of 64 bytes."""
    return pipeline.replace(_UNALIGNED, f"{_UNALIGNED}{{limit=0}}")


def _locate(module: Any) -> None:
    """Replace the location of every op in this harness by its function: `f3:7`."""
    ir = mlir.ir
    with mlir.entered():
        for i, function in enumerate(functions(module)):
            for j, op in enumerate(function.entry_block.operations):
                op.operation.location = ir.Location.file(f"f{i}", j, 0)


def _signature(graph: Graph) -> tuple[list[ArgumentType], list[TensorType]]:
    def sizes(shape: Shape) -> tuple[int | None, ...]:
        return tuple(d if type(d) is int else None for d in shape.dims)

    given = [ArgumentType(a.shape.dtype.numpy, sizes(a.shape), "borrow") for a in graph.arguments]
    return given, [TensorType(o.shape.dtype.numpy, sizes(o.shape)) for o in graph.outputs]


def _told(problem: Exception) -> str:
    """Return the first error of a long message."""
    if isinstance(problem, ModuleCompileError):
        errors = [str(d) for d in problem.diagnostics if d.severity == "error"]
        if errors:
            return errors[0][:300]
        printed = [
            line for attempt in problem.attempts for line in attempt.printed.splitlines() if "error" in line.lower()
        ]
        if printed:
            return printed[0][:300]
    kind = "" if isinstance(problem, Error) else f"{type(problem).__name__}: "
    return f"{kind}{problem}"[:600]


def contiguous(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return contiguous copies, as a compiled function requires."""
    return [np.ascontiguousarray(a).reshape(a.shape) for a in arrays]


def lendable(array: np.ndarray, run: int) -> np.ndarray:
    """Return a copy whose memory a program can use directly, at an address that depends on the number of the run."""
    block = np.zeros(array.nbytes + 2 * IMPORT_ALIGNMENT, np.uint8)
    start = -block.ctypes.data % IMPORT_ALIGNMENT + run * ALIGNMENT % IMPORT_ALIGNMENT
    copy = block[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy

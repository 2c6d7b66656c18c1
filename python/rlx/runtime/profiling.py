"""Profiling of compilations: timing of kernels on given or random inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlx.ir.dims.dim import TYPICAL_SIZE, evaluate
from rlx.ir.graph.listing import inspect_graph
from rlx.ir.interface import argument_array, bind_symbols
from rlx.passes.checking.numerics import draw
from rlx.report.compile_report import CompileReport
from rlx.report.profile import ProfileReport
from rlx.report.roofline import this_machine
from rlx.runtime.arguments import checked_threads
from rlx.support.errors import Error, ExecutionError
from rlx.support.suggestions import suggestion
from rlx.targets.compilation import Compilation
from rlx.targets.contract import calling
from rlx.targets.host import usable_cpus
from rlx.targets.iree.targets import Target as IreeTarget
from rlx.targets.protocol import Profiler
from rlx.weights import Weights, open_parameters

_MOST_RUNS = 10_000


def profile(
    compilation: Compilation,
    inputs: Mapping[str, Any] | None = None,
    params: Any = None,
    *,
    runs: int = 20,
    threads: int | None = None,
) -> ProfileReport:
    """Measure the kernels of a program. On the device cpu, it is measured without calls of LAPACK.

    Args:
        compilation: The program.
        inputs: Arrays by name. Missing inputs are random: floats in [-2, 2], integers in the range that they index. A
            symbol without a size is then 64.
        params: Weights by name, or the path of a file. Those that the graph carries are optional; other missing ones
            are random.
        runs: The number of runs.
        threads: The number of threads, as for `Session`.

    Raises:
        Error: An array does not fit, or the target cannot be measured here.
    """
    if isinstance(runs, bool) or not isinstance(runs, int) or not 1 <= runs <= _MOST_RUNS:
        raise Error(f"runs must be a number from 1 to {_MOST_RUNS}, got {runs!r:.60}")
    threads = checked_threads(threads)
    profiler = compilation.compiler
    if not isinstance(profiler, Profiler):
        raise ExecutionError(f"the target {compilation.target.name} has no profiler", hint="the target cpu has one")
    if compilation.may_call_lapack and isinstance(compilation.target, IreeTarget):
        compilation = compilation.for_file()  # IREE's profiler runs the program in another process, which has no LAPACK
    arrays, sizes = _arguments(compilation, inputs or {}, params)
    signature = compilation.signature
    by_kind = {kind: {a.name: arrays[a.name] for a in signature.of_kind(kind)} for kind in ("input", "param")}
    with calling(compilation.backend, "profile", ExecutionError):
        measured = profiler.profile(
            compilation, list(by_kind["input"].values()), by_kind["param"], runs=runs, threads=threads
        )
    target = f"{compilation.target.name} ({compilation.target.arch})"
    machine = this_machine(measured.threads)
    return ProfileReport(signature.name, target, measured, inspect_graph(compilation.lir), machine, sizes)


def compile_report(compilation: Compilation, inputs: Mapping[str, Any] | None = None, **options: Any) -> CompileReport:
    """Return the report on a whole compilation.

    Args:
        compilation: The compilation.
        inputs: Arrays by name, possibly empty: the program is run, and the report has the time of each kernel. With
            None, it is not run.
        options: Further options of `profile`.

    Raises:
        Error: It cannot be compiled or measured.
    """
    measured = None if inputs is None else profile(compilation, inputs, **options)
    if measured is not None:
        return CompileReport(compilation, measured.machine, measured)
    here = compilation.target.name in ("cpu", "xla")
    return CompileReport(compilation, this_machine(usable_cpus()) if here else None)


def _arguments(
    compilation: Compilation, inputs: Mapping[str, Any], params: Any
) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Return the arrays of all inputs and parameters, and the sizes of symbols."""
    graph = compilation.lir
    declared = {a.name: a for a in graph.arguments}
    needed = [a for a in graph.arguments if a.kind != "state"]
    offered: dict[str, Any] = {}
    for weights in (graph.weights, open_parameters(params) if params is not None else {}):
        of_file = isinstance(weights, Weights)  # other tensors of a file are ignored
        offered.update((name, weights[name]) for name in weights if not of_file or name in declared)
    offered.update(inputs)
    for name in offered:
        if name not in declared or declared[name].kind == "state":
            raise Error(f"there is no input or parameter '{name}'{suggestion(str(name), declared)}")
    given = {name: np.array(argument_array(declared[name], value), order="C") for name, value in offered.items()}
    sizes = bind_symbols([(declared[name], array.shape) for name, array in given.items()])
    sizes = dict.fromkeys(sorted(graph.symbols), TYPICAL_SIZE) | sizes
    random = np.random.default_rng(0)
    values = dict(zip(declared, graph.function.entry_block.arguments, strict=True))
    for a in needed:
        if a.name not in given:
            _check_sizes(a.name, [evaluate(d, sizes) for d in a.shape.dims])
            given[a.name] = draw(random, a, values[a.name], sizes)
    return given, sizes


def _check_sizes(name: str, sizes: list[int]) -> None:
    """Check that a random array is not too large for the machine.

    Raises:
        Error: It is too large.
    """
    if min(sizes, default=0) < 0 or np.prod(sizes, dtype=float) > 1 << 32:
        raise Error(f"'{name}' of {sizes} is too large to draw", hint="give it, or other sizes for symbols")

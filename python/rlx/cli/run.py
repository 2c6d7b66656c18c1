"""Run a graph (MLIR text or ONNX), or a program from `rlx compile`, on given arrays, and print the outputs.

Arrays are written as NAME=@FILE.npy, NAME=1x4xf32=0 (all elements) or NAME=1x4xf32=1,2,3,4.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING

from rlx.cli.compile import add_compile_options, compilation_of, compiled
from rlx.cli.display import Steps
from rlx.cli.names import DEVICES
from rlx.cli.options import first_given
from rlx.cli.run_arrays import (
    Arrays,
    MeasuredCall,
    add_run_arguments,
    check_repeat,
    compiled_call,
    entry_of,
    no_entry_points,
    run_stored,
    run_with_arrays,
)

if TYPE_CHECKING:
    from rlx.ir.graph.graph import Graph


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "file",
        metavar="FILE",
        help="MLIR text (rlx or StableHLO ops), ONNX, or a compiled artifact; - is standard input",
    )
    add_run_arguments(parser)
    parser.add_argument("--device", choices=DEVICES, metavar="NAME", help="%(choices)s (default: cpu)")
    parser.add_argument("--arch", help="the device's architecture, such as sm_80 or gfx1100")
    parser.add_argument("--evaluate", action="store_true", help="use the NumPy evaluator instead of a compiler")
    add_compile_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from rlx.cli.files import read_program
    from rlx.ir.graph.graph import Graph

    check_repeat(arguments)
    program = read_program(arguments.file, arguments.function, arguments.verify, arguments.bind)
    if isinstance(program, Graph):
        if arguments.entry is not None:
            raise no_entry_points(arguments)
        call = partial(_graph_call, program, arguments)
        return run_with_arrays(program.arguments, program.outputs, call, arguments, weights=program.weights)
    entry = entry_of(program, arguments)
    _check_options(arguments)
    return run_stored(entry, arguments)


def _check_options(arguments: argparse.Namespace) -> None:
    from rlx.support.errors import Error

    for option in ("evaluate", "function", "arch", "flag"):
        if getattr(arguments, option):
            raise Error(f"{arguments.file} is compiled; --{option} needs MLIR text")
    if flag := first_given(arguments):
        raise Error(f"{arguments.file} is compiled; {flag} needs MLIR text")


def _graph_call(graph: Graph, arguments: argparse.Namespace, inputs: Arrays, params: Arrays) -> MeasuredCall:
    if not arguments.evaluate:
        with Steps(only_terminal=True)(f"compile {graph.name}"):
            program = compiled(graph, arguments.device or "cpu", arguments, arguments.threads)
        program.set_params(params)
        program.load()
        return compiled_call(program, inputs)
    from rlx.ir.graph.evaluate import evaluate

    source = compilation_of(graph, arguments.device or "cpu", arguments).mir
    return MeasuredCall(lambda: evaluate(source, {**graph.weights, **inputs, **params}), tuple)

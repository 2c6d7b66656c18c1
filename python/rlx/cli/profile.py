"""Measure each kernel of a compiled graph: its time, its ops, and the source lines of these ops.

Missing inputs and weights are drawn at random. Arrays are written as for `rlx run`: NAME=@FILE.npy, NAME=1x4xf32=0 (all
elements) or NAME=1x4xf32=1,2,3,4. Open the trace in https://ui.perfetto.dev.
"""

from __future__ import annotations

import argparse

from rlx.cli.compile import add_compile_options, compilation_of
from rlx.cli.display import Steps
from rlx.cli.files import output_file
from rlx.cli.names import DEVICES
from rlx.cli.streams import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("file", metavar="FILE", help="MLIR text (rlx or StableHLO ops) or ONNX; - is standard input")
    parser.add_argument("--input", action="append", default=[], metavar="NAME=VALUE", help="an input")
    parser.add_argument("--param", action="append", default=[], metavar="NAME=VALUE", help="a parameter (weight)")
    parser.add_argument("--params", metavar="FILE", help="a file with parameters: safetensors, .npz or .npy")
    parser.add_argument("--device", choices=DEVICES, default="cpu", metavar="NAME", help="%(choices)s (default: cpu)")
    parser.add_argument("--arch", help="the device's architecture")
    parser.add_argument(
        "--threads", type=int, metavar="N", help="threads to use on the CPU (default: one for each core)"
    )
    parser.add_argument("--repeat", type=int, default=20, metavar="N", help="the number of runs (default: %(default)s)")
    parser.add_argument(
        "--trace", type=output_file, metavar="OUT.json", help="write every call of a kernel as a trace for Perfetto"
    )
    add_compile_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from rlx.cli.files import read_graph
    from rlx.cli.values import named_arrays
    from rlx.runtime.profiling import profile
    from rlx.support.files import write_atomically
    from rlx.weights import open as open_weights

    graph = read_graph(arguments.file, arguments.function, arguments.bind)
    compilation = compilation_of(graph, arguments.device, arguments)
    declared = {a.name for a in graph.params}
    weights = {} if arguments.params is None else open_weights(arguments.params)
    params = {**graph.weights, **{name: weights[name] for name in weights if name in declared}}
    params |= named_arrays(arguments.param, "--param", graph.arguments)
    inputs = named_arrays(arguments.input, "--input", graph.arguments)
    with Steps(only_terminal=True)(f"measure {compilation.given.name}"):
        report = profile(compilation, inputs, params, runs=arguments.repeat, threads=arguments.threads)
    if arguments.trace is not None:  # before the text, whose reader may end early
        write_atomically(arguments.trace, report.trace_text().encode())
    say(str(report), end="")
    return 0

"""Search for the fastest compilation of a graph (MLIR text or ONNX) on this machine, and cache it.

It tries fusions, layouts, flags and tiles of the compiler, numbers of threads, and on the CPU also the other compiler.
Each result is compared with that of the NumPy evaluator. The choice is stored in the cache. The next call, and
`Session.compile(…, tune=SECONDS)` of the same graph, use it without measuring. With -o, the program is written to a
file, as by `rlx compile`.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from rlx.cli.compile import add_compile_options
from rlx.cli.files import output_file
from rlx.cli.names import DEVICES
from rlx.cli.options import options_of
from rlx.cli.streams import say

if TYPE_CHECKING:
    from rlx.report.tuning import TuningTrial


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("file", metavar="FILE", help="MLIR text (rlx or StableHLO ops) or ONNX; - is standard input")
    parser.add_argument("--seconds", default="60", metavar="S", help="the time limit in seconds (default: %(default)s)")
    parser.add_argument(
        "-o", "--output", type=output_file, metavar="OUT", help="the file to write the program to; - is standard output"
    )
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an input to measure with, as for `rlx run`; other inputs are random",
    )
    parser.add_argument("--params", metavar="FILE", help="a file with parameters: safetensors, .npz or .npy")
    parser.add_argument("--device", choices=DEVICES, default="cpu", metavar="NAME", help="%(choices)s (default: cpu)")
    parser.add_argument("--arch", help="the device's architecture, such as sm_80 or gfx1100")
    parser.add_argument(
        "--threads", type=int, metavar="N", help="threads to use on the CPU (default: the fastest number)"
    )
    parser.add_argument("--again", action="store_true", help="measure even if an earlier choice is in the cache")
    add_compile_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from rlx.cli.files import read_graph, write_output
    from rlx.cli.values import named_arrays
    from rlx.runtime.arguments import checked_seconds
    from rlx.runtime.session import Session
    from rlx.runtime.tuning import Request, tune_program
    from rlx.targets.cache import DiskCache

    seconds = checked_seconds("--seconds", _number(arguments.seconds))
    session = Session(arguments.device, arch=arguments.arch, threads=arguments.threads, flags=tuple(arguments.flag))
    cache = None if arguments.no_cache else DiskCache()
    graph = read_graph(arguments.file, arguments.function, arguments.bind)
    inputs = named_arrays(arguments.input, "--input", graph.arguments)
    request = Request(session, graph, options_of(arguments), arguments.params, inputs, cache)
    try:
        program = tune_program(request, seconds, again=arguments.again, progress=_show)
    except KeyboardInterrupt:
        if cache is not None:
            say("interrupted: what was measured is kept; with --seconds=1 this command takes it", stream=sys.stderr)
        raise
    stream = sys.stderr if arguments.output == "-" else sys.stdout
    if arguments.output is not None:  # before the text, whose reader may end early
        write_output(arguments.output, program.artifact.to_bytes())
    say(str(program.tuning), stream=stream)
    return 0


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _show(trial: TuningTrial) -> None:
    say(str(trial), stream=sys.stderr)

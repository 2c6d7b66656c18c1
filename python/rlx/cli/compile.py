"""Compile a graph, given as MLIR text, for one device.

The artifact holds the program and what it takes and gives, but no weights; `rlx run` and `rlx.load` read it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlx.ir.graph import Graph
    from rlx.runtime.compiled import CompiledGraph

_PLANNED = ("stablehlo",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("file", metavar="FILE", help="MLIR text; - is standard input")
    parser.add_argument("-o", "--output", required=True, metavar="OUT", help="the file to write; - is standard output")
    parser.add_argument("--target", default="cpu", help="cpu, cuda, rocm, vulkan, metal or vmvx (default: %(default)s)")
    parser.add_argument("--arch", help="the device's architecture, such as sm_80 or gfx1100")
    parser.add_argument(
        "--emit",
        choices=("artifact", "vmfb", "linalg", "mlir"),
        default="artifact",
        help="artifact: for `rlx run` (default); vmfb: IREE's module alone; linalg: what IREE is given; "
        "mlir: the rlx ops that are lowered to that",
    )
    add_compile_options(parser)


def add_compile_options(parser: argparse.ArgumentParser) -> None:
    """Declare what all commands that compile have in common."""
    parser.add_argument("--function", metavar="NAME", help="the function to take (default: the first public one)")
    parser.add_argument("--bind", action="append", default=[], metavar="SYMBOL=SIZE", help="fix the size of a symbol")
    parser.add_argument("--flag", action="append", default=[], metavar="FLAG", help="one more flag for IREE's compiler")
    parser.add_argument("--policy", choices=("direct", "fusable"), default="direct", help="what blocks are lowered to")
    parser.add_argument("--precision", choices=("f32", "f16", "bf16"), help="compute in this dtype")
    parser.add_argument("--passes", metavar="PIPELINE", help="a pipeline to run first, as rlx-opt takes it")
    parser.add_argument("--no-cache", action="store_true", help="compile even if the program is in the cache")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from rlx.cli.files import read_graph
    from rlx.ir.errors import UnsupportedError

    if arguments.target in _PLANNED:
        raise UnsupportedError(
            f"target '{arguments.target}' is not there yet",
            hint="targets are cpu, cuda, rocm, vulkan, metal and vmvx",
        )
    graph = read_graph(arguments.file, arguments.function)
    if arguments.emit in ("linalg", "mlir"):
        _write(arguments.output, _text(graph, arguments).encode())
        return 0
    started = time.perf_counter()
    from rlx.backends.report.text import bytes_text
    from rlx.cli.display import Steps

    with Steps(only_terminal=True)(f"compile {graph.name} for {arguments.target}"):
        artifact = compiled(graph, arguments.target, arguments).artifact
    data = artifact.to_bytes() if arguments.emit == "artifact" else artifact.program
    _write(arguments.output, data)
    if arguments.output != "-":
        took = time.perf_counter() - started
        size = bytes_text(len(data))
        print(f"{arguments.output}: {graph.name} for {artifact.target} ({artifact.arch}), {size}, {took:.2f} s")
    return 0


def compiled(graph: Graph, target: str, arguments: argparse.Namespace, threads: int | None = None) -> CompiledGraph:
    """A graph compiled as the options say."""
    from rlx.backends.iree import targets
    from rlx.runtime.session import Session

    name = targets.target(target, arguments.arch).name  # an alias such as `hip`, or an error
    return Session(name, arch=arguments.arch, threads=threads, flags=tuple(arguments.flag)).compile(
        graph,
        bind=bindings(arguments.bind),
        precision=arguments.precision,
        passes=arguments.passes,
        policy=arguments.policy,
        cache=not arguments.no_cache,
    )


def bindings(texts: Sequence[str]) -> dict[str, int]:
    """Sizes by symbol, from `seq=128` texts.

    Raises:
        Error: One is not written like this, or a symbol is bound twice.
    """
    from rlx.ir.errors import Error

    sizes: dict[str, int] = {}
    for text in texts:
        name, _, size = text.partition("=")
        if not name or not size.isdecimal():
            raise Error(f"--bind={text}: expected SYMBOL=SIZE, such as --bind=seq=128")
        if name in sizes:
            raise Error(f"--bind: '{name}' is bound twice")
        sizes[name] = int(size)
    return sizes


def _text(graph: Graph, arguments: argparse.Namespace) -> str:
    """The module before its last steps, for people to read."""
    from rlx import mlir
    from rlx.backends.iree import targets
    from rlx.backends.iree.backend import check_dtypes
    from rlx.backends.stages import legalised, prepared
    from rlx.lower.linalg import claimed_ops, lower_module

    target = targets.target(arguments.target, arguments.arch, tuple(arguments.flag))
    sizes, policy = bindings(arguments.bind), arguments.policy
    graph = prepared(graph, sizes, arguments.precision, arguments.passes, policy)
    graph = legalised(graph, claimed_ops(), policy=policy)
    check_dtypes(graph.module, target)
    if arguments.emit == "mlir":
        return str(graph)
    with mlir.unregistered_dialects_allowed():  # else MLIR prints its generic form
        return str(lower_module(graph.module, for_iree=True))


def _write(path: str, data: bytes) -> None:
    from rlx.backends.artifact import write_atomically

    if path != "-":
        write_atomically(path, data)
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(data)

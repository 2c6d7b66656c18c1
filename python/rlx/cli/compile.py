"""Compile a graph, given as MLIR text, for one device.

The artifact holds the program and what it takes and gives, but no weights; `rlx run` and `rlx.load` read it. The target
`stablehlo` is no device but a kind of file: a portable StableHLO artifact, which XLA, JAX and IREE read. Its function `main`
takes inputs, weights and states in the order of the graph's arguments, and gives all results. For programs that XLA runs
here the target is `xla`.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlx.backends.artifact import Artifact
    from rlx.ir.graph import Graph
    from rlx.runtime.compiled import CompiledGraph

_PORTABLE = "stablehlo"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("file", metavar="FILE", help="MLIR text, of rlx or StableHLO ops; - is standard input")
    parser.add_argument("-o", "--output", required=True, metavar="OUT", help="the file to write; - is standard output")
    parser.add_argument(
        "--target", default="cpu", help="cpu, cuda, rocm, vulkan, metal, vmvx, xla or stablehlo (default: %(default)s)"
    )
    parser.add_argument(
        "--arch",
        help="the device's architecture, such as sm_80 or gfx1100; for cpu host (this machine's CPU, the default), x86-64-v2, "
        "x86-64-v3, x86-64-v4, aarch64 …: what other machines are to run needs one of these",
    )
    parser.add_argument(
        "--emit",
        choices=("artifact", "vmfb", "linalg", "stablehlo", "mlir"),
        default="artifact",
        help="artifact: for `rlx run`, or, for target stablehlo, the portable artifact (default); vmfb: IREE's module "
        "alone; linalg: what IREE is given, as text; stablehlo: what XLA is given, as text; mlir: the rlx ops that are "
        "lowered to that",
    )
    add_compile_options(parser)


def add_compile_options(parser: argparse.ArgumentParser) -> None:
    """Declare what all commands that compile have in common."""
    parser.add_argument("--function", metavar="NAME", help="the function to take (default: the first public one)")
    parser.add_argument("--bind", action="append", default=[], metavar="SYMBOL=SIZE", help="fix the size of a symbol")
    parser.add_argument("--flag", action="append", default=[], metavar="FLAG", help="one more flag for the compiler")
    parser.add_argument(
        "--policy", choices=("direct", "fusable"), default="direct", help="fuse ops, or leave primitives"
    )
    parser.add_argument("--precision", choices=("f32", "f16", "bf16"), help="compute in this dtype")
    parser.add_argument("--passes", metavar="PIPELINE", help="a pipeline to run first, as rlx-opt takes it")
    parser.add_argument("--no-cache", action="store_true", help="compile even if the program is in the cache")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from rlx.cli.files import read_graph, write_output

    graph = read_graph(arguments.file, arguments.function)
    if arguments.emit in ("linalg", "stablehlo", "mlir"):
        write_output(arguments.output, _text(graph, arguments).encode())
        return 0
    started = time.perf_counter()
    from rlx.cli.display import Steps
    from rlx.report.text import bytes_text

    with Steps(only_terminal=True)(f"compile {graph.name} for {arguments.target}"):
        artifact = _artifact(graph, arguments)
    container = arguments.emit == "artifact" and artifact.target != _PORTABLE
    data = artifact.to_bytes() if container else artifact.program
    write_output(arguments.output, data)
    if arguments.output != "-":
        took = time.perf_counter() - started
        size = bytes_text(len(data))
        print(f"{arguments.output}: {graph.name} for {artifact.target} ({artifact.arch}), {size}, {took:.2f} s")
        print(f"sha256: {hashlib.sha256(data).hexdigest()}")
        if needs := _needs(artifact):
            print(needs)
    return 0


def _needs(artifact: Artifact) -> str | None:
    """Where a program for a CPU runs."""
    from rlx.backends.iree.cpu import Cpu

    if (data := artifact.info.get("cpu")) is None:  # XLA compiles when a program is loaded
        return None
    cpu = Cpu.from_json(data)
    others = "; for most other CPUs there is --arch=x86-64-v3" if cpu.host and cpu.architecture == "x86_64" else ""
    return f"needs: {cpu}{others}"


def _artifact(graph: Graph, arguments: argparse.Namespace) -> Artifact:
    """The graph compiled for the target that the options say."""
    from rlx.backends.cache import DiskCache
    from rlx.backends.protocol import backend_of
    from rlx.ir.errors import Error

    backend = backend_of(arguments.target)
    target = backend.target(arguments.target, arguments.arch, tuple(arguments.flag))
    if arguments.emit == "vmfb" and target.name in ("xla", _PORTABLE):
        raise Error(f"--emit=vmfb: target {target.name} gives no module of IREE's", hint="leave --emit out")
    prepared = _prepared(graph, arguments)
    if target.name == _PORTABLE and prepared.symbols:
        names = sorted(prepared.symbols)
        flags = " ".join(f"--bind={name}=128" for name in names)
        raise Error(f"a portable artifact has static sizes, and {', '.join(names)} has none", hint=f"add {flags}")
    cache = None if arguments.no_cache else DiskCache()
    return backend.compile_graph(prepared, target, fusion_policy=arguments.policy, cache=cache)


def _prepared(graph: Graph, arguments: argparse.Namespace) -> Graph:
    from rlx.backends.stages import prepared

    sizes = bindings(arguments.bind)
    return prepared(graph, sizes, arguments.precision, arguments.passes, arguments.policy)


def compiled(graph: Graph, device: str, arguments: argparse.Namespace, threads: int | None = None) -> CompiledGraph:
    """A graph compiled for a device as the options say."""
    from rlx.runtime.session import Session

    return Session(device, arch=arguments.arch, threads=threads, flags=tuple(arguments.flag)).compile(
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
    from rlx.backends.protocol import backend_of
    from rlx.ir.errors import Error

    backend = backend_of(arguments.target)
    target = backend.target(arguments.target, arguments.arch, tuple(arguments.flag))
    legal = backend.legalised(_prepared(graph, arguments), target, policy=arguments.policy)
    text = str(legal) if arguments.emit == "mlir" else backend.emit(arguments.emit, legal, target)
    if text is None:
        hint = "--emit=stablehlo goes with --target=stablehlo or xla, --emit=linalg with the others"
        raise Error(f"--emit={arguments.emit}: target {target.name} is not given that", hint=hint)
    return text

"""Compile a graph (MLIR text or ONNX) for one device.

The artifact contains the program, programs for other targets (`--also`), their interfaces, and the weights of
`--params` or of the model. `rlx run`, `rlx.load` and `rlx.deploy.load` read it.

The target `stablehlo` writes a portable StableHLO artifact for XLA, JAX and IREE. Its function `main` takes inputs,
weights and states in the order of the graph's arguments, and returns all results. To run programs with XLA on this
machine, use the target `xla`. For a program of several files, such as C, OUT is a folder.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlx.cli.display import Steps
from rlx.cli.names import TARGET_HELP, TARGETS
from rlx.cli.options import add_options, options_of
from rlx.cli.streams import say, write
from rlx.targets.flags import command_line_flags

if TYPE_CHECKING:
    import numpy as np

    from rlx.ir.graph.graph import Graph
    from rlx.runtime.program import Program
    from rlx.targets.artifacts.archive import Archive
    from rlx.targets.artifacts.artifact import Artifact
    from rlx.targets.compilation import Compilation

# The kinds of `--emit` that compile to code. Two other kinds are bytes, the rest are text.
_CODE = ("artifact", "program")
_JAX = "jax"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("file", metavar="FILE", help="MLIR text (rlx or StableHLO ops) or ONNX; - is standard input")
    result = parser.add_mutually_exclusive_group()
    result.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        help="the file to write, or the folder for a program of several files; - is standard output, the default "
        "if --emit is text",
    )
    result.add_argument(
        "--dump-pipeline",
        action="store_true",
        help="compile nothing, and print all passes, down to what the target's compiler is given, as rlx-opt takes them: "
        '--pass-pipeline="$(rlx compile FILE --dump-pipeline)" gives what --emit prints as MLIR: linalg, stablehlo, emitc, hw; '
        "with --emit=lir they end at the rlx ops that the target takes",
    )
    parser.add_argument("--target", default="cpu", choices=TARGETS, metavar="NAME", help=TARGET_HELP)
    parser.add_argument(
        "--arch",
        help="the device's architecture, such as sm_80 or gfx1100. For cpu: host (this machine's CPU, the "
        "default) or, for other machines, x86-64-v2, x86-64-v3, x86-64-v4, aarch64 …",
    )
    parser.add_argument(
        "--also",
        action="append",
        default=[],
        metavar="TARGET[:ARCH]",
        help="add a program for another target or other CPUs to the same file: --arch=x86-64-v4 "
        "--also=cpu:x86-64. The program that fits the machine is run (--flag applies to the first one only)",
    )
    parser.add_argument("--params", metavar="FILE", help="put the weights of this file into the artifact")
    parser.add_argument(
        "--params-file",
        metavar="OUT.irpa",
        help="put the weights into this separate file, which IREE's tools can read",
    )
    parser.add_argument(
        "--emit",
        metavar="KIND",
        default="artifact",
        help="artifact: for `rlx run`, or, for a target that is a kind of file, that file (default); program: the code alone, "
        "for IREE's targets a module of its VM; lir: the rlx ops that the target takes, as text; linalg, stablehlo, emitc, hw: "
        "what IREE, XLA, the C compiler or CIRCT is given, as MLIR; c, verilog: the same in that language; bytecode: linalg as "
        "bytecode, for IREE's own compiler; jax: of stablehlo, what "
        "any program of JAX calls, jax.export.deserialize(data).call(…), with the weights of --params or of the model inside",
    )
    parser.add_argument(
        "--report",
        action="store_true",
        help="print the cost of the program. fpga: predicted and simulated cycles, and estimated and synthesised resources; "
        "cortexm: flash by section, RAM, worst-case stack, and predicted and emulated instructions",
    )
    add_compile_options(parser)


def add_compile_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options that all compiling commands share."""
    parser.add_argument("--function", metavar="NAME", help="the function to take (default: the first public one)")
    parser.add_argument("--flag", action="append", default=[], metavar="FLAG", help="one more flag for the compiler")
    for name, (value, text) in command_line_flags().items():
        parser.add_argument(name, action=_TargetFlagAction, dest="flag", metavar=value, help=text)
    add_options(parser)
    parser.add_argument("--no-cache", action="store_true", help="compile even if the program is in the cache")


class _TargetFlagAction(argparse.Action):
    """An option that adds a flag of the target."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        namespace.flag = [*namespace.flag, f"{option_string}={values}"]


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from rlx.cli.files import read_graph, write_output
    from rlx.support.errors import Error

    if arguments.report:
        _ask_for_report(arguments)
    if (
        arguments.output is None
        and arguments.emit in (*_CODE, _JAX)
        and not (arguments.dump_pipeline or arguments.report)
    ):
        raise Error("a program needs a file: -o OUT; - is standard output")
    started = time.perf_counter()
    _check_output(arguments)
    _check_additions(arguments)
    graph = read_graph(arguments.file, arguments.function, arguments.bind)
    if arguments.params_file is not None and arguments.params is None and not graph.weights:
        raise Error("--params-file needs the weights", hint="give --params=FILE")
    compilation = compilation_of(graph, arguments.target, arguments)
    if arguments.dump_pipeline:
        is_lir = arguments.emit == "lir"
        write((compilation.passes_to_lir if is_lir else compilation.pipeline_text) + "\n")
    elif arguments.emit in _CODE:
        _write_code(compilation, arguments, started)
    else:
        text = _blob(compilation, arguments) if arguments.emit == _JAX else _text(compilation, arguments.emit)
        write_output(arguments.output or "-", text.encode() if isinstance(text, str) else text)
    return 0


def _ask_for_report(arguments: argparse.Namespace) -> None:
    """Enable the target's report.

    Raises:
        Error: The target has no reports, or no program is compiled.
    """
    from rlx.support.errors import Error
    from rlx.targets.protocol import Reporting
    from rlx.targets.registry import backend_of

    if not isinstance(backend_of(arguments.target).compiler, Reporting):
        raise Error(
            f"--report: target {arguments.target} has no report", hint="--target=fpga and --target=cortexm have one"
        )
    if arguments.emit not in _CODE or arguments.dump_pipeline:
        raise Error("--report: only a program has a report", hint="leave --emit and --dump-pipeline out")
    arguments.flag = [*arguments.flag, "--report"]


def _check_output(arguments: argparse.Namespace) -> None:
    """Check that the output can be written, before any work is done.

    Raises:
        Error: It cannot be written.
    """
    from rlx.cli.files import output_file
    from rlx.support.errors import Error
    from rlx.support.files import check_folder_writable

    if arguments.output is None:
        return
    if not _is_folder(arguments):
        output_file(arguments.output)
    elif arguments.output == "-":
        raise Error(f"a program for {arguments.target} is several files", hint="name a folder: -o FOLDER")
    else:
        check_folder_writable(arguments.output)


def _check_additions(arguments: argparse.Namespace) -> None:
    """Check that additional programs and weights are written to an artifact.

    Raises:
        Error: The output is not an artifact.
    """
    from rlx.support.errors import Error
    from rlx.targets.artifacts.archive import check_beside
    from rlx.targets.registry import device_names

    for option in ("also", "params", "params_file"):
        if option == "params" and arguments.emit == _JAX:
            continue
        if getattr(arguments, option) and (arguments.emit != "artifact" or arguments.target not in device_names()):
            name = option.replace("_", "-")
            hint = f"devices: {', '.join(device_names())}"
            if option == "params":
                inside = f"--passes='rlx-bind-params{{file={arguments.params}}}'"
                hint = f"the weights become constants of a program for {arguments.target} by {inside}; {hint}"
            raise Error(f"--{name}: only an artifact for a device has that", hint=hint)
    if arguments.params_file is not None and arguments.output == "-":
        raise Error("--params-file needs -o OUT, beside which it lies")
    if arguments.params_file is not None and arguments.output is not None:
        check_beside(arguments.output, arguments.params_file)


def _is_folder(arguments: argparse.Namespace) -> bool:
    """Return whether the output is a folder of several files."""
    from rlx.targets.protocol import FileSet
    from rlx.targets.registry import backend_of, device_names

    if arguments.emit not in _CODE or not isinstance(backend_of(arguments.target).compiler, FileSet):
        return False
    return arguments.emit == "program" or arguments.target not in device_names()


def compilation_of(
    graph: Graph, target: str, arguments: argparse.Namespace, other: tuple[str | None] | None = None
) -> Compilation:
    """Return the compilation of a graph with the command's options. `other` replaces the architecture and ignores `--flag`."""
    from rlx.targets.compilation import Compilation
    from rlx.targets.registry import target_of

    return Compilation(
        graph,
        target_of(target, arguments.arch, tuple(arguments.flag)) if other is None else target_of(target, *other),
        options_of(arguments),
    )


def _write_code(compilation: Compilation, arguments: argparse.Namespace, started: float) -> None:
    """Compile, write the program, and print its description and interface."""
    from rlx.targets.cache import DiskCache
    from rlx.targets.contract import calling

    target = compilation.target
    with Steps(only_terminal=True)(f"compile {compilation.given.name} for {target.name}"):
        artifact = compilation.artifact(cache=None if arguments.no_cache else DiskCache())
    if arguments.output is not None:
        _write_program(compilation, artifact, arguments, started)
    if arguments.report:
        with calling(compilation.backend, "report"):
            text = compilation.compiler.report(artifact)  # pyright: ignore[reportAttributeAccessIssue]
        say(text)


def _write_program(compilation: Compilation, artifact: Artifact, arguments: argparse.Namespace, started: float) -> None:
    """Write a program, and print its description."""
    from rlx.cli.files import write_output
    from rlx.cli.program_folder import check_no_other_program, warn_of_others
    from rlx.report.text import bytes_text
    from rlx.support.files import write_folder
    from rlx.support.printable import printable
    from rlx.targets.contract import calling
    from rlx.targets.registry import backend_of, device_names

    target = compilation.target
    artifacts = [artifact, *_others(compilation, arguments)]
    container = arguments.emit == "artifact" and target.name in device_names()
    files, data = dict[str, bytes](), b""
    if _is_folder(arguments):
        with calling(compilation.backend, "files"):
            files = dict(compilation.compiler.files(artifact))  # pyright: ignore[reportAttributeAccessIssue]
        check_no_other_program(arguments.output, files)
        write_folder(arguments.output, files)
        warn_of_others(arguments.output, files)
    elif container and arguments.params_file is not None:
        archive, values = _packed(artifacts, compilation.given.weights, arguments)
        archive.save(arguments.output, values, arguments.params_file)
        data = Path(arguments.output).read_bytes()
    else:
        data = artifact.program
        if container:
            archive, values = _packed(artifacts, compilation.given.weights, arguments)
            data = (archive.with_parameters(values) if values else archive).to_bytes()
        write_output(arguments.output, data)
    if arguments.output != "-":
        took = time.perf_counter() - started
        size = bytes_text(sum(map(len, files.values())) if files else len(data))
        name = printable(artifact.signature.name, keep="")
        targets = " and ".join(f"{a.target} ({a.arch})" for a in artifacts)
        say(f"{arguments.output}: {name} for {targets}, {size}, {took:.2f} s")
        say(f"files: {', '.join(files)}" if files else f"sha256: {hashlib.sha256(data).hexdigest()}")
        with calling(compilation.backend, "notes"):
            for each in artifacts:
                which = f"{each.target} ({each.arch}) " if len(artifacts) > 1 else ""
                for note in backend_of(each.target).compiler.notes(each):
                    say(which + note)


def _others(compilation: Compilation, arguments: argparse.Namespace) -> list[Artifact]:
    """Return the programs for other targets that go into the same file."""
    from rlx.targets.cache import DiskCache

    found = []
    for words in arguments.also:
        name, _, arch = words.partition(":")
        other = compilation_of(compilation.given, name, arguments, (arch or None,))
        with Steps(only_terminal=True)(
            f"compile {compilation.given.name} for {other.target.name} ({other.target.arch})"
        ):
            found.append(other.artifact(cache=None if arguments.no_cache else DiskCache()))
    return found


def _packed(
    artifacts: Sequence[Artifact], weights: Mapping[str, Any], arguments: argparse.Namespace
) -> tuple[Archive, dict[str, np.ndarray]]:
    """Return the content of a file of programs, and the weights for it."""
    from rlx.ir.interface import argument_array
    from rlx.targets.artifacts.archive import Archive
    from rlx.weights import open as open_weights

    archive = Archive.of({None: artifacts})
    params = {a.name: a for a in archive.signature.of_kind("param")}
    values: dict[str, Any] = {n: w for n, w in weights.items() if n in params}
    if arguments.params is not None:
        stored = open_weights(arguments.params)
        values |= stored.values_of(a for a in params.values() if a.name in stored or a.name not in values)
    return archive, {name: argument_array(params[name], value) for name, value in values.items()}


def _blob(compilation: Compilation, arguments: argparse.Namespace) -> bytes:
    """Return the bytes of the `jax.export` form.

    Raises:
        Error: The target is not `stablehlo`, or JAX is not installed.
    """
    from rlx.runtime.jax import JaxGraph
    from rlx.support.errors import Error

    target = compilation.target
    if target.name != "stablehlo":
        raise Error(f"--emit={_JAX}: target {target.name} has no such form", hint="--target=stablehlo has")
    options = replace(compilation.options.prepared, precision=None)  # which the graph is in already
    version = getattr(target, "version", None)
    params = arguments.params or dict(compilation.mir.weights) or None
    return JaxGraph(compilation.mir, options).export(params=params, stablehlo_version=version)


def _text(compilation: Compilation, kind: str) -> str | bytes:
    """Return the module at one of its last stages, as readable text."""
    from rlx.support.errors import Error
    from rlx.targets.contract import calling

    if kind == "lir":
        return str(compilation.lir)
    with calling(compilation.backend, "emit"):
        text = compilation.compiler.emit(kind, compilation)
    if text is None:
        raise Error(
            f"--emit={kind}: target {compilation.target.name} has no such form",
            hint=f"every target has {', '.join(_CODE)} and lir; IREE's have linalg and bytecode, XLA's have stablehlo, "
            "those of C have c and emitc, fpga has verilog and hw",
        )
    return text


def compiled(graph: Graph, device: str, arguments: argparse.Namespace, threads: int | None = None) -> Program:
    """Return a graph compiled for a device with the given options."""
    from rlx.runtime.session import Session

    return Session(device, arch=arguments.arch, threads=threads, flags=tuple(arguments.flag)).compile(
        graph, cache=not arguments.no_cache, **options_of(arguments).keywords()
    )

"""Print the interface of a graph or compiled program, and list its ops with cost and source line; or list weights.

At stage mir, blocks are replaced by tensor ops; lir is the input of the target. Two graphs are compared.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlx.cli.files import output_file
from rlx.cli.names import TARGET_HELP, TARGETS
from rlx.cli.options import add_options, options_of
from rlx.cli.streams import say
from rlx.report.text import wrap_text
from rlx.support.printable import printable

if TYPE_CHECKING:
    from rlx.ir.graph.graph import Graph
    from rlx.ir.graph.listing import GraphReport
    from rlx.targets.artifacts.archive import Archive
    from rlx.targets.artifacts.entry import StoredEntry
    from rlx.targets.artifacts.parameters import Parameters
    from rlx.targets.compilation import Compilation
    from rlx.weights import Weights


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "file", metavar="FILE", help="MLIR text, ONNX, a compiled artifact or weights; - is standard input"
    )
    parser.add_argument(
        "other",
        metavar="FILE",
        nargs="?",
        help="a second graph: compare both, in ops, work, memory and (--measure) time",
    )
    parser.add_argument(
        "--second",
        metavar="OPTIONS",
        help="compare with other options, such as --second='-O0 --target=xla': of the second graph, or of the same one",
    )
    parser.add_argument("--stage", choices=("hir", "mir", "lir", "all"), help="default: the stage that the graph is at")
    parser.add_argument("--function", metavar="NAME", help="the function to take (default: the first public one)")
    parser.add_argument("--target", default="cpu", choices=TARGETS, metavar="NAME", help=TARGET_HELP)
    parser.add_argument("--arch", help="the target's architecture, such as sm_80")
    add_options(parser)
    parser.add_argument("--stats", action="store_true", help="one line for each stage: the number of each kind of op")
    parser.add_argument(
        "--svg", type=output_file, metavar="OUT.svg", help="draw the graph (at the last shown stage) into a file"
    )
    parser.add_argument(
        "--html",
        type=output_file,
        metavar="OUT.html",
        help="write an HTML page: stages, changes by each pass, graphs, fusion, dispatch, memory, cost of ops",
    )
    parser.add_argument("--measure", action="store_true", help="with --html: run it, and add the time of each kernel")
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an input for --measure; other inputs are random",
    )
    parser.add_argument(
        "--memory", action="store_true", help="report the memory locations of values, and the largest values"
    )
    parser.add_argument("--memory-svg", type=output_file, metavar="OUT.svg", help="draw memory over time into a file")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from rlx.cli.files import read_program
    from rlx.ir.graph.graph import Graph
    from rlx.support.errors import Error
    from rlx.weights.formats import holds_weights

    if arguments.other is not None or arguments.second is not None:
        _compare(arguments)
        return 0
    if holds_weights(arguments.file):
        say(_weights_text(_opened_weights(arguments.file)))
        return 0
    if (arguments.measure or arguments.input) and arguments.html is None:
        raise Error("--measure and --input need --html=OUT.html; `rlx profile` prints times")
    program = read_program(arguments.file, arguments.function, bind=arguments.bind)
    if isinstance(program, Graph):
        _show_graph(program, arguments)
        return 0
    if arguments.stage or arguments.svg or arguments.html or arguments.memory or arguments.memory_svg:
        raise Error(f"{arguments.file} is compiled; --stage, --svg, --html and --memory need MLIR text")
    say(_file_text(program))
    return 0


def _show_graph(graph: Graph, arguments: argparse.Namespace) -> None:
    """Write the requested files and print the stages. Files are first, because the reader of the text may end early."""
    texts: list[str] = []
    try:
        _inspect_graph(graph, arguments, texts)
    finally:  # stages before one that fails are printed as well
        for text in texts:
            say(text)


def _inspect_graph(graph: Graph, arguments: argparse.Namespace, texts: list[str]) -> None:
    """Write the requested files, and append the texts to print."""
    from rlx.ir.graph.listing import inspect_graph
    from rlx.ir.graph.listing_diff import inspect_diff
    from rlx.ir.op.signature import STAGES
    from rlx.targets.compilation import Compilation
    from rlx.targets.registry import target_of
    from rlx.targets.stages import prepare_graph

    options = options_of(arguments)
    graph = prepare_graph(graph, options)
    target = target_of(arguments.target, arguments.arch)
    compilation = Compilation(graph, target, options.prepared, in_session=True)
    chosen = arguments.stage or graph.stage
    stages = STAGES[STAGES.index(graph.stage) :] if chosen == "all" else [chosen]
    before, report = None, None
    for stage in stages:
        report = inspect_graph(compilation.at(stage))
        if before is not None:
            texts.append(("" if arguments.stats else "\n") + inspect_diff(before, report).summary())
        texts.append(report.stats() if arguments.stats else str(report))
        before = report
    if report is not None and arguments.svg is not None:
        _draw(report, arguments.svg)
    if arguments.html is not None:
        _write_page(compilation, arguments)
    if arguments.memory or arguments.memory_svg is not None:
        _show_memory(compilation, arguments, texts)


def _compare(arguments: argparse.Namespace) -> None:
    """Compare two graphs, or one with other options, as a table, and on a page if it is requested."""
    from rlx.cli.files import read_graph
    from rlx.cli.values import named_arrays
    from rlx.report.comparison import ComparisonReport
    from rlx.runtime.profiling import compile_report
    from rlx.support.errors import Error
    from rlx.support.files import write_atomically
    from rlx.targets.compilation import Compilation
    from rlx.targets.registry import target_of
    from rlx.targets.stages import prepare_graph

    for option in ("stage", "stats", "svg", "memory", "memory_svg"):
        if getattr(arguments, option):
            raise Error(f"--{option.replace('_', '-')} needs a single graph", hint="with two, --html has all of it")
    measure = arguments.measure or bool(arguments.input)
    reports = []
    second = _second_arguments(arguments)
    for given in (arguments, second):
        bind = list(given.bind)
        graph = read_graph(given.file, given.function, bind)
        options = options_of(argparse.Namespace(**{**vars(given), "bind": bind}))
        target, graph = target_of(given.target, given.arch), prepare_graph(graph, options)
        compilation = Compilation(graph, target, options.prepared, in_session=True)
        declared = compilation.signature.arguments
        inputs = named_arrays(arguments.input, "--input", declared) if measure else None
        reports.append(compile_report(compilation, inputs))
    files = Path(arguments.file).name, Path(second.file).name
    if files[0] == files[1] and arguments.file != second.file:
        files = arguments.file, second.file
    first, other = files
    report = ComparisonReport((first, f"{other} {arguments.second}" if arguments.second else other), *reports)
    if arguments.html is not None:  # before the text, whose reader may end early
        write_atomically(arguments.html, report.html().encode())
    say(str(report))


def _second_arguments(arguments: argparse.Namespace) -> argparse.Namespace:
    """Return the arguments for the second program: those of the first with another file and the options of `--second`.

    Raises:
        Error: The text has unknown or invalid options.
    """
    from rlx.support.errors import Error

    second = argparse.Namespace(**vars(arguments))
    second.file, second.bind = arguments.other or arguments.file, list(arguments.bind)
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False, allow_abbrev=False)
    parser.add_argument("--target")
    parser.add_argument("--arch")
    add_options(parser)
    try:
        _, unknown = parser.parse_known_args(shlex.split(arguments.second or ""), second)
    except (argparse.ArgumentError, ValueError) as problem:  # ValueError: a quote without its end
        raise Error(f"--second: {problem}") from None
    if unknown:
        hint = "it takes the options of a compilation: --target, --arch, -O, --precision, --policy, --bind …"
        raise Error(f"--second: unknown options {' '.join(unknown):.200}", hint=hint)
    return second


def _draw(report: GraphReport, path: str) -> None:
    """Draw a graph into a file."""
    from rlx.report.collapse import overview
    from rlx.report.graph_svg import drawing
    from rlx.report.html import standalone
    from rlx.support.files import write_atomically

    write_atomically(path, standalone(drawing(overview(report).listing)).encode())


def _write_page(compilation: Compilation, arguments: argparse.Namespace) -> None:
    """Write the report on a compilation, with times if they are requested."""
    from rlx.cli.values import named_arrays
    from rlx.runtime.profiling import compile_report
    from rlx.support.files import write_atomically

    measure = arguments.measure or bool(arguments.input)
    declared = compilation.signature.arguments
    report = compile_report(compilation, named_arrays(arguments.input, "--input", declared) if measure else None)
    write_atomically(arguments.html, report.html().encode())


def _show_memory(compilation: Compilation, arguments: argparse.Namespace, texts: list[str]) -> None:
    """Draw the memory of a program into a file, and append its text, as they are requested."""
    from rlx.report.html import standalone
    from rlx.report.memory import memory_of_program
    from rlx.support.files import write_atomically

    report = memory_of_program(compilation)
    if arguments.memory:
        texts.append("\n" + str(report).removesuffix("\n"))
    if arguments.memory_svg:
        write_atomically(arguments.memory_svg, standalone(report.svg()).encode())


def _file_text(file: Archive) -> str:
    if not file.names:
        return _entry_text(file.entry())
    lines = [printable(f"{len(file.names)} entry points: {', '.join(file.names)}", keep="")]
    lines += [f"\n{printable(name, keep='')}: {_entry_text(file.entries[name])}" for name in file.names]
    if file.parameters is not None:
        lines.append("\n" + _values_line(file.parameters).strip())
    return "\n".join(lines)


def _values_line(stored: Parameters) -> str:
    from rlx.report.text import bytes_text

    place = "in this file" if stored.file is None else f"in {stored.file}, with the hash {stored.sha256}"
    return f"  parameters with values: {len(stored.places)}, {bytes_text(stored.size)}, {place}"


def _entry_text(entry: StoredEntry) -> str:
    from rlx.report.text import bytes_text

    signature, stored = entry.signature, entry.parameters
    several = len(entry.programs) > 1
    lines = []
    for sizes, programs in entry.by_sizes.items():
        of = f" with {_sizes_text(entry, sizes)}" if sizes else ""
        for program in programs.programs:
            start = "  and for" if lines else f"@{signature.name} compiled for"
            lines.append(f"{start} {program}{of}, {bytes_text(program.code.nbytes)}")
    if entry.buckets is not None:
        lines.append(f"  buckets: {entry.buckets}")
    for a in signature.arguments:
        lines.append(f"    {a.kind} {a.name}: {a.shape}{', donated' if a.donate else ''}")
    lines += [f"    output {o.name}: {o.shape}" for o in signature.outputs]
    lines = [printable(line, keep="") for line in lines]
    if stored is not None:
        lines.append(_values_line(stored))
    for sizes, programs in entry.by_sizes.items():
        for program in programs.programs:
            if several:
                lines.append(f"  {program}" + printable(f" with {_sizes_text(entry, sizes)}" if sizes else "", keep=""))
            lines += _facts(program.info, "    " if several else "  ")
    return "\n".join(lines)


def _sizes_text(entry: StoredEntry, sizes: tuple[int, ...]) -> str:
    """Return the sizes of a bucket by symbol."""
    assert entry.buckets is not None
    return ", ".join(f"{symbol} = {size}" for symbol, size in entry.buckets.named(sizes).items())


# Longer descriptions for short names in files.
_IN_WORDS = {"borrow": "reads inputs in the caller's memory", "host": "of the machine with the hash"}


def _facts(info: Mapping[str, Any], indent: str) -> Iterator[str]:
    """Yield the lines of each entry. The entries of a nested mapping are indented."""
    for name, value in info.items():
        if isinstance(value, Mapping):
            yield f"{indent}{name}:"
            yield from _facts(value, indent + "  ")
        else:
            yield wrap_text(f"{indent}{_IN_WORDS.get(name, name)}: {_fact(value)}".rstrip(), indent=indent + "    ")


def _fact(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


def _opened_weights(path: str) -> Weights:
    """Return the tensors of a file. Those of a model's folder have packed formats where another tool has quantised them."""
    from rlx.models.quantized import open_folder
    from rlx.weights import open as open_weights

    return open_folder(path) if Path(path, "config.json").is_file() else open_weights(path)


def _weights_text(weights: Weights) -> str:
    from rlx.cli.gguf import gguf_text
    from rlx.report.text import bytes_text, table

    if weights.metadata:
        return gguf_text(weights)
    rows = []
    for weight in weights.values():
        dtype = "?" if weight.dtype.name.startswith("void") else weight.dtype.name
        rows.append(
            [
                printable(weight.name, keep=""),
                dtype,
                str(list(weight.shape)),
                bytes_text(weight.nbytes),
                weight.encoding.name,
            ]
        )
    total = bytes_text(sum(weight.nbytes for weight in weights.values()))
    listing = table(rows, ["tensor", "dtype", "shape", "size", "encoding"], right=[3])
    return "\n".join([f"{weights.origin}: {len(rows)} tensors, {total}", *listing])

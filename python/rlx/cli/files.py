"""Input files of commands (MLIR text or bytecode, of rlx or StableHLO, ONNX, compiled programs) and output files."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rlx.cli.streams import standard_input, write

if TYPE_CHECKING:
    from argparse import Namespace

    from rlx.ir.graph.graph import Graph
    from rlx.targets.artifacts.archive import Archive

_ZIP = b"PK\x03\x04"
_PROTOBUF = b"\x08"  # the tag of the first field of an ONNX model, the version; text does not begin with this character


def read_program(
    path: str, function: str | None = None, sha256: str | None = None, bind: list[str] | None = None
) -> Graph | Archive:
    """The graph or the compiled programs in a file.

    Args:
        path: The file; `-` is standard input.
        function: The name of the function of a module. None selects the first public one; StableHLO prefers `main`.
        sha256: The SHA-256 that the file must have, in hexadecimal.
        bind: The values of `--bind`. An importer that needs sizes removes them from the list.

    Raises:
        Error: The file cannot be read, has an unexpected hash, or is neither a module nor an intact file of programs.
    """
    from rlx.targets.artifacts.archive import Archive
    from rlx.targets.hashes import check_sha256
    from rlx.weights.mapped import content_of

    data = standard_input().buffer.read() if path == "-" else content_of(path)
    if sha256 is not None:
        check_sha256(data, sha256, path)
    if data[:4] == _ZIP:
        return Archive.from_bytes(data, path) if path == "-" else Archive.load(path, expected_sha256=sha256)
    if path.endswith(".onnx") or data[:1] == _PROTOBUF:
        return _onnx(bytes(data), path, function, [] if bind is None else bind)
    return _graph(data, path, function)


def read_graph(path: str, function: str | None = None, bind: list[str] | None = None) -> Graph:
    """Return the graph in a file of MLIR text, MLIR bytecode or ONNX. An ONNX graph includes its weights.

    Args:
        path: The file; `-` is standard input.
        function: The name of the function. None selects the first public one; StableHLO prefers `main`.
        bind: See `read_program`.

    Raises:
        Error: It cannot be read, or is not a module.
    """
    from rlx.ir.graph.graph import Graph
    from rlx.support.errors import Error

    program = read_program(path, function, bind=bind)
    if not isinstance(program, Graph):
        hint = "it does not contain its graph: give the file that it was compiled from"
        raise Error(f"{path} is compiled already; expected MLIR text or bytecode, or ONNX", hint=hint)
    return program


def _onnx(data: bytes, path: str, function: str | None, bind: list[str]) -> Graph:
    """Return the graph of an ONNX model, with its weights. `bind` has sizes by their names in the model."""
    from rlx.cli.pairs import size_of
    from rlx.importers import onnx
    from rlx.support.errors import Error

    if function is not None:
        raise Error(f"--function={function}: an ONNX model has one graph")
    sizes: dict[str, int | str] = {}
    for text in bind:
        name, equals, size = text.rpartition("=")
        if not equals or not name or name in sizes:
            raise Error(
                f"--bind={text}: expected each SYMBOL=SIZE once, such as --bind=seq=128 or --bind=height=32*rows"
            )
        sizes[name] = size_of(size, f"--bind={name}") if size.isdecimal() else size
    bind.clear()
    folder = None if path == "-" else os.path.dirname(os.path.abspath(path))
    return onnx.from_bytes(data, "<stdin>" if path == "-" else path, folder, sizes, is_bound=True)


def _graph(data: Any, path: str, function: str | None) -> Graph:
    import rlx
    from rlx.importers import stablehlo
    from rlx.ir.text.modules import decode_module, parse_module

    source = stablehlo.of_content(data, "<stdin>" if path == "-" else path)
    try:
        module = stablehlo.parsed(source)
        if stablehlo.is_stablehlo(module):  # because commands have no option for the weights of a StableHLO module
            return stablehlo.from_module(module, function, largest_literal=math.inf, constants=source.constants)
    except rlx.ParseError:
        if not source.constants:
            raise
    if source.constants:  # an rlx module; its constants stay in the module
        module = parse_module(decode_module(bytes(data), source.name), source.name)
    graph_of = rlx.Graph.from_module  # through `rlx`, so that the op methods exist
    return graph_of(module, function)


# The arguments of commands that name files to read and files or folders to write. An entry may be NAME=FILE or NAME=@FILE.
INPUTS = (
    "file",
    "other",
    "model",
    "imatrix",
    "params",
    "data",
    "record",
    "input",
    "param",
    "load",
    "schema",
    "grammar",
)
OUTPUTS = ("output", "params_file", "output_params", "save_record", "svg", "html", "memory_svg", "trace", "save")


def check_outputs(arguments: Namespace) -> None:
    """Check that a command overwrites none of its input files, and writes no file twice.

    Raises:
        Error: It would.
    """
    from rlx.support.errors import Error

    named = [
        (name, path) for name in (*INPUTS, *OUTPUTS) for path in dict.fromkeys(_paths(getattr(arguments, name, None)))
    ]
    for i, (name, path) in enumerate(named):
        for other, source in named[:i] if name in OUTPUTS else ():
            if other == name:  # the command knows what it writes to the files of one argument
                continue
            if os.path.realpath(path) == os.path.realpath(source) or _is_same_file(path, source):
                role = "an input" if other in INPUTS else "an output"
                raise Error(f"{_option(name)}={path} is also {role}, {_option(other)}", hint="name another file")


def _option(name: str) -> str:
    return "FILE" if name in ("file", "other") else f"--{name.replace('_', '-')}"


def _paths(value: object) -> Iterator[str]:
    """Yield the files that the value of an argument names."""
    if isinstance(value, list):
        for entry in value:
            yield from _paths(entry)
    elif isinstance(value, str) and value != "-":
        yield value
        if "=" in value:
            yield value.partition("=")[2].removeprefix("@")


def _is_same_file(a: str, b: str) -> bool:
    """Whether two paths are hard links to one file."""
    try:
        return os.path.samefile(a, b)
    except (OSError, ValueError):
        return False


def output_file(path: str) -> str:
    """The type of an output file argument. An invalid name is rejected before any work is done.

    Raises:
        Error: The file cannot be written.
    """
    from rlx.support.files import check_writable

    if path != "-":
        check_writable(path)
    return path


def write_output(path: str, data: bytes) -> None:
    """Write the output of a command to a file, or to standard output if the path is `-`.

    The file is written completely or not at all.

    Raises:
        Error: The file or standard output cannot be written.
    """
    from rlx.support.files import write_atomically

    if path != "-":
        write_atomically(path, data)
        return
    write(data)

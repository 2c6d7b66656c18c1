"""The files that commands read: MLIR text or a compiled artifact, told apart by what is in them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlx.backends.artifact import Artifact
    from rlx.ir.graph import Graph

_ZIP, _BYTECODE = b"PK\x03\x04", b"ML\xefR"


def read_program(path: str, function: str | None = None) -> Graph | Artifact:
    """What a file holds.

    Args:
        path: The file; `-` is standard input.
        function: Name of the function of a module; None takes the first public one.

    Raises:
        Error: It cannot be read, or is neither a module nor an intact artifact.
    """
    from rlx.backends.artifact import Artifact
    from rlx.ir.files import read_bytes

    data = sys.stdin.buffer.read() if path == "-" else read_bytes(path)
    if data.startswith(_ZIP):
        return Artifact.from_bytes(data, path)
    return _graph(data, path, function)


def read_graph(path: str, function: str | None = None) -> Graph:
    """The graph that a file of MLIR text holds.

    Args:
        path: The file; `-` is standard input.
        function: Name of the function; None takes the first public one.

    Raises:
        Error: It cannot be read, or is not a module.
    """
    from rlx.ir.errors import Error
    from rlx.ir.graph import Graph

    program = read_program(path, function)
    if not isinstance(program, Graph):
        raise Error(f"{path} is compiled already; expected MLIR text")
    return program


def _graph(data: bytes, path: str, function: str | None) -> Graph:
    from rlx.ir.errors import Error, ParseError
    from rlx.ir.text import parse_module

    name = "<stdin>" if path == "-" else path
    if data.startswith(_BYTECODE):
        raise Error(f"{name} is MLIR bytecode; expected MLIR text or a compiled artifact")
    try:
        text = data.decode()
    except UnicodeDecodeError as problem:
        message = f"neither MLIR text nor a compiled artifact: byte {problem.start} is not UTF-8"
        raise ParseError(message, location=f"{name}:1:1") from None
    import rlx

    graph_of = rlx.Graph.from_module  # through `rlx`, so that the op methods are there
    return graph_of(parse_module(text, name), function)

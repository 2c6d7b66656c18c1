"""The files that commands read: MLIR text, bytecode or a compiled artifact, told apart by what is in them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlx.backends.artifact import Artifact
    from rlx.ir.graph import Graph

_ZIP = b"PK\x03\x04"


def read_program(path: str, function: str | None = None, sha256: str | None = None) -> Graph | Artifact:
    """What a file holds.

    Args:
        path: The file; `-` is standard input.
        function: Name of the function of a module; None takes the first public one.
        sha256: The SHA-256 that the file must have, in hexadecimal.

    Raises:
        Error: It cannot be read, is another one than expected, or is neither a module nor an intact artifact.
    """
    from rlx.backends.artifact import Artifact, check_sha256
    from rlx.ir.files import read_bytes

    data = sys.stdin.buffer.read() if path == "-" else read_bytes(path)
    if sha256 is not None:
        check_sha256(data, sha256, path)
    if data.startswith(_ZIP):
        return Artifact.from_bytes(data, path)
    return _graph(data, path, function)


def read_graph(path: str, function: str | None = None) -> Graph:
    """The graph that a file of MLIR text or bytecode holds.

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
        raise Error(f"{path} is compiled already; expected MLIR text or bytecode")
    return program


def _graph(data: bytes, path: str, function: str | None) -> Graph:
    from rlx.ir.text import decoded, parse_module

    name = "<stdin>" if path == "-" else path
    module = parse_module(decoded(data, name), name)
    import rlx

    graph_of = rlx.Graph.from_module  # through `rlx`, so that the op methods are there
    return graph_of(module, function)

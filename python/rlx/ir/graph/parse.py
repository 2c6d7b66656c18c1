"""Parsing of graphs from MLIR text and files."""

from __future__ import annotations

import os

from rlx.ir.calls import with_call_errors
from rlx.ir.graph.graph import Graph
from rlx.ir.text.modules import is_path, parse_module, read_text


@with_call_errors
def parse(text_or_path: str | os.PathLike[str], *, entry: str | None = None) -> Graph:
    """Return the graph described by MLIR text or a file. Printing the graph gives equal text.

    Args:
        text_or_path: Module text, or the path of a file of text or bytecode.
        entry: Name of the function; None takes the first public one.

    Raises:
        ParseError: Syntax or verification error, with line and column.
        Error: The file cannot be read, or there is no such function.
    """
    if is_path(text_or_path):
        text, name = read_text(text_or_path), os.fspath(text_or_path)
    else:
        text, name = str(text_or_path), "<text>"
    module = parse_module(text, name)
    return Graph.from_module(module, entry)

"""Text in, text out: parsing and verifying modules with errors that have a place."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from rlx import mlir
from rlx.ir import bytecode, limits
from rlx.ir.errors import Error, ParseError, VerificationError
from rlx.ir.graph import Graph, find_function
from rlx.ir.location import describe


def _diagnostics(problem: Any) -> tuple[str, str | None, list[str]]:
    """Message, place and notes of the first diagnostic of an MLIR error."""
    diagnostics = problem.error_diagnostics
    if not diagnostics:
        return str(problem), None, []
    first = diagnostics[0]
    notes = [note.message for note in first.notes if not note.message.startswith("see current operation")]
    return first.message, describe(first.location), notes


def _raise(kind: type[Error], problem: Any) -> None:
    message, place, notes = _diagnostics(problem)
    raise kind("\n  note: ".join([message, *notes]), location=place) from None


def parse_module(text: str, name: str = "<text>") -> Any:
    """Text as a verified module.

    Args:
        text: MLIR text.
        name: What to call the text in messages, usually a file name.

    Raises:
        ParseError: Syntax or verification error, or text beyond a limit (see `rlx.ir.limits`), with line and column.
    """
    limits.check(text, name)
    ir = mlir.ir
    with mlir.entered() as context:
        try:
            op = ir.Operation.parse(text, source_name=name, context=context).operation
        except ir.MLIRError as problem:
            _raise(ParseError, problem)
        if op.name == "builtin.module":
            return op.opview
        if op.name != "func.func":
            raise ParseError(f"expected a module or functions, got '{op.name}'", location=describe(op.location))
        module = ir.Module.create(loc=op.location)
        ir.InsertionPoint(module.body).insert(op)
        return module


def verify_module(module: Any) -> None:
    """Check a module.

    Raises:
        VerificationError: With the place and message of the first error.
    """
    with mlir.entered():
        try:
            module.operation.verify()
        except mlir.ir.MLIRError as problem:
            _raise(VerificationError, problem)


def is_path(text_or_path: str | os.PathLike[str]) -> bool:
    """Whether an argument names a file rather than being module text."""
    if isinstance(text_or_path, os.PathLike):
        return True
    return "\n" not in text_or_path and not re.search(r"[{(]", text_or_path)


def read_text(path: str | os.PathLike[str]) -> str:
    """The module text that a file holds, as text or as bytecode.

    Raises:
        Error: It is missing, unreadable or not UTF-8.
    """
    name = os.fspath(path)
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise Error(f"no such file: {name}") from None
    except ValueError:  # a NUL, or half of a character
        raise Error(f"not the name of a file: {name!r}") from None
    except OSError as problem:
        raise Error(f"cannot read {name}: {problem.strerror}") from None
    return decoded(data, name)


def decoded(data: bytes, name: str) -> str:
    """Module text from the content of a file, which is text or bytecode.

    Raises:
        ParseError: It is neither.
    """
    if bytecode.is_bytecode(data):
        return bytecode.text_of(data, name)
    try:
        return data.decode()
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        column = problem.start - data.rfind(b"\n", 0, problem.start)
        raise ParseError("neither UTF-8 text nor bytecode", location=f"{name}:{line}:{column}") from None


def parse(text_or_path: str | os.PathLike[str], *, entry: str | None = None) -> Graph:
    """The graph that MLIR text, or the file at a path, describes. Printing it gives equal text.

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
    find_function(module, entry)
    return Graph.from_module(module, entry)

"""Text in, text out: parsing and verifying modules with errors that have a place."""

from __future__ import annotations

import os
import re
from typing import Any, NoReturn

from rlx import mlir
from rlx.ir import assembly, isolated, limits, signature
from rlx.ir.errors import Error, ParseError, VerificationError
from rlx.ir.files import read_bytes
from rlx.ir.graph import Graph, find_function
from rlx.ir.location import describe

_SEVERAL = "source must contain a single top-level operation"
_NONE = f"{_SEVERAL}, found: 0"
_UNNAMED = "-"  # what MLIR calls text that it was given without a name


def _diagnostics(problem: Any) -> tuple[str, str | None, list[str]]:
    """Message, place and notes of the first diagnostic of an MLIR error."""
    diagnostics = problem.error_diagnostics
    if not diagnostics:
        return str(problem), None, []
    first = diagnostics[0]
    notes = [note.message for note in first.notes if not note.message.startswith("see current operation")]
    return first.message, describe(first.location), notes


def _raise(kind: type[Error], problem: Any, source: assembly.Source | None = None) -> NoReturn:
    message, place, notes = _diagnostics(problem)
    if source is not None:
        place = source.described(place)
    raise kind("\n  note: ".join([message, *notes]), location=place) from None


def checked_source(text: str, name: str) -> assembly.Source:
    """Text for MLIR's parser, which it survives. This may take long, and needs no context: other threads go on.

    Raises:
        ParseError: It is beyond a limit, has an rlx op that cannot be read, or crashes the parser.
    """
    limits.check(text, name)
    source = assembly.read(text, name)
    isolated.attempt(source.text, name)
    return source


def parse_op(source: assembly.Source) -> mlir.Operation:
    """The op that text holds, verified; several ops come in a module. Locations are where the user wrote them.

    Args:
        source: What `checked_source` gave.

    Raises:
        ParseError: There is no op, or MLIR does not say what is wrong.
        MLIRError: A syntax or verification error, with places in `source.text`.
    """
    ir = mlir.ir
    context = mlir.context()
    unnamed = None
    try:
        try:
            op = ir.Operation.parse(source.text, source_name=source.name, context=context)
        except ir.MLIRError as problem:
            found = problem.error_diagnostics
            if len(found) != 1 or not found[0].message.startswith(_SEVERAL):
                raise
            if found[0].message == _NONE:
                raise ParseError("expected a module or functions; there is no op", location=source.begin) from None
            op, unnamed = ir.Module.parse(source.text, context=context), _UNNAMED
    except ir.MLIRError as problem:
        if problem.error_diagnostics:
            raise
        _fail_silently(source)
    if op is None:
        _fail_silently(source)
    source.relocate(op, unnamed)
    return op.operation


def _fail_silently(source: assembly.Source) -> NoReturn:
    """MLIR's parser fails without a word where an rlx op stands that `assembly.read` did not take for one."""
    place, name = source.bare_op() or (source.begin, None)
    what = "MLIR cannot parse this, and does not say why" if name is None else f"'{name}' is not expected here"
    raise ParseError(what, location=place)


def parse_module(text: str, name: str = "<text>") -> mlir.Module:
    """Text as a verified module; rlx ops are in the readable form or in the generic one.

    Args:
        text: MLIR text.
        name: What to call the text in messages, usually a file name.

    Raises:
        ParseError: Syntax or verification error, or text beyond a limit (see `rlx.ir.limits`), with line and column.
    """
    source = checked_source(text, name)
    ir = mlir.ir
    with mlir.entered():
        try:
            op = parse_op(source)
        except ir.MLIRError as problem:
            _raise(ParseError, problem, source)
        if op.name not in ("builtin.module", "func.func"):
            raise ParseError(f"expected a module or functions, got '{op.name}'", location=describe(op.location))
        if op.name == "builtin.module":
            module = op.opview
        else:
            module = ir.Module.create(loc=op.location)
            ir.InsertionPoint(module.body).insert(op)
        try:
            signature.check(module)
        except VerificationError as problem:
            raise ParseError(problem.message, location=problem.location, hint=problem.hint) from None
        return module


def print_op(
    op: mlir.Operation | mlir.Module,
    *,
    generic: bool = False,
    debug_info: bool = False,
    elements_limit: int | None = None,
    verified: bool = False,
) -> str:
    """The text of a module, or of another op, with rlx ops in the readable form.

    Args:
        op: The op.
        generic: All ops in MLIR's generic form instead.
        debug_info: Print locations.
        elements_limit: Leave out constants of more elements than this.
        verified: It is known to be verified. Other invalid ops print in the generic form.
    """
    text = op.operation.get_asm(
        enable_debug_info=debug_info,
        print_generic_op_form=generic,
        large_elements_limit=elements_limit,
        assume_verified=verified,
    )
    return text if generic else assembly.write(text)


def verify_module(module: mlir.Module) -> None:
    """Check a module.

    Raises:
        VerificationError: With the place and message of the first error.
    """
    with mlir.entered():
        try:
            module.operation.verify()
        except mlir.ir.MLIRError as problem:
            _raise(VerificationError, problem)
        signature.check(module)


def is_path(text_or_path: str | os.PathLike[str]) -> bool:
    """Whether an argument names a file rather than being module text."""
    if not isinstance(text_or_path, str):
        return True
    return "\n" not in text_or_path and not re.search(r"[{(]", text_or_path)


def read_text(path: str | os.PathLike[str]) -> str:
    """The module text that a file holds, as text or as bytecode.

    Raises:
        Error: It is missing, unreadable or not UTF-8.
    """
    return decoded(read_bytes(path), os.fspath(path))


def decoded(data: bytes, name: str) -> str:
    """Module text from the content of a file, which is text or bytecode.

    Raises:
        ParseError: It is neither.
    """
    if isolated.is_bytecode(data):
        return isolated.bytecode_text(data, name)
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

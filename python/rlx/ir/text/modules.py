"""Parsing, printing and verification of modules, with errors located in the user's text."""

from __future__ import annotations

import os
import re
from typing import Any, NoReturn

from rlx import mlir
from rlx.ir.location import describe
from rlx.ir.op import signature
from rlx.ir.text import assembly, isolated, limits
from rlx.support.errors import Error, ParseError, VerificationError
from rlx.support.files import read_bytes

_SEVERAL = "source must contain a single top-level operation"
_NONE = f"{_SEVERAL}, found: 0"
_UNNAMED = "-"  # MLIR's name for unnamed text


def _diagnostics(problem: Any) -> tuple[str, str | None, list[str]]:
    """Return message, location and notes of the first diagnostic of an MLIR error."""
    diagnostics = problem.error_diagnostics
    if not diagnostics:
        return str(problem), None, []
    first = diagnostics[0]
    notes = [note.message for note in first.notes if not note.message.startswith("see current operation")]
    return first.message, describe(first.location), notes


def _raise(kind: type[Error], problem: Any, source: assembly.GenericText | None = None) -> NoReturn:
    message, place, notes = _diagnostics(problem)
    if source is not None:
        place = source.described(place)
    raise kind("\n  note: ".join([message, *notes]), location=place) from None


def checked_source(text: str, name: str) -> assembly.GenericText:
    """Return text that is safe for MLIR's parser. This may be slow, but needs no MLIR context, so other threads can run.

    Raises:
        ParseError: The text exceeds a limit, has an rlx op that cannot be read, or crashes the parser.
    """
    limits.check(text, name)
    source = assembly.read(text, name)
    isolated.attempt(source.text, name)
    return source


def parse_op(source: assembly.GenericText) -> mlir.Operation:
    """Return the verified op in a text; if there are several, a module of them. Locations refer to the user's text.

    Args:
        source: The result of `checked_source`.

    Raises:
        ParseError: There is no op, or MLIR does not report the reason.
        MLIRError: A syntax or verification error, located in `source.text`.
    """
    ir = mlir.ir
    context = mlir.context()
    unnamed = None
    try:
        try:
            op = ir.Operation.parse(source.text, source_name=source.name, context=context)
        except ir.MLIRError as problem:
            diagnostics = problem.error_diagnostics
            if len(diagnostics) != 1 or not diagnostics[0].message.startswith(_SEVERAL):
                raise
            if diagnostics[0].message == _NONE:
                raise ParseError("expected a module or functions; there is no op", location=source.begin) from None
            op, unnamed = ir.Module.parse(source.text, context=context), _UNNAMED
    except ir.MLIRError as problem:
        if problem.error_diagnostics:
            raise
        _fail_without_message(source)
    if op is None:
        _fail_without_message(source)
    source.relocate(op, unnamed)
    return op.operation


def _fail_without_message(source: assembly.GenericText) -> NoReturn:
    """Raise the error for text that MLIR's parser rejects without a message.

    This happens for an rlx op in the readable form that `assembly.read` has not recognised as an op.
    """
    place, name = source.bare_op() or (source.begin, None)
    message = "MLIR cannot parse this, and does not say why" if name is None else f"'{name}' is not expected here"
    raise ParseError(message, location=place)


def parse_module(text: str, name: str = "<text>") -> mlir.Module:
    """Return a verified module from text with rlx ops in the readable or the generic form.

    Args:
        text: MLIR text.
        name: The name of the text in messages, usually a file name.

    Raises:
        ParseError: A syntax or verification error, or text that exceeds a limit (`rlx.ir.text.limits`), with line and
            column.
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
    """Return the text of a module or another op, with rlx ops in the readable form.

    Args:
        op: The op.
        generic: Print all ops in MLIR's generic form.
        debug_info: Print locations.
        elements_limit: Do not print the elements of constants with more elements than this.
        verified: Whether the op is known to be valid. Otherwise MLIR verifies it, and prints an invalid op in the
            generic form.
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
        VerificationError: The module is not valid; the error has the location and message of the first problem.
    """
    with mlir.entered():
        try:
            module.operation.verify()
        except mlir.ir.MLIRError as problem:
            _raise(VerificationError, problem)
        signature.check(module)


def is_path(text_or_path: str | os.PathLike[str]) -> bool:
    """Whether an argument is the path of a file rather than the text of a module."""
    if not isinstance(text_or_path, str):
        return True
    return "\n" not in text_or_path and not re.search(r"[{(]", text_or_path)


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a module in a text or bytecode file.

    Raises:
        Error: The file is missing, unreadable or not UTF-8.
    """
    return decode_module(read_bytes(path), os.fspath(path))


def decode_module(data: bytes, name: str) -> str:
    """Return the text of a module from the content of a text or bytecode file.

    Raises:
        ParseError: The content is neither.
    """
    if isolated.is_bytecode(data):
        return isolated.bytecode_text(data, name)
    try:
        return data.decode()
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        column = problem.start - data.rfind(b"\n", 0, problem.start)
        raise ParseError("neither UTF-8 text nor bytecode", location=f"{name}:{line}:{column}") from None

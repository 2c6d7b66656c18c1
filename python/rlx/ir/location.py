"""Locations of ops in the user's files."""

from __future__ import annotations

import re

from rlx import mlir
from rlx.support.caller import caller

_PLACE = re.compile(r'"([^"]*)":(\d+):(\d+)')
_ONNX_NODE = re.compile(r'\.onnx:([^":]+)[^"]*":\d+:\d+')
_ESCAPE = re.compile(rb"\\([0-9A-F]{2}|\\)")
_locations: dict[tuple[str, int, str], mlir.Location] = {}


def caller_location(scope: str = "") -> mlir.Location:
    """Return the caller's line as an MLIR location, wrapped in the name of the scope if there is one."""
    name, line = caller()
    key = (name, line, scope)
    location = _locations.get(key)
    if location is None:
        context = mlir.context()
        # A path that the locale cannot decode contains lone surrogates, which cannot be encoded as UTF-8.
        location = mlir.ir.Location.file(name.encode(errors="backslashreplace").decode(), line, 0, context=context)
        if scope:
            location = mlir.ir.Location.name(scope, location, context=context)
        _locations[key] = location
    return location


def describe(location: mlir.Location) -> str | None:
    """Return `file:line` (or `file:line:col`) of a location; None if it is not in a file."""
    places = _PLACE.findall(str(location))
    if not places:
        return None
    name, line, column = places[0]
    name = unescaped(name)
    return f"{name}:{line}" if column == "0" else f"{name}:{line}:{column}"


def location_at(place: str) -> mlir.Location:
    """Return the MLIR location of `file:line:col`, `file:line`, or any other text that describes a location."""
    match = re.fullmatch(r"(.*?):(\d+)(?::(\d+))?", place, re.DOTALL)
    name, line, column = (match[1], int(match[2]), int(match[3] or 0)) if match else (place, 0, 0)
    return mlir.ir.Location.file(name, line, column, context=mlir.context())


def unescaped(text: str) -> str:
    """Return the string that MLIR printed. MLIR escapes most bytes as a backslash and two hexadecimal digits."""
    data = _ESCAPE.sub(lambda m: b"\\" if m[1] == b"\\" else bytes.fromhex(m[1].decode()), text.encode())
    return data.decode(errors="backslashreplace")


def scope_of(location: mlir.Location) -> str:
    """Return the scope of an op, outermost first, joined by `/`; empty if there is none.

    It consists of the builder's scopes, then the ops that passes decomposed to create it.
    """
    names = [unescaped(name) for name in re.findall(r'"([^"]*)"\(', str(location))]
    return "/".join(name for name in reversed(names) if not name.startswith("rlx-"))


def layer_of(location: mlir.Location) -> str:
    """Return the name of an op's layer in the model: its scope, or its node in an ONNX file; empty if there is none."""
    node = _ONNX_NODE.search(str(location))
    return scope_of(location) or (unescaped(node[1]).strip("/") if node else "")


def name_of(location: mlir.Location) -> str:
    """Return the name that a location gives to a value; empty if there is none."""
    match = re.fullmatch(r'loc\("([^"]*)"(?:\(.*\))?\)', str(location), re.DOTALL)
    return unescaped(match[1]) if match else ""


def within(location: mlir.Location, note: str) -> mlir.Location:
    """Return the same location with a note that names the origin of the op: a block, a pass."""
    return mlir.ir.Location.name(note, location, context=mlir.context())

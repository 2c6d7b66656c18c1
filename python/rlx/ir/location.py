"""Locations of ops in the user's files."""

from __future__ import annotations

import dis
import inspect
import re
import sys
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from rlx import mlir

_PACKAGE = str(Path(__file__).resolve().parents[1])
_NUMPY = str(Path(np.__file__).parent)  # NumPy may call back functions of this package
_BINDINGS = str(Path(mlir.ir.__file__).parent)
_PLACE = re.compile(r'"([^"]*)":(\d+):(\d+)')
_ESCAPE = re.compile(rb"\\([0-9A-F]{2}|\\)")
_ours: dict[str, bool] = {}
_locations: dict[tuple[str, int, str], mlir.Location] = {}


def caller() -> tuple[str, int]:
    """Return file (or notebook cell) and line of the innermost frame outside this package."""
    frame = inspect.currentframe()
    while frame is not None:
        name = frame.f_code.co_filename
        ours = _ours.get(name)
        if ours is None:
            ours = _ours[name] = name.startswith((_PACKAGE, _NUMPY, "<frozen", "<string>")) or "/contextlib.py" in name
        if not ours:
            return _shown(name), frame.f_lineno
        frame = frame.f_back
    return "<unknown>", 0


def asked_after(name: str) -> list[str]:
    """Return the attributes that the caller's code reads after the attribute that is being read now.

    For `scipy` in `g.scipy.special.erf(x)`, this is `["special", "erf"]`. The list is empty if the attribute is read in
    another way, such as `getattr`.
    """
    code = _code_of_caller()
    if not code or code[0].argval != name:
        return []
    return [str(i.argval) for i in takewhile(lambda i: i.opname in ("LOAD_ATTR", "LOAD_METHOD"), code[1:])]


def is_imported() -> bool:
    """Whether the caller's code imports a name with `from … import …`."""
    return any(i.opname == "IMPORT_FROM" for i in _code_of_caller()[:1])


def _code_of_caller() -> list[dis.Instruction]:
    """Return the caller's instructions, starting at the current one."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    if frame is None:
        return []
    return [i for i in dis.get_instructions(frame.f_code) if i.offset >= frame.f_lasti and i.opname != "EXTENDED_ARG"]


def _shown(name: str) -> str:
    """Return the name of a notebook cell as in IPython's tracebacks, such as `In[6]`. Its file name is a number."""
    if "ipykernel_" not in name and not name.startswith("<ipython-input"):
        return name
    ipython: Any = sys.modules.get("IPython")
    shell = ipython and ipython.get_ipython()
    cell = shell and shell.compile.format_code_name(name)
    return cell[1] if cell else name


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


def name_of(location: mlir.Location) -> str:
    """Return the name that a location gives to a value; empty if there is none."""
    match = re.fullmatch(r'loc\("([^"]*)"(?:\(.*\))?\)', str(location), re.DOTALL)
    return unescaped(match[1]) if match else ""


def within(location: mlir.Location, note: str) -> mlir.Location:
    """Return the same location with a note that names the origin of the op: a block, a pass."""
    return mlir.ir.Location.name(note, location, context=mlir.context())

"""Locations: where in the user's own files an op comes from."""

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
    """File, or cell of a notebook, and line of the innermost frame outside this package."""
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
    """What the caller's code asks of an attribute that it reads now: of `g.scipy.special.erf(x)`, `["special", "erf"]` after
    `scipy`; nothing where the attribute is read in another way, as by `getattr`.
    """
    code = _code_of_caller()
    if not code or code[0].argval != name:
        return []
    return [str(i.argval) for i in takewhile(lambda i: i.opname in ("LOAD_ATTR", "LOAD_METHOD"), code[1:])]


def is_imported() -> bool:
    """Whether the caller's code reads a name by `from … import …`."""
    return any(i.opname == "IMPORT_FROM" for i in _code_of_caller()[:1])


def _code_of_caller() -> list[dis.Instruction]:
    """The caller's code from the instruction on that is carried out now."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    if frame is None:
        return []
    return [i for i in dis.get_instructions(frame.f_code) if i.offset >= frame.f_lasti and i.opname != "EXTENDED_ARG"]


def _shown(name: str) -> str:
    """A cell by the name that tracebacks of IPython give it, as `In[6]`; it has a file with a number for a name."""
    if "ipykernel_" not in name and not name.startswith("<ipython-input"):
        return name
    ipython: Any = sys.modules.get("IPython")
    shell = ipython and ipython.get_ipython()
    cell = shell and shell.compile.format_code_name(name)
    return cell[1] if cell else name


def caller_location(scope: str = "") -> mlir.Location:
    """The caller's place as an MLIR location, wrapped in the name of the scope when there is one."""
    name, line = caller()
    key = (name, line, scope)
    location = _locations.get(key)
    if location is None:
        context = mlir.context()
        # A path that the locale cannot decode holds lone surrogates, which cannot be written as UTF-8.
        location = mlir.ir.Location.file(name.encode(errors="backslashreplace").decode(), line, 0, context=context)
        if scope:
            location = mlir.ir.Location.name(scope, location, context=context)
        _locations[key] = location
    return location


def describe(location: mlir.Location) -> str | None:
    """`file:line` (or `file:line:col`) of a location, None when it has no place in a file."""
    places = _PLACE.findall(str(location))
    if not places:
        return None
    name, line, column = places[0]
    name = unescaped(name)
    return f"{name}:{line}" if column == "0" else f"{name}:{line}:{column}"


def location_at(place: str) -> mlir.Location:
    """The MLIR location of `file:line:col`, `file:line`, or of any other text that says where something is."""
    match = re.fullmatch(r"(.*?):(\d+)(?::(\d+))?", place, re.DOTALL)
    name, line, column = (match[1], int(match[2]), int(match[3] or 0)) if match else (place, 0, 0)
    return mlir.ir.Location.file(name, line, column, context=mlir.context())


def unescaped(text: str) -> str:
    """The string that MLIR printed. In what it prints, a backslash and two hexadecimal digits stand for most bytes."""
    data = _ESCAPE.sub(lambda m: b"\\" if m[1] == b"\\" else bytes.fromhex(m[1].decode()), text.encode())
    return data.decode(errors="backslashreplace")


def scope_of(location: mlir.Location) -> str:
    """Where an op belongs, outermost first, joined by `/`: the scopes of the builder in which it was made, then what passes
    took apart to make it. Empty when there is none.
    """
    names = [unescaped(name) for name in re.findall(r'"([^"]*)"\(', str(location))]
    return "/".join(name for name in reversed(names) if not name.startswith("rlx-"))


def name_of(location: mlir.Location) -> str:
    """The name that a location gives to a value, empty when it gives none."""
    match = re.fullmatch(r'loc\("([^"]*)"(?:\(.*\))?\)', str(location), re.DOTALL)
    return unescaped(match[1]) if match else ""


def within(location: mlir.Location, note: str) -> mlir.Location:
    """The same place, with a note that says what made the op: a block, a pass."""
    return mlir.ir.Location.name(note, location, context=mlir.context())

"""The user's line that called this package, and the code at it. Does not need MLIR."""

from __future__ import annotations

import dis
import inspect
import sys
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

_PACKAGE = str(Path(__file__).resolve().parents[1])
_NUMPY = str(Path(np.__file__).parent)  # NumPy may call back functions of this package
_ours: dict[str, bool] = {}


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


def caller_place() -> str:
    """Return the caller's line as `file:line`."""
    name, line = caller()
    # A path that the locale cannot decode contains lone surrogates, which cannot be printed.
    return f"{name.encode(errors='backslashreplace').decode()}:{line}"


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

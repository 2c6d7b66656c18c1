"""Locations in user code for hints: where an exception was raised, where a function is defined. Does not need MLIR."""

from __future__ import annotations

import inspect
import os
import sys
import traceback
from pathlib import Path

import numpy as np

from rlx.parts import BINDINGS

_PACKAGE = str(Path(__file__).resolve().parents[1])
_NUMPY = str(Path(np.__file__).parent)


def raised_at(problem: Exception) -> str | None:
    """Return `see file:line`, the innermost frame of an exception outside this package, MLIR and NumPy."""
    place = place_of(problem)
    return None if place is None else f"see {place}"


def place_of(problem: Exception, *libraries: str) -> str | None:
    """Return `file:line`, the innermost frame of an exception outside this package, MLIR, NumPy and `libraries`.

    Args:
        problem: The exception.
        libraries: The names of packages that have been imported.
    """
    others = [
        str(Path(file).parent) + os.sep for n in libraries if (file := getattr(sys.modules.get(n), "__file__", None))
    ]
    for frame in reversed(traceback.extract_tb(problem.__traceback__)):
        if not frame.filename.startswith((_PACKAGE, _NUMPY, "<", *others, *_bindings())):
            return f"{frame.filename}:{frame.lineno}"
    return None


def defined_at(function: object) -> str | None:
    """Return `see file:line`, where a function outside this package is defined."""
    code = getattr(inspect.unwrap(function) if callable(function) else function, "__code__", None)
    if code is None or code.co_filename.startswith(_PACKAGE):
        return None
    return f"see {code.co_filename}:{code.co_firstlineno}"


def _bindings() -> tuple[str, ...]:
    """Return the folder of MLIR's bindings, if they are imported."""
    mlir = sys.modules.get(BINDINGS)
    return () if mlir is None else (str(Path(mlir.ir.__file__).parent),)

"""The source files and the values from outside that a user's kernel depends on, for the keys of cached programs."""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import site
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from rlx.ir.dtype import DType


class UnknownValueError(ValueError):
    """The code depends on a value whose changes cannot be seen, such as an object with attributes."""


def source_of(function: Callable[..., Any]) -> str | None:
    """Return a hash of the source file of a function, and its line there; None if they are unknown, as at a prompt.

    Of the whole file, because the function may call others in it.
    """
    try:
        path = inspect.getsourcefile(function)
        code = getattr(function, "__code__", None)
        if path is None or code is None:
            return None
        status = os.stat(path)
        return f"{_hash_of_file(path, status.st_mtime_ns, status.st_size)} {code.co_firstlineno}"
    except (OSError, TypeError):
        return None


@lru_cache(256)
def _hash_of_file(path: str, modified_ns: int, size: int) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def values_from_outside(function: Callable[..., Any]) -> str | None:
    """Return the values that a function reads from outside, as text: those that it captures, its defaults, and globals.

    Also those that functions read which it refers to. None if it refers to objects with attributes, or to modules that are
    neither installed nor a part of Python: their values may change.
    """
    try:
        return _text_of(function, {})
    except UnknownValueError:
        return None


def _text_of(value: Any, seen: dict[int, Any]) -> str:
    if isinstance(value, (int, float, complex, str, bytes, np.generic, DType, type(None))):
        return repr(value)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return f"array {value.dtype.str} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    if id(value) in seen:
        return "seen"
    seen[id(value)] = value  # kept alive, so that no other value has its id
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(_text_of(item, seen) for item in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_text_of(k, seen)}: {_text_of(v, seen)}' for k, v in value.items())}}}"
    if isinstance(value, functools.partial):
        return _text_of([value.func, value.args, value.keywords], seen)
    module = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    if isinstance(value, (ModuleType, BuiltinFunctionType, FunctionType, type)) and is_installed(module):
        return f"{module}.{getattr(value, '__qualname__', '')}"
    if isinstance(value, FunctionType):
        return f"{value.__qualname__}({_text_of([*_outside(value)], seen)})"
    raise UnknownValueError


def _outside(function: FunctionType) -> Iterator[Any]:
    """Yield the values that a function reads from outside."""
    try:
        yield from (cell.cell_contents for cell in function.__closure__ or ())
    except ValueError as problem:  # an empty cell
        raise UnknownValueError from problem
    yield from function.__defaults__ or ()
    yield function.__kwdefaults__
    for name in dict.fromkeys(_names(function.__code__)):
        if name in function.__globals__:
            yield name
            yield function.__globals__[name]


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names in a function's code, and in functions inside of it, that may be globals."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def is_installed(module: str | None) -> bool:
    """Whether a module is RLX's, a part of Python, or in a folder of installed packages."""
    package = (module or "").partition(".")[0]
    if package in ("rlx", "builtins") or package in sys.stdlib_module_names:
        return package != "__main__"
    path = getattr(sys.modules.get(module or ""), "__file__", None) or ""
    return path.startswith(tuple(folder + os.sep for folder in (*site.getsitepackages(), site.getusersitepackages())))

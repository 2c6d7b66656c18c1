"""The source files and the values from outside that a user's functions depend on, for the keys of cached programs."""

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

# Attributes that all classes have, or that follow from others.
_OF_ALL_CLASSES = ("__module__", "__dict__", "__weakref__", "__doc__", "__annotations__", "_abc_impl", "spec")


class UnknownValueError(ValueError):
    """The code depends on a value whose changes cannot be seen, such as an object of another library."""


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


def values_from_outside(value: Any) -> str | None:
    """Return the values that a function or the methods of a class read from outside, as text.

    These are captured values, defaults and globals, what functions among them read in turn, and attributes of objects and of
    the user's modules. None if one is an object whose changes cannot be seen, such as an array of another library.
    """
    try:
        return _text_of(value, {})
    except UnknownValueError:
        return None


def _text_of(value: Any, seen: dict[int, Any]) -> str:
    kind = _class_of(value)
    if issubclass(kind, (int, float, complex, str, bytes, np.generic, DType, type(None), type(...))):
        return repr(value)
    if issubclass(kind, np.ndarray) and not value.dtype.hasobject:
        return f"array {value.dtype.str} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    if id(value) in seen:
        return "seen"
    seen[id(value)] = value  # kept alive, so that no other value has its id
    if issubclass(kind, (tuple, list)):
        return f"[{', '.join(_text_of(item, seen) for item in value)}]"
    if issubclass(kind, (set, frozenset)):
        return f"{{{', '.join(sorted(_text_of(item, seen) for item in value))}}}"
    if issubclass(kind, dict):
        return f"{{{', '.join(f'{_text_of(k, seen)}: {_text_of(v, seen)}' for k, v in value.items())}}}"
    if issubclass(kind, functools.partial):
        return _text_of([value.func, value.args, value.keywords], seen)
    if issubclass(kind, (staticmethod, classmethod)):
        return _text_of(value.__func__, seen)
    if issubclass(kind, property):
        return _text_of(value.fget, seen)
    if issubclass(kind, (FunctionType, BuiltinFunctionType, ModuleType, type)):
        return _text_of_code(value, seen)
    fields: Any = getattr(_class_of(value), "__dataclass_fields__", None)
    if fields is not None:
        return _text_of([_class_of(value), [getattr(value, name) for name in fields]], seen)
    if not _is_installed(_class_of(value).__module__) and hasattr(value, "__dict__"):
        return _text_of([_class_of(value), value.__dict__], seen)
    raise UnknownValueError


def _class_of(value: object) -> Any:
    """Return the class of a value. As `Any`, because tests with `isinstance` leave types that are partially unknown."""
    return type(value)


def _text_of_code(value: Any, seen: dict[int, Any]) -> str:
    """Return the text of a function, class or module."""
    is_module = isinstance(value, ModuleType)
    module = value.__name__ if is_module else value.__module__
    if _is_installed(module):
        return f"{module}.{'' if is_module else value.__qualname__}"
    if isinstance(value, FunctionType):
        return f"{value.__qualname__}({_text_of([*_outside(value)], seen)})"
    if isinstance(value, type):
        own = {name: v for name, v in vars(value).items() if name not in _OF_ALL_CLASSES}
        return f"{value.__qualname__}({_text_of([value.__bases__, own], seen)})"
    raise UnknownValueError


def _outside(function: FunctionType) -> Iterator[Any]:
    """Yield the values that a function reads from outside."""
    try:
        yield from (cell.cell_contents for cell in function.__closure__ or ())
    except ValueError as problem:  # an empty cell
        raise UnknownValueError from problem
    yield from function.__defaults__ or ()
    yield function.__kwdefaults__
    names = list(dict.fromkeys(_names(function.__code__)))
    for name in names:
        if name in function.__globals__:
            value = function.__globals__[name]
            yield name
            if isinstance(value, ModuleType) and not _is_installed(value.__name__):
                read = {n: vars(value)[n] for n in names if n in vars(value)}
                yield {n: v for n, v in read.items() if not isinstance(v, ModuleType)}
            else:
                yield value


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names in a function's code, and in functions inside of it, that may be globals."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _is_installed(module: str | None) -> bool:
    """Whether a module is RLX's, a part of Python, or in a folder of installed packages."""
    package = (module or "").partition(".")[0]
    if package in ("rlx", "builtins") or package in sys.stdlib_module_names:
        return package != "__main__"
    path = getattr(sys.modules.get(module or ""), "__file__", None) or ""
    return path.startswith(tuple(folder + os.sep for folder in (*site.getsitepackages(), site.getusersitepackages())))

"""Pointers of LAPACK's routines in this process, which SciPy exports to Cython."""

from __future__ import annotations

import ctypes
import importlib
import sys
from functools import cache
from importlib.util import find_spec

import numpy as np

from rlx.support.errors import ExecutionError
from rlx.targets.iree.cpu import machine

_MODULES = {"trsm": "scipy.linalg.cython_blas"}
_MODULE = "scipy.linalg.cython_lapack"


def has_lapack() -> bool:
    """Whether programs can call LAPACK here: SciPy is installed, and `kernels.routines` can call its functions.

    It can on x86-64, except on Windows, where functions take arguments in other places.
    """
    return machine() == "x86_64" and sys.platform != "win32" and find_spec("scipy") is not None


@cache
def lapack_pointers() -> np.ndarray:
    """Return the pointers of the routines in `kernels.routines.NAMES`, as i64.

    Raises:
        ExecutionError: SciPy is not installed, or has other functions.
    """
    from rlx.kernels.routines import ARGUMENTS, NAMES

    hint = "compile the program with lapack='off'"
    if not has_lapack():
        raise ExecutionError("the program calls LAPACK, which needs SciPy", hint=hint)
    try:
        return np.array([_pointer(name, ARGUMENTS[name]) for name in NAMES], np.int64)
    except (ImportError, AttributeError, KeyError, ValueError) as problem:
        raise ExecutionError(f"the program calls LAPACK, and SciPy lacks it: {problem}", hint=hint) from None


def _pointer(name: str, arguments: int) -> int:
    """Return the pointer of a routine, after checking its signature, which is the name of the capsule.

    Raises:
        ValueError: The signature is another one, such as one with integers of 64 bits.
    """
    capsule = importlib.import_module(_MODULES.get(name[1:], _MODULE)).__pyx_capi__[name]
    interface = ctypes.pythonapi
    get_name, get_pointer = interface.PyCapsule_GetName, interface.PyCapsule_GetPointer
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    signature = get_name(capsule)
    types = signature.decode().removeprefix("void (").removesuffix(")").split(", ")
    if len(types) != arguments or "int *" not in types or any("long" in t or "64" in t for t in types):
        raise ValueError(f"{name} is {signature.decode()}")
    return get_pointer(capsule, signature)

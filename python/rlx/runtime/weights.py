"""Weights as programs keep them, and reading them from files."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.ir.errors import Error
from rlx.ir.packages import required

# The dtypes of the format that NumPy has; there are packed ones of eight, six and four bits besides.
_READABLE = frozenset(
    ["BOOL", "U8", "I8", "U16", "I16", "F16", "BF16", "U32", "I32", "F32", "U64", "I64", "F64", "C64"]
)


def read_safetensors(path: str | os.PathLike[str], names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """Tensors of a safetensors file, as weights.

    Args:
        path: The file.
        names: Which tensors; None is all.

    Raises:
        Error: The file is missing or damaged, a name is not in it, or a tensor holds NaN or has a dtype that NumPy lacks.
    """
    tensors = read_tensors(path, names)
    for key, array in tensors.items():
        check_no_nan(array, f"tensor '{key}' of {os.fspath(path)}")
    return tensors


def read_tensors(
    path: str | os.PathLike[str], names: Sequence[str] | None = None, what: str = ""
) -> dict[str, np.ndarray]:
    """The same, whatever numbers they hold.

    Args:
        path: The file.
        names: Which tensors; None is all.
        what: What kind of file it is, for messages: `"the checkpoint "`.

    Raises:
        Error: As `read_safetensors`, but for NaN.
    """
    safetensors = required("safetensors", "a file of weights")
    required("ml_dtypes", "a file of weights")  # NumPy knows bf16 once it is imported
    name = os.fspath(path)
    if not os.path.isfile(name):
        raise Error(f"{name} is no file" if os.path.exists(name) else f"no such file: {name}")
    try:
        with safetensors.safe_open(name, framework="numpy") as file:
            present = set(file.keys())
            missing = [n for n in names or () if n not in present]
            if missing:
                raise Error(f"{name} has no tensor {', '.join(repr(n) for n in missing[:10])}")
            return {n: _tensor(file, n, name) for n in (present if names is None else names)}
    except (safetensors.SafetensorError, OSError, ValueError, TypeError) as problem:
        raise Error(
            f"cannot read {what}{name}: {problem}",
            hint="expected a safetensors file; one that is truncated has to be fetched again",
        ) from None


def _tensor(file: Any, key: str, path: str) -> np.ndarray:
    stored = file.get_slice(key).get_dtype()
    if stored not in _READABLE:
        hint = "write it as F16, BF16 or F32"
        raise Error(f"tensor '{key}' of {path} is of dtype {stored}, which programs do not have", hint=hint)
    return file.get_tensor(key)


def keep(array: np.ndarray, copy: bool = True) -> np.ndarray:
    """An array, C-contiguous, that nobody else changes: the array itself where it is known to stay as it is.

    Args:
        array: A caller's array.
        copy: False where the caller promises not to change it.
    """
    if copy and not _is_constant(array):
        return np.array(array, order="C")
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def _is_constant(array: np.ndarray) -> bool:
    """Whether no array can write to this one's memory: it belongs to `bytes`, or to a file that is mapped read-only."""
    owner: object = array
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            return False
        owner = owner.base
    return type(owner) is bytes or (type(owner) is mmap.mmap and memoryview(owner).readonly)


def check_no_nan(array: np.ndarray, what: str) -> None:
    """Refuse NaN: every result would be NaN.

    Raises:
        Error: There is one; the message says how many.
    """
    if array.dtype.kind in "fcV" and bool(np.isnan(array).any()):
        raise Error(f"{what} holds {int(np.isnan(array).sum())} NaN values")

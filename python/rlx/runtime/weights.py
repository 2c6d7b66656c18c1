"""Reading weights from files."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from rlx.ir.errors import Error


def read_safetensors(path: str | os.PathLike[str], names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """Tensors of a safetensors file.

    Args:
        path: The file.
        names: Which tensors; None is all.

    Raises:
        Error: The file is missing or damaged, a name is not in it, or a tensor holds NaN.
    """
    from safetensors import SafetensorError, safe_open

    name = os.fspath(path)
    if not os.path.isfile(name):
        raise Error(f"no such file: {name}")
    try:
        with safe_open(name, framework="numpy") as file:
            present = set(file.keys())
            missing = [n for n in names or () if n not in present]
            if missing:
                raise Error(f"{name} has no tensor {', '.join(repr(n) for n in missing[:10])}")
            tensors = {n: file.get_tensor(n) for n in (present if names is None else names)}
    except (SafetensorError, OSError, ValueError, TypeError) as problem:
        raise Error(f"cannot read {name}: {problem}", hint="the file may be truncated; fetch it again") from None
    for key, array in tensors.items():
        check_no_nan(array, f"tensor '{key}' of {name}")
    return tensors


def check_no_nan(array: np.ndarray, what: str) -> None:
    """Refuse NaN: every result would be NaN.

    Raises:
        Error: There is one; the message says how many.
    """
    if array.dtype.kind in "fcV" and bool(np.isnan(array).any()):
        raise Error(f"{what} holds {int(np.isnan(array).sum())} NaN values")

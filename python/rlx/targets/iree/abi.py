"""Types of the arguments and results of a compiled function, as types of NumPy arrays."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np

from rlx.ir.dtype import DTYPES
from rlx.ir.dtype import dtype as rlx_dtype
from rlx.support.errors import ExecutionError

Access = Literal["copy", "borrow", "donate"]


@dataclass(frozen=True)
class TensorType:
    """The dtype and shape of an argument or result. A ``None`` dimension is known only at run time."""

    dtype: np.dtype
    shape: tuple[int | None, ...]

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape, or ``None`` if a dimension is not known."""
        known = tuple(dim for dim in self.shape if dim is not None)
        return known if len(known) == len(self.shape) else None

    @property
    def nbytes(self) -> int | None:
        """The size in bytes, or ``None`` if a dimension is not known."""
        shape = self.static_shape
        return None if shape is None else prod(shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join('?' if dim is None else str(dim) for dim in self.shape)}]"


@dataclass(frozen=True)
class ArgumentType(TensorType):
    """The type of an argument, and the program's access to the caller's memory.

    Attributes:
        access: ``"copy"``: the program gets a copy. ``"borrow"``: the program only reads the argument, so it may
            use the caller's memory. In the first calls it gets copies, to check that it does not write to them.
            ``"donate"``: the caller no longer uses the array, and the program may overwrite and return it. The
            caller's memory is used only on a local device, and only if it is large, writable and aligned to
            16 bytes, as NumPy's arrays are. Otherwise the program gets a copy.
    """

    access: Access = "copy"


_ENTRY = re.compile(r"%(?P<kind>input|output)\d+: (?:tensor<(?P<tensor>(?:[^<>]|<[^<>]*>)*)>|(?P<other>[^,)]+))")
_TENSOR = re.compile(r"(?P<dims>(?:(?:\d+|\?)x)*)(?P<element>.+)")
# IREE has no unsigned integers, and programs store storage dtypes as bytes.
_DTYPES = {kind.mlir: kind for kind in DTYPES if kind.kind != "unsigned" and not kind.storage}


def compiled_types(declaration: str) -> tuple[list[TensorType], list[TensorType]] | None:
    """Return argument and result types in IREE's ``iree.abi.declaration``, or ``None`` if NumPy lacks one of them.

    Raises:
        ExecutionError: An argument or result is not a tensor.
    """
    if not declaration:
        return None
    types: dict[str, list[TensorType]] = {"input": [], "output": []}
    for entry in _ENTRY.finditer(declaration):
        if entry["tensor"] is None:
            raise ExecutionError(f"only tensors can be passed, not {entry['other']}: {declaration}")
        tensor = _TENSOR.fullmatch(entry["tensor"])
        dtype = _DTYPES.get(tensor["element"]) if tensor else None
        if tensor is None or dtype is None:
            return None
        dims = tensor["dims"].split("x")[:-1]
        shape = tuple(None if dim == "?" else int(dim) for dim in dims)
        types[entry["kind"]].append(TensorType(dtype.numpy, shape))
    return types["input"], types["output"]


def agreed_types(
    function: str, kind: str, declared: Sequence[TensorType] | None, compiled: Sequence[TensorType] | None
) -> Sequence[TensorType]:
    """Return the declared types after comparing layouts with the compiled types; the compiled types if none are declared.

    Raises:
        ExecutionError: The types differ, or both are missing.
    """
    if declared is None:
        if compiled is None:
            raise ExecutionError(f"the module does not say what @{function}'s {kind} types are: give them")
        return compiled
    if compiled is None:
        return declared
    is_same = len(declared) == len(compiled) and all(
        a.shape == b.shape and _layout(a.dtype) == _layout(b.dtype) for a, b in zip(declared, compiled, strict=True)
    )
    if not is_same:
        has, expected = (", ".join(map(str, types)) or "none" for types in (compiled, declared))
        raise ExecutionError(f"@{function} was compiled with the {kind} types {has}, not {expected}")
    return declared


def element_type(dtype: np.dtype) -> int:
    """Return IREE's number for a dtype.

    Raises:
        ExecutionError: IREE lacks the dtype.
    """
    from iree.runtime.dtypes import map_dtype_to_hal_element_type

    number: Any = map_dtype_to_hal_element_type(np.dtype(np.int8) if _is_storage(dtype) else dtype)
    if number is None:
        raise ExecutionError(f"IREE has no element type for {dtype}")
    return int(number)


def _layout(dtype: np.dtype) -> tuple[str, int]:
    """Return the properties of a dtype that IREE distinguishes. Unsigned integers and storage dtypes count as signed."""
    kind = dtype.kind if dtype.kind != "V" else dtype.name
    return "i" if kind == "u" or _is_storage(dtype) else kind, dtype.itemsize


def _is_storage(dtype: np.dtype) -> bool:
    """Whether programs store a dtype as bytes."""
    return rlx_dtype(dtype).storage

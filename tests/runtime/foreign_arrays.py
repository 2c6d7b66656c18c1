"""Arrays as users pass them, valid and invalid: real ones, and stand-ins for libraries that may not be installed."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


class Arrayed:
    """An object with `__array__`, like a pandas column."""

    def __init__(self, array: Any):
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.array


class ArrayedBefore2:
    """`__array__` from before NumPy 2, without `copy`."""

    def __init__(self, array: Any):
        self.array = array

    def __array__(self, dtype: Any = None) -> Any:
        return self.array


class Bare:
    """`__array__` without arguments."""

    def __init__(self, array: Any):
        self.array = array

    def __array__(self) -> Any:
        return self.array


class Raising:
    """`__array__` raises, as for a tensor on a GPU or one that requires a gradient."""

    def __init__(self, problem: BaseException):
        self.problem = problem

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise self.problem


class Endless:
    """`__array__` calls itself by way of NumPy."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self)


class Unlooked:
    """Even the access to `__array__` raises."""

    @property
    def __array__(self) -> Any:
        raise RuntimeError("not now")


class Lent:
    """An object with `__dlpack__` only."""

    def __init__(self, array: np.ndarray):
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class LentBefore2023(Lent):
    """`__dlpack__` of the first protocol, without `max_version`."""

    def __dlpack__(self, stream: Any = None) -> Any:  # type: ignore[override]
        return self.array.__dlpack__()


class LentByNobody(Lent):
    """`__dlpack__` raises, as for a tensor that requires a gradient."""

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")


class LentElsewhere(Lent):
    """A tensor on another device."""

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("cannot export to the CPU")

    def __dlpack_device__(self) -> Any:
        return 2, 0


class LentNonsense(Lent):
    """`__dlpack__` returns no capsule."""

    def __dlpack__(self, **options: Any) -> Any:
        return 7


class Garbled:
    """An object whose exception cannot be printed."""

    class Problem(Exception):
        def __str__(self) -> str:
            raise ValueError("no text")

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise Garbled.Problem


class Measured(np.ndarray):
    """A subclass with redefined operators."""

    def __add__(self, other: Any) -> Any:
        return np.zeros(self.shape, self.dtype)


@dataclass(frozen=True)
class Kind:
    """A kind of object.

    Attributes:
        make: Makes such an object from a plain array of the same numbers.
        right: Whether it is accepted.
        message: The message if it is refused.
    """

    make: Callable[[np.ndarray], Any]
    right: bool = True
    message: str = ""


def unaligned(array: np.ndarray) -> np.ndarray:
    """Return the same array at an odd address."""
    block = np.zeros(array.nbytes + 1, np.uint8)
    view = block[1:].view(np.uint8)[: array.nbytes]
    ctypes.memmove(view.ctypes.data, np.ascontiguousarray(array).ctypes.data, array.nbytes)
    return np.ndarray(array.shape, array.dtype, block, offset=1)


def mapped(array: np.ndarray) -> np.ndarray:
    """Return the same array in a file."""
    with tempfile.TemporaryFile() as file:
        found = np.memmap(file, array.dtype, "w+", shape=array.shape)
    found[...] = array
    return found


def read_only(array: np.ndarray) -> np.ndarray:
    """Return the same array, read-only."""
    copy = array.copy()
    copy.flags.writeable = False
    return copy


def embedded(array: np.ndarray) -> np.ndarray:
    """Return the same array as a strided part of a larger one, with an offset."""
    block = np.full((array.shape[0] * 2 + 1, array.shape[1] * 3 + 2), 9, array.dtype)
    view = block[1::2, 2::3]
    view[...] = array
    return view


def _refused(make: Callable[[np.ndarray], Any], message: str = "") -> Kind:
    return Kind(make, False, message)


# The rows of the given arrays are equal, so that one row can represent all.
KINDS: dict[str, Kind] = {
    "array": Kind(lambda a: a),
    "Fortran order": Kind(np.asfortranarray),
    "gaps": Kind(embedded),
    "reversed": Kind(lambda a: np.ascontiguousarray(a[::-1, ::-1])[::-1, ::-1]),
    "row repeated by a stride of 0": Kind(lambda a: np.broadcast_to(a[0], a.shape)),
    "read-only": Kind(read_only),
    "unaligned": Kind(unaligned),
    "file": Kind(mapped),
    "matrix": Kind(lambda a: a.view(np.matrix)),
    "subclass": Kind(lambda a: a.view(Measured)),
    "with metadata": Kind(lambda a: a.astype(np.dtype(a.dtype, metadata={"unit": "m"}))),
    "__array__": Kind(Arrayed),
    "__array__ without copy": Kind(ArrayedBefore2),
    "__array__ without arguments": Kind(Bare),
    "__array__ of a matrix": Kind(lambda a: Arrayed(a.view(np.matrix))),
    "__dlpack__": Kind(Lent),
    "__dlpack__ with strides and an offset": Kind(lambda a: Lent(embedded(a))),
    "__dlpack__ of something read-only": Kind(lambda a: Lent(read_only(a))),
    "__dlpack__ without max_version": Kind(LentBefore2023),
    "__array__ raises": _refused(lambda a: Raising(RuntimeError("use tensor.detach().numpy()")), "tensor.detach"),
    "__array__ raises a long text": _refused(lambda a: Raising(ValueError("x\n" * 999)), "ValueError: x"),
    "__array__ raises what cannot be printed": _refused(lambda a: Garbled(), "Problem"),
    "__array__ for ever": _refused(lambda a: Endless(), "RecursionError"),
    "__array__ not to be asked for": _refused(lambda a: Unlooked(), "not now"),
    "__array__ gives a list": _refused(lambda a: Arrayed(a.tolist()), "read as an array"),
    "__array__ gives None": _refused(lambda a: Arrayed(None), "read as an array"),
    "__array__ gives a masked array": _refused(lambda a: Arrayed(np.ma.masked_greater(a, 1)), "masked"),
    "__dlpack__ raises": _refused(LentByNobody, "require gradient"),
    "__dlpack__ elsewhere": _refused(LentElsewhere),
    "__dlpack__ gives a number": _refused(LentNonsense),
    "masked": _refused(lambda a: np.ma.masked_greater(a, 1), "masked"),
    "masked, with nothing masked": _refused(np.ma.masked_array, "masked"),
    "objects": _refused(lambda a: a.astype(object), "object"),
    "structure": _refused(lambda a: np.zeros(a.shape, [("a", "f4"), ("b", "i4")])),
    "record": _refused(lambda a: np.rec.array(np.zeros(a.shape, [("a", "f4")]))),
    "strings": _refused(lambda a: a.astype(str), "<U"),
    "bytes strings": _refused(lambda a: a.astype("S8"), "S8"),
    "dates": _refused(lambda a: np.zeros(a.shape, "datetime64[s]"), "datetime64"),
    "spans of time": _refused(lambda a: np.zeros(a.shape, "timedelta64[s]"), "timedelta64"),
    "foreign byte order": _refused(lambda a: a.astype(a.dtype.newbyteorder(">")), "byte order"),
    "long double": _refused(lambda a: a.astype(np.clongdouble if a.dtype.kind == "c" else np.longdouble), ""),
    "wider": _refused(lambda a: a.astype(np.complex128 if a.dtype.kind == "c" else np.float64), "complex128|float64"),
    "void": _refused(lambda a: a.view(f"V{a.itemsize}")),
    "class": _refused(lambda a: np.ndarray, "class"),
    "class with __array__": _refused(lambda a: Arrayed, "class"),
    "text": _refused(lambda a: "text"),
    "bytes": _refused(lambda a: a.tobytes()),
    "memory": _refused(lambda a: memoryview(a.tobytes())),
    "None": _refused(lambda a: None),
    "mapping": _refused(lambda a: {"a": a}),
    "set": _refused(lambda a: {1, 2}),
    "generator": _refused(lambda a: (row for row in a)),
    "ragged list": _refused(lambda a: [[1.0, 2.0], [3.0]]),
    "list of texts": _refused(lambda a: [["a"], ["b"]]),
    "list of itself": _refused(lambda a: _of_itself()),
    "list of masked arrays": _refused(lambda a: [np.ma.masked_greater(row, 1) for row in a]),
    "list": Kind(lambda a: a.tolist()),
    "list of arrays": Kind(list),
}


def _of_itself() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found

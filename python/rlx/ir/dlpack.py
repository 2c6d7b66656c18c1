"""Exchange of arrays through DLPack, including the dtypes that NumPy's `from_dlpack` and `__dlpack__` reject: bf16, f8."""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any

import numpy as np

from rlx.ir.dtype import DTYPES, DType, dtype
from rlx.support.errors import Error
from rlx.support.short import short_repr

_VERSION = (1, 1)
_READ_ONLY = 1  # flag of a versioned tensor that must not be written to
_MOST_AXES = 64  # maximum axes of a NumPy array
_LONGEST = (1 << 63) - 1
# Devices whose memory the CPU can read: CPU, pinned memory of CUDA and ROCm, and managed memory.
_READABLE = (1, 3, 11, 13)
_DEVICES = {2: "CUDA", 4: "OpenCL", 7: "Vulkan", 8: "Metal", 10: "ROCm", 14: "oneAPI", 15: "WebGPU", 16: "Hexagon"}
_FAMILIES = {"signed": 0, "unsigned": 1, "float": 2, "complex": 5, "bool": 6}  # for floats, the IEEE 754 formats
# Names of codes for messages, including codes that no dtype has.
_CODE_NAMES = {0: "int", 1: "uint", 2: "float", 3: "opaque handle", 4: "bfloat", 5: "complex", 6: "bool"} | {
    15: "f6e2m3fn",
    16: "f6e3m2fn",
}


def code_of(kind: DType) -> tuple[int, int]:
    """Return DLPack's code and bits of a dtype."""
    return _FAMILIES[kind.kind] if kind.dlpack is None else kind.dlpack, kind.bits


_DTYPE_OF_CODE = {code_of(kind): kind for kind in DTYPES}
assert len(_DTYPE_OF_CODE) == len(DTYPES), "a float of a format of its own lacks DLPack's code"


class _DLDevice(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("id", ctypes.c_int32))


class _DLDataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _DLDevice),
        ("ndim", ctypes.c_int32),
        ("element", _DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    )


_STRUCTURES: dict[bytes, type[_Managed] | type[_Versioned]] = {b"dltensor_versioned": _Versioned, b"dltensor": _Managed}
_CONSUMED = {name: b"used_" + name for name in _STRUCTURES}


def _python(name: str, result: Any, *arguments: Any) -> Any:
    """Return a function of Python's C API with its own types. Types set on functions of `ctypes.pythonapi` are shared."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_is_valid = _python("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_pointer = _python("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_set_name = _python("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

for _name in _CONSUMED.values():  # a capsule refers to its name, and may outlive this module
    _python("Py_IncRef", None, ctypes.py_object)(_name)


class _BorrowedMemory:
    """Memory of another library, released when no array uses it any more."""

    def __init__(self, address: int, deleter: int | None, interface: dict[str, Any]):
        self.__array_interface__ = interface
        self._address = address
        self._delete = _deleter(deleter) if deleter else None

    def __del__(self) -> None:
        delete, self._delete = self._delete, None
        if delete is not None:
            delete(self._address)


def read(value: Any, what: str, *, copy: bool | None = None) -> np.ndarray:
    """Return an array over the memory of an object with `__dlpack__`, without a copy.

    Args:
        value: The object. A tensor lent without a protocol version is read-only, as in NumPy.
        what: The purpose of the object. Messages start with this.
        copy: The `copy` argument of `__dlpack__`: None lets the object copy where necessary; with False it raises a
            `BufferError` instead.

    Raises:
        Error: The CPU cannot read the memory, RLX lacks the dtype, or the tensor is not valid.
    """
    try:
        capsule = value.__dlpack__(max_version=_VERSION, **({} if copy is None else {"copy": copy}))
    except TypeError:  # a library without `max_version`, which the array API has since 2023
        capsule = value.__dlpack__()
    name = next((n for n in _STRUCTURES if _is_valid(capsule, n)), None)
    if name is None:
        raise Error(f"{what}: __dlpack__ must return a capsule that nobody has used, got {short_repr(capsule)}")
    address = _pointer(capsule, name)
    managed = _STRUCTURES[name].from_address(address)
    is_versioned = isinstance(managed, _Versioned)
    if is_versioned and managed.major != _VERSION[0]:
        raise Error(f"{what} is of version {managed.major}.{managed.minor} of DLPack; expected version {_VERSION[0]}")
    kind, interface = _described(managed.tensor, what)
    interface["data"] = (interface["data"], not (is_versioned and not managed.flags & _READ_ONLY))
    # If an error above is raised, the capsule still owns the tensor and releases it. From here on, this code owns it.
    _set_name(capsule, _CONSUMED[name])
    memory = _BorrowedMemory(address, managed.deleter, interface)
    source: Any = memory if prod(interface["shape"]) else np.empty(interface["shape"], interface["typestr"])
    array: np.ndarray = np.asarray(source)  # the address may be null if there are no elements
    return array.view(kind.numpy)


def _described(tensor: _DLTensor, what: str) -> tuple[DType, dict[str, Any]]:
    """Return the dtype of a tensor, and its array interface, in which dtypes that NumPy lacks are unsigned integers.

    Raises:
        Error: As for `read`.
    """
    kind = _kind_of(tensor.element, what)
    if tensor.device.type not in _READABLE:
        device = _DEVICES.get(tensor.device.type, f"of DLPack's type {tensor.device.type}")
        raise Error(f"{what} is in the memory of a device, {device}", hint="copy it to the CPU first")
    if not 0 <= tensor.ndim <= _MOST_AXES or (tensor.ndim and not tensor.shape):
        raise Error(f"{what} has {tensor.ndim} axes and {'a' if tensor.shape else 'no'} shape in its DLPack tensor")
    shape = tuple(tensor.shape[: tensor.ndim]) if tensor.ndim else ()
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.ndim and tensor.strides else _contiguous(shape)
    size = prod(shape) * kind.itemsize
    reach = [abs(stride) * max(n - 1, 0) for n, stride in zip(shape, strides, strict=True)]
    if any(n < 0 for n in shape) or size > _LONGEST or (size and sum(reach) * kind.itemsize > _LONGEST):
        raise Error(f"{what} has impossible sizes or strides in its DLPack tensor: {list(shape)}, {list(strides)}")
    if size and not tensor.data:
        raise Error(f"{what} has no memory in its DLPack tensor")
    typestr = kind.numpy.str if kind.is_numpys_own else np.dtype(f"u{kind.itemsize}").str
    address = (tensor.data or 0) + tensor.byte_offset
    steps = tuple(stride * kind.itemsize if n > 1 else 0 for n, stride in zip(shape, strides, strict=True))
    return kind, {"shape": shape, "typestr": typestr, "strides": steps, "data": address, "version": 3}


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _kind_of(element: _DLDataType, what: str) -> DType:
    name = f"{_CODE_NAMES.get(element.code, f'code {element.code}')} of {element.bits} bits"
    kind = _DTYPE_OF_CODE.get((element.code, element.bits))
    if kind is None:
        raise Error(f"{what} has elements of DLPack that RLX lacks: {name}", hint="cast it to a dtype of RLX first")
    if kind.packed:
        raise Error(
            f"{what} is {kind.name}, of which DLPack has several in a byte",
            hint=f"pass an array of NumPy with one in a byte, of ml_dtypes.{kind.numpy_name}",
        )
    if element.lanes != 1:
        raise Error(f"{what} has vectors of {element.lanes} elements ({name})", hint="make them an axis")
    return kind


def lent(array: np.ndarray, **options: Any) -> Any:
    """Return the DLPack capsule of an array, also for bf16 and f8, without a copy.

    Args:
        array: The array.
        options: The options of `__dlpack__`.

    Raises:
        BufferError: The dtype is packed in DLPack, or NumPy does not support the options.
    """
    kind = dtype(array.dtype)
    if kind.packed:
        raise BufferError(f"DLPack has several elements of {kind.name} in a byte, and an array has one")
    if kind.is_numpys_own:
        return array.__dlpack__(**options)
    capsule: Any = array.view(f"u{kind.itemsize}").__dlpack__(**options)
    name = next(n for n in _STRUCTURES if _is_valid(capsule, n))
    # NumPy has allocated the structure for this capsule alone, and frees it for any dtype in it.
    element = _STRUCTURES[name].from_address(_pointer(capsule, name)).tensor.element
    element.code, element.bits = code_of(kind)
    return capsule

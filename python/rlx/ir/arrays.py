"""Conversion of users' arrays (NumPy, PyTorch, JAX, anything with `__array__` or `__dlpack__`) to NumPy arrays.

Only this module reads objects of other libraries. Every problem becomes an `rlx.Error` that names the argument. Nothing
is cast. An array that holds more than numbers (a mask, a time unit) is an error, so that the information is never
dropped silently.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from rlx.ir import dlpack
from rlx.ir.dtype import BY_NUMPY_NAME
from rlx.support.errors import Error, UnsupportedError
from rlx.support.guards import is_array, is_sequence

_WRAP = "wrap it in numpy.asarray with the dtype that you mean"
_WORTH_SHOWING = 200


def as_array(value: object, what: str) -> np.ndarray:
    """Return an object with `__array__` or `__dlpack__` as a plain array, without a copy where possible.

    A PyTorch tensor on the CPU is detached, and pending conjugation and negation are applied. bf16 and f8 are
    supported.

    Args:
        value: The array.
        what: The purpose of the array, such as `input 'x'`. Messages start with this.

    Raises:
        Error: The value is not an array, cannot be read on the CPU, or is a masked array.
    """
    if type(value) is np.ndarray:
        return value
    try:
        array = _read(value, what)
        return array if type(array) is np.ndarray else _plain(array, what)
    except Error as problem:
        if problem.message.startswith(what):
            raise
        raise Error(f"{what}: {problem.message}", location=problem.location, hint=problem.hint) from None
    except Exception as problem:  # the object's code may raise anything
        raise Error(f"{what}: the {_kind(value)} cannot be read as an array: {_in_one_line(problem)}") from problem


def as_numbers(value: object, what: str) -> np.ndarray:
    """Return an array as `as_array` does. Python numbers and nested lists get the dtype that NumPy infers.

    Raises:
        Error: As for `as_array`, or the lists are ragged or contain something other than numbers and arrays.
    """
    if not is_written(value):
        return as_array(value, what)
    try:
        numbers = _without_tensors(value, what)
        array = np.array(numbers)
        # NumPy makes floats of integers that none of its dtypes can hold.
        if array.dtype.kind == "f" and is_sequence(numbers):
            exact = np.array(numbers, object)
            array = exact if all(isinstance(entry, int) for entry in exact.flat) and exact.size else array
        return array
    except Error:
        raise
    except Exception as problem:  # ragged lists, or an exception raised by the entries' code
        raise Error(f"{what}: the {_kind(value)} is no array of numbers: {_in_one_line(problem)}") from problem


def is_written(value: object) -> bool:
    """Whether the value is a Python number or a list, which has no dtype yet."""
    return (_is_number(value) or is_sequence(value)) and not isinstance(value, np.generic)


def _is_number(value: object) -> bool:
    return isinstance(value, (bool, int, float, complex, np.generic))


def _read(value: Any, what: str) -> np.ndarray:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _from_torch(value, torch, what)
    if is_array(value):
        return value
    if is_written(value):
        raise Error(f"{what} must be an array, got {_kind(value)}", hint=_WRAP)
    if isinstance(value, type):
        raise Error(f"{what} must be an array, got the class {value.__qualname__}")
    if hasattr(value, "__array__"):
        return np.asanyarray(value)  # keeps the array's class, so that a masked array is recognised
    if hasattr(value, "__dlpack__"):
        return dlpack.read(value, what)
    raise Error(f"{what} must be an array (or have __array__ or __dlpack__), got {_kind(value)}")


def _plain(array: object, what: str) -> np.ndarray:
    """Return an array of a subclass of `np.ndarray` as a plain array, because a subclass may redefine operators."""
    if not is_array(array):
        raise Error(f"{what} must be an array, got {_kind(array)}")
    if isinstance(array, np.ma.MaskedArray):
        raise Error(
            f"{what} must be a plain array, got a masked one: what is masked would be computed with",
            hint="give array.filled(value), and the mask as an input of its own if the graph needs it",
        )
    return np.asarray(array)


def _from_torch(tensor: Any, torch: Any, what: str) -> np.ndarray:
    """Return the array of a PyTorch tensor.

    PyTorch itself does not convert tensors that need gradients, nor lazily conjugated or negated views.
    """
    device = tensor.device.type
    if device == "meta":
        raise Error(f"{what} is a tensor on the device meta, which has no values")
    if device != "cpu":
        raise Error(f"{what} is a tensor on the device {tensor.device}", hint="copy it to the CPU: tensor.cpu()")
    if tensor.layout is not torch.strided:
        raise Error(f"{what} is a tensor of layout {tensor.layout}", hint="make it dense: tensor.to_dense()")
    if tensor.is_quantized:
        hint = "give its numbers, tensor.dequantize(), or its integers, tensor.int_repr()"
        raise Error(f"{what} is a quantized tensor, {tensor.dtype}", hint=hint)
    plain = tensor.detach().resolve_conj().resolve_neg()
    return elements_of_torch(plain, torch, what)


# Hints for PyTorch dtypes, by prefix of the name. The first match applies.
_TORCH_HINTS = (
    ("complex32", "cast it: tensor.to(torch.complex64)"),
    (
        "float4",
        "tensor.view(torch.uint8) has two elements in a byte: unpack them into an array of ml_dtypes.float4_e2m1fn",
    ),
    ("q", "give its numbers, tensor.dequantize(), or its integers, tensor.int_repr()"),
    ("", "give the bytes, tensor.view(torch.uint8), or the numbers as an array of ml_dtypes or of a wider dtype"),
)


def torch_hint(name: str) -> str:
    """Return the hint for a PyTorch dtype that RLX lacks."""
    return next(hint for start, hint in _TORCH_HINTS if name.startswith(start))


def elements_of_torch(tensor: Any, torch: Any, what: str) -> np.ndarray:
    """Return the elements of a dense PyTorch tensor on the CPU, without a copy. PyTorch's `numpy()` lacks bf16 and f8.

    Args:
        tensor: The tensor, without a gradient, pending conjugation or negation.
        torch: The package.
        what: The name of the tensor in messages.

    Raises:
        UnsupportedError: RLX lacks the dtype, or PyTorch does not define how it stores the elements, as for
            `torch.int4`.
    """
    name = str(tensor.dtype).removeprefix("torch.")
    kind = BY_NUMPY_NAME.get(name)
    if kind is None or kind.packed:
        raise UnsupportedError(
            f"{what} is a tensor of torch.{name}, whose elements RLX cannot read", hint=torch_hint(name)
        )
    if kind.is_numpys_own:
        return tensor.numpy()
    return tensor.view({1: torch.uint8, 2: torch.int16}[kind.itemsize]).numpy().view(kind.numpy)


def _without_tensors(value: object, what: str) -> Any:
    """Return nested lists with every array replaced by the result of `as_array`."""
    if is_sequence(value):
        return [_without_tensors(entry, what) for entry in value]
    return value if _is_number(value) else as_array(value, what)


def _kind(value: object) -> str:
    name, module = type(value).__qualname__, getattr(type(value), "__module__", None)
    home = module.partition(".")[0] if isinstance(module, str) else "builtins"
    return name if home in ("builtins", "__main__") else f"{home}.{name}"


def _in_one_line(problem: Exception) -> str:
    """Return the class and the message of an exception on one line."""
    try:
        lines = str(problem).strip().splitlines()
    except Exception:
        lines = []
    text = lines[0] if lines else ""
    return f"{type(problem).__name__}: {text[:_WORTH_SHOWING]}" if text else type(problem).__name__

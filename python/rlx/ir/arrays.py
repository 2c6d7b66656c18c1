"""Arrays as users hand them over: NumPy's, PyTorch's, JAX's, anything with `__array__` or `__dlpack__`, made NumPy's.

This is the one place where foreign objects are read. Whatever is wrong with one becomes an `rlx.Error` that names what it
was given for; nothing is cast, and nothing that an array says beside its numbers (a mask, a unit of time) is dropped unseen.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from rlx.ir.errors import Error
from rlx.ir.guards import is_array, is_sequence
from rlx.ir.packages import required

_WRAP = "wrap it in numpy.asarray with the dtype that you mean"
_WORTH_SHOWING = 200


def as_array(value: object, what: str) -> np.ndarray:
    """Anything with `__array__` or `__dlpack__` as a plain array, without a copy where that can be.

    A tensor of PyTorch's on the CPU is taken as `.detach()` gives it, conjugated and negated where it says so, bf16 too.

    Args:
        value: The array.
        what: What it is given for, such as `input 'x'`: how a message starts.

    Raises:
        Error: The value is none of these, cannot be read on the CPU, or is a masked array.
    """
    if type(value) is np.ndarray:
        return value
    try:
        found = _read(value, what)
        return found if type(found) is np.ndarray else _plain(found, what)
    except Error as problem:
        if problem.message.startswith(what):
            raise
        raise Error(f"{what}: {problem.message}", location=problem.location, hint=problem.hint) from None
    except Exception as problem:  # whatever the object's own code raises
        raise Error(f"{what}: the {_kind(value)} cannot be read as an array: {_in_one_line(problem)}") from problem


def as_numbers(value: object, what: str) -> np.ndarray:
    """The same, of Python's numbers and nested lists of them as well, which get NumPy's dtype for them.

    Raises:
        Error: As `as_array`, or the lists are ragged or hold other things than numbers and arrays.
    """
    if not is_written(value):
        return as_array(value, what)
    try:
        return np.array(_without_tensors(value, what))
    except Error:
        raise
    except Exception as problem:  # ragged lists, and what the entries' own code raises
        raise Error(f"{what}: the {_kind(value)} is no array of numbers: {_in_one_line(problem)}") from problem


def is_written(value: object) -> bool:
    """Whether these are Python's own numbers, or lists: what has no dtype yet."""
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
        return np.asanyarray(value)  # keeps what kind of array it gives, a masked one for instance
    if hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    raise Error(f"{what} must be an array (or have __array__ or __dlpack__), got {_kind(value)}")


def _plain(array: object, what: str) -> np.ndarray:
    """An array of a subclass as one of the class itself: its operators have other meanings."""
    if not is_array(array):
        raise Error(f"{what} must be an array, got {_kind(array)}")
    if isinstance(array, np.ma.MaskedArray):
        raise Error(
            f"{what} must be a plain array, got a masked one: what is masked would be computed with",
            hint="give array.filled(value), and the mask as an input of its own if the graph needs it",
        )
    return np.asarray(array)


def _from_torch(tensor: Any, torch: Any, what: str) -> np.ndarray:
    """A tensor of PyTorch's: it refuses gradients and views that are not written out yet, and NumPy knows no bf16 of its."""
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
    if plain.dtype is torch.bfloat16:
        return plain.view(torch.int16).numpy().view(required("ml_dtypes", "bf16").bfloat16)
    return plain.numpy()


def _without_tensors(value: object, what: str) -> Any:
    """Nested lists as they are, but for arrays in them, which are read as `as_array` reads them."""
    if is_sequence(value):
        return [_without_tensors(entry, what) for entry in value]
    return value if _is_number(value) else as_array(value, what)


def _kind(value: object) -> str:
    name, module = type(value).__qualname__, getattr(type(value), "__module__", None)
    home = module.partition(".")[0] if isinstance(module, str) else "builtins"
    return name if home in ("builtins", "__main__") else f"{home}.{name}"


def _in_one_line(problem: Exception) -> str:
    """What an exception says, in one line."""
    try:
        lines = str(problem).strip().splitlines()
    except Exception:
        lines = []
    text = lines[0] if lines else ""
    return f"{type(problem).__name__}: {text[:_WORTH_SHOWING]}" if text else type(problem).__name__

"""Arrays on the command line: `x=@x.npy`, `x=1x4xf32=0` or `x=1x4xf32=1,2,3,4`."""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Iterable
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.cli.pairs import split
from rlx.support.errors import Error

if TYPE_CHECKING:
    from rlx.ir.dtype import DType
    from rlx.ir.interface import Argument

_TYPE = re.compile(r"(?P<dims>(?:\d+x)*)(?P<dtype>[a-z][a-z0-9_]*)")
_FORMS = "NAME=@FILE.npy, NAME=1x4xf32=0 (all elements) or NAME=1x4xf32=1,2,3,4"


def named_arrays(texts: Iterable[str], option: str, arguments: Collection[Argument]) -> dict[str, np.ndarray]:
    """Return arrays by name, from several uses of one option.

    Args:
        texts: The values of the option.
        option: Its name, for messages.
        arguments: The program's arguments. Their names may contain `=`. A file without a dtype name gets the argument's
            dtype.

    Raises:
        Error: A text does not have one of these forms, a name is given twice, or a file cannot be read.
    """
    from rlx.weights.npy import read_file

    arrays: dict[str, np.ndarray] = {}
    kinds = {a.name: a.shape.dtype for a in arguments}
    for text in texts:
        name, equals, value = split(text, option, kinds, _is_array)
        if not name or not equals:
            raise Error(f"{option}={text}: expected {_FORMS}")
        if name in arrays:
            raise Error(f"{option}: '{name}' is given twice")
        if value.startswith("@"):
            weight = read_file(value[1:])
            arrays[name] = (weight.of_dtype(kinds[name]) if name in kinds else weight).numpy()
        else:
            arrays[name] = _parsed_array(value, f"{option}={text}")
    return arrays


def save_array(path: str, array: np.ndarray) -> None:
    """Write an array as a `.npy` file that NumPy can read, completely or not at all. ml_dtypes are stored untyped.

    Raises:
        Error: The file cannot be written.
    """
    from rlx.ir.dtype import dtype
    from rlx.support.files import write_atomically

    buffer = io.BytesIO()
    # For float8_e5m2, NumPy writes a name, '<f1', that it cannot read.
    np.save(buffer, array if dtype(array.dtype).is_numpys_own else array.view(f"V{array.itemsize}"), allow_pickle=False)
    write_atomically(path, buffer.getvalue())


def flag_for(argument: Argument) -> str:
    """Return a flag that gives an argument a value, for copying from a message."""
    option = "--param" if argument.kind == "param" else "--input"
    dims = "".join(f"{d}x" for d in argument.shape.dims) if argument.shape.is_static else None
    if dims is None:
        return f"{option}={argument.name}=@FILE.npy"
    return f"{option}={argument.name}={dims}{argument.shape.dtype.name}=0"


def _is_array(value: str) -> bool:
    from rlx.ir.dtype import DTYPES

    match = _TYPE.fullmatch(value.partition("=")[0])
    return value.startswith("@") or (
        match is not None and "=" in value and match["dtype"] in {d.name for d in DTYPES} | {"i1"}
    )


def _parsed_array(value: str, flag: str) -> np.ndarray:
    from rlx.ir.dtype import dtype
    from rlx.ir.fitting import as_array_of

    type_, equals, elements = value.partition("=")
    match = _TYPE.fullmatch(type_)
    if match is None or not equals:
        raise Error(f"{flag}: expected {_FORMS}")
    kind = dtype("bool" if match["dtype"] == "i1" else match["dtype"])
    try:
        shape = tuple(int(size) for size in match["dims"].split("x")[:-1])
    except ValueError:  # Python does not parse numbers of thousands of digits
        raise Error(f"{flag}: expected {_FORMS}") from None
    words = [word.strip() for word in elements.split(",")] if elements.strip() else []
    if len(words) not in (1, prod(shape)):
        raise Error(f"{flag}: expected 1 or {prod(shape)} elements, got {len(words)}")
    values = [_element(word, kind, flag) for word in words]
    try:
        array = as_array_of(values, kind)
        return np.full(shape, array[0]) if len(words) == 1 else array.reshape(shape)
    except Error as problem:
        raise Error(f"{flag}: {problem.message}", hint=problem.hint) from None
    except (ValueError, MemoryError) as problem:  # larger than NumPy's limit or the memory
        raise Error(f"{flag}: cannot make an array of {type_}: {problem}") from None


def _element(word: str, kind: DType, flag: str) -> Any:
    try:
        if kind.is_bool:
            return {"true": True, "1": True, "false": False, "0": False}[word.lower()]
        if kind.is_complex:
            return complex(word.replace("i", "j"))
        if kind.is_float:
            return float(word)
        number = int(word, 0)
    except (KeyError, ValueError):
        raise Error(f"{flag}: {word!r:.60} is not an element of {kind.name}") from None
    if not kind.min <= number <= kind.max:
        raise Error(f"{flag}: {word:.40} is out of range for {kind.name} ({kind.min} to {kind.max})")
    return number

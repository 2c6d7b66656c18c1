"""Writing of GGUF files, version 3. See `gguf.py` for the format."""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from rlx.ir.arrays import as_array
from rlx.ir.dtype import dtype
from rlx.support.errors import Error
from rlx.support.files import file_name, replacing
from rlx.support.guards import is_array
from rlx.support.short import short_repr
from rlx.weights.byte_order import can_swap, swapping
from rlx.weights.encoding import PackedBlocks
from rlx.weights.gguf import (
    ALIGNMENT_KEY,
    ARRAY,
    BOOL,
    DEFAULT_ALIGNMENT,
    LARGEST_RANK,
    MAGIC,
    NUMBER_CODES,
    PLAIN_DTYPES,
    SPLIT_COUNT,
    SPLIT_NUMBER,
    SPLIT_TENSORS,
    STRING,
    ByteOrder,
    is_alignment,
)
from rlx.weights.weight import Weight

_VERSION = 3
_LARGEST_SPLIT = 65_535  # the metadata has u16
_PLAIN_TYPES = {name: number for number, name in PLAIN_DTYPES.items()}
_NUMBER_TYPES = {np.dtype(code): number for number, code in NUMBER_CODES.items()}
_FLOAT32 = _NUMBER_TYPES[np.dtype("f")]
_INTEGER_TYPES = tuple(_NUMBER_TYPES[np.dtype(code)] for code in "IiQq")


@dataclass(frozen=True)
class _Stored:
    """A tensor to write: its type, its shape in NumPy's order, its size, and a function that returns its bytes."""

    name: str
    ggml_type: int
    shape: tuple[int, ...]
    nbytes: int
    data: Callable[[], np.ndarray]


def save_gguf(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Any],
    metadata: Mapping[str, Any],
    *,
    alignment: int = DEFAULT_ALIGNMENT,
    byteorder: str = "little",
    split: int | None = None,
) -> list[str]:
    """Write tensors and metadata to a GGUF file, or to several. They replace files of the same names once all are complete.

    Args:
        path: The file. Several parts are called `NAME-00001-of-00003.gguf`, for a path `NAME.gguf`.
        tensors: Arrays by name: f32, f16, bf16, f64, i8 to i64, of rank 4 at most; or `Weight`s. Packed blocks stay as they
            are.
        metadata: Values by name: text, bools, numbers, arrays of numbers, and lists of one of these. Integers of Python are
            stored as u32 if they fit, else as i32, u64 or i64, and floats as f32. Numbers of NumPy keep their dtype. Keys
            that describe the parts of a model (`split.count`) and the alignment are those of the written files; others, as in
            the metadata of another file, are left out.
        alignment: The alignment of the tensors in bytes, a power of two.
        byteorder: `"little"`, or `"big"` for plain tensors.
        split: The largest number of bytes of tensors in a part; None for one file.

    Returns:
        The paths of the files.

    Raises:
        Error: A file cannot be written, or a tensor or value cannot be stored in the format.
    """
    name = file_name(path)
    if not is_alignment(alignment):
        raise Error(f"alignment must be a power of two, got {alignment!r:.60}")
    if byteorder not in ("little", "big"):
        raise Error(f"byteorder must be 'little' or 'big', got {byteorder!r:.60}")
    if split is not None and (type(split) is not int or split < 1):
        raise Error(f"split must be a number of bytes, got {split!r:.60}")
    order: ByteOrder = "<" if byteorder == "little" else ">"
    for what, value in (("tensors", tensors), ("metadata", metadata)):
        if not isinstance(value, Mapping):
            raise Error(f"{what} must be a mapping of names to values, got {short_repr(value)}")
    if not is_alignment(metadata.get(ALIGNMENT_KEY, alignment)):
        raise Error(f"metadata '{ALIGNMENT_KEY}' is not a power of two", hint="leave it out, and give alignment=")
    stored = [_stored(key, value, order) for key, value in tensors.items()]
    pairs = {ALIGNMENT_KEY: alignment} if alignment != DEFAULT_ALIGNMENT else {}
    pairs |= {key: value for key, value in metadata.items() if key not in (*_SPLIT_KEYS, ALIGNMENT_KEY)}
    parts = _parts(stored, split)
    paths = _paths(name, len(parts))
    headers = [_header(part, _pairs_of_part(pairs, i, parts), order, alignment) for i, part in enumerate(parts)]
    with ExitStack() as stack:
        for target, part, header in zip(paths, parts, headers, strict=True):
            temporary = stack.enter_context(replacing(target, durable=True))
            with open(temporary, "wb") as file:
                _write(file, header, part, alignment)
    return paths


_SPLIT_KEYS = (SPLIT_NUMBER, SPLIT_COUNT, SPLIT_TENSORS)


def _stored(name: str, value: Any, order: ByteOrder) -> _Stored:
    if isinstance(value, Weight) and isinstance(value.encoding, PackedBlocks):
        scheme = value.encoding.scheme
        number = scheme.ggml_type
        if number is None:
            raise Error(f"tensor '{name}': GGUF files have no format {value.encoding.name}")
        if order == ">" and not can_swap(scheme):
            raise Error(f"tensor '{name}': tensors of the format {scheme.name} are written in little-endian files")
        _check_rank(name, value.shape)
        read = value.stored if order == "<" else swapping(scheme, value.stored)
        return _Stored(name, number, value.shape, value.nbytes, read)
    array = as_array(value, f"tensor '{name}'")
    number = _PLAIN_TYPES.get(dtype(array.dtype).name)
    if number is None:
        known = ", ".join(_PLAIN_TYPES)
        raise Error(f"tensor '{name}' is {dtype(array.dtype).name}, and GGUF files have {known}")
    _check_rank(name, array.shape)

    def data() -> np.ndarray:
        ordered = np.ascontiguousarray(array)
        return (ordered if order == "<" else ordered.byteswap()).reshape(-1).view(np.uint8)

    return _Stored(name, number, array.shape, array.nbytes, data)


def _check_rank(name: str, shape: tuple[int, ...]) -> None:
    if len(shape) > LARGEST_RANK:
        raise Error(f"tensor '{name}' has {len(shape)} dimensions, and GGUF files have at most {LARGEST_RANK}")


def _parts(tensors: Sequence[_Stored], split: int | None) -> list[list[_Stored]]:
    """Distribute tensors to parts of at most `split` bytes, in order. A larger tensor has a part of its own."""
    parts: list[list[_Stored]] = [[]]
    size = 0
    for tensor in tensors:
        if split is not None and parts[-1] and size + tensor.nbytes > split:
            parts.append([])
            size = 0
        parts[-1].append(tensor)
        size += tensor.nbytes
    if len(parts) > _LARGEST_SPLIT:
        raise Error(f"split = {split} makes {len(parts)} parts, and at most {_LARGEST_SPLIT} have names")
    return parts


def _paths(name: str, count: int) -> list[str]:
    if count == 1:
        return [name]
    stem = name.removesuffix(".gguf")
    return [f"{stem}-{i + 1:05}-of-{count:05}.gguf" for i in range(count)]


def _pairs_of_part(pairs: Mapping[str, Any], number: int, parts: Sequence[Sequence[_Stored]]) -> dict[str, Any]:
    if len(parts) == 1:
        return dict(pairs)
    own = dict(pairs) if number == 0 else {k: v for k, v in pairs.items() if k == ALIGNMENT_KEY}
    total = sum(map(len, parts))
    return own | {SPLIT_NUMBER: np.uint16(number), SPLIT_COUNT: np.uint16(len(parts)), SPLIT_TENSORS: np.int32(total)}


def _header(tensors: Sequence[_Stored], pairs: Mapping[str, Any], order: ByteOrder, alignment: int) -> bytes:
    out = [MAGIC, struct.pack(order + "IQQ", _VERSION, len(tensors), len(pairs))]
    for key, value in pairs.items():
        kind, data = _value(key, value, order)
        out += [_text(key, order), struct.pack(order + "I", kind), data]
    offset = 0
    for tensor in tensors:
        dims = tuple(reversed(tensor.shape))
        numbers = struct.pack(f"{order}I{len(dims)}QIQ", len(dims), *dims, tensor.ggml_type, offset)
        out += [_text(tensor.name, order), numbers]
        offset += _aligned(tensor.nbytes, alignment)
    return b"".join(out)


def _write(file: BinaryIO, header: bytes, tensors: Iterable[_Stored], alignment: int) -> None:
    file.write(header)
    file.write(bytes(_aligned(len(header), alignment) - len(header)))
    for tensor in tensors:
        file.write(tensor.data().data)
        file.write(bytes(_aligned(tensor.nbytes, alignment) - tensor.nbytes))


def _aligned(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _text(text: Any, order: ByteOrder) -> bytes:
    if not isinstance(text, str):
        raise Error(f"names and texts of GGUF files are strings, got {short_repr(text)}")
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise Error(
            f"names and texts of GGUF files are UTF-8, and {short_repr(text)} has half of a surrogate pair"
        ) from None
    return struct.pack(order + "Q", len(data)) + data


def _value(key: str, value: Any, order: ByteOrder) -> tuple[int, bytes]:
    """Return the number of the type of a value, and the value's bytes."""
    if isinstance(value, str):
        return STRING, _text(value, order)
    if isinstance(value, (bool, np.bool_)):
        return BOOL, bytes([bool(value)])
    if isinstance(value, np.generic) and value.dtype in _NUMBER_TYPES:
        return _NUMBER_TYPES[value.dtype], np.array(value, value.dtype.newbyteorder(order)).tobytes()
    if isinstance(value, float):
        return _FLOAT32, _floats(key, [value]).astype(order + "f").tobytes()
    if isinstance(value, int):
        kind = _integer_type(key, value)
        return kind, struct.pack(order + NUMBER_CODES[kind], value)
    if is_array(value):
        return ARRAY, _number_array(key, value, order)
    if isinstance(value, (list, tuple)):
        return ARRAY, _list(key, value, order)
    raise _no_value(key, value)


def _no_value(key: str, value: Any) -> Error:
    expected = "text, a bool, a number, an array of numbers, or a list of values of one of these types"
    return Error(f"metadata '{key}' must be {expected}, got {short_repr(value)}")


def _integer_type(key: str, value: int) -> int:
    for kind in _INTEGER_TYPES:
        info = np.iinfo(NUMBER_CODES[kind])
        if info.min <= value <= info.max:
            return kind
    raise Error(f"metadata '{key}' must fit into 64 bits, got {value!r:.60}")


def _floats(key: str, values: Sequence[float]) -> np.ndarray:
    """Return numbers as f32. Infinities and NaN stay; larger finite numbers are refused."""
    largest = float(np.finfo(np.float32).max)
    for value in values:
        if largest < abs(value) != math.inf:
            hint = "numbers of NumPy keep their dtype: give numpy.float64 or an array of it"
            raise Error(f"metadata '{key}': {short_repr(value)} is too large for f32", hint=hint)
    return np.array(values, np.float32)


def _number_array(key: str, array: np.ndarray, order: ByteOrder) -> bytes:
    if array.ndim != 1 or (array.dtype not in _NUMBER_TYPES and array.dtype != np.bool_):
        raise Error(f"metadata '{key}' must be an array of numbers of rank 1, got {array.dtype}{list(array.shape)}")
    kind = BOOL if array.dtype == np.bool_ else _NUMBER_TYPES[array.dtype]
    return struct.pack(order + "IQ", kind, array.size) + array.astype(array.dtype.newbyteorder(order)).tobytes()


def _list(key: str, values: Sequence[Any], order: ByteOrder) -> bytes:
    """Return a list as an array. All integers are stored as i32 if they fit, and all floats as f32."""
    types = {bool if isinstance(v, np.bool_) else type(v) for v in values}
    if types <= {int} and values:
        narrow = all(-(2**31) <= v < 2**31 for v in values)
        if not all(-(2**63) <= v < 2**63 for v in values):
            raise Error(f"metadata '{key}' must have integers that fit into i64, got {short_repr(list(values))}")
        return _number_array(key, np.array(values, np.int32 if narrow else np.int64), order)
    if types <= {int, float} and values:
        return _number_array(key, _floats(key, values), order)
    pairs = [_value(key, v, order) for v in values]
    kinds = {kind for kind, _ in pairs} or {STRING}
    if len(kinds) != 1:
        raise _no_value(key, list(values))
    return struct.pack(order + "IQ", kinds.pop(), len(pairs)) + b"".join(data for _, data in pairs)

"""The GGUF format: metadata of many types, then tensors, most often packed in blocks. Versions 1 to 3, both byte orders.

Source: docs/gguf.md of the ggml project. Its package `gguf` reads files only with the machine's byte order, copies its
metadata, and does not bound what a damaged file makes it allocate; so the header is read here, and the file is mapped.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from rlx.ir.dtype import dtype
from rlx.native import native
from rlx.schemes.registry import scheme_of_ggml_type
from rlx.support import garbage
from rlx.support.errors import Error
from rlx.support.short import short_repr
from rlx.weights.byte_order import can_swap, swapping
from rlx.weights.encoding import Encoding, PackedBlocks, Plain, Swapped, Unreadable
from rlx.weights.mapped import Content, check_regular, content_of, part
from rlx.weights.weight import Weight, Weights

ByteOrder = Literal["<", ">"]

MAGIC = b"GGUF"
VERSIONS = (1, 2, 3)
ALIGNMENT_KEY = "general.alignment"
DEFAULT_ALIGNMENT = 32
LARGEST_RANK = 4
SPLIT_NUMBER, SPLIT_COUNT, SPLIT_TENSORS = "split.no", "split.count", "split.tensors.count"
# Types of metadata values by number: the codes of `struct`. Strings, bools and arrays are read differently.
NUMBER_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 10: "Q", 11: "q", 12: "d"}
BOOL, STRING, ARRAY = 7, 8, 9
# Tensors of plain dtypes by number. All other numbers are packed formats (`rlx.schemes`).
PLAIN_DTYPES = {0: "f32", 1: "f16", 24: "i8", 25: "i16", 26: "i32", 27: "i64", 28: "f64", 30: "bf16"}

_LONGEST_NAME = 4096
_DEEPEST_ARRAY = 4
_LARGEST_ALIGNMENT = 1 << 30
_LARGEST_SPLIT = 1 << 16
_SPLIT_NAME = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
_HINT = "fetch the file again, or convert the model again"


@dataclass(frozen=True)
class _TensorEntry:
    """A tensor in the header: its shape in NumPy's order, the number of its type, and its offset in the data."""

    name: str
    shape: tuple[int, ...]
    ggml_type: int
    offset: int


class _GgufHeader:
    """A cursor over the header of one file."""

    def __init__(self, content: Content, name: str):
        self.content, self.name, self.position = content, name, 8
        version = content[4:8]
        if len(version) < 4:
            raise self.refusal("it ends within the header")
        # The version of a big-endian file, read as a little-endian one, is a multiple of 65536.
        self.order: ByteOrder = "<" if int.from_bytes(version, "little") & 0xFFFF else ">"
        self.version = int.from_bytes(version, "little" if self.order == "<" else "big")
        if self.version not in VERSIONS:
            raise self.refusal(f"it has version {self.version} of GGUF, and versions 1 to 3 are known", hint=None)
        self._length = "I" if self.version == 1 else "Q"

    def refusal(self, reason: str, hint: str | None = _HINT) -> Error:
        """Return the error for a damaged file."""
        return Error(f"cannot read {self.name}: {reason}", hint=hint)

    def number(self, code: str) -> Any:
        """Read a number of a format of `struct`."""
        size = struct.calcsize("=" + code)
        if self.position + size > len(self.content):
            raise self.refusal("it ends within the header")
        (value,) = struct.unpack_from(self.order + code, self.content, self.position)
        self.position += size
        return value

    def count(self, what: str, least_size: int) -> int:
        """Read a number of items, each of at least `least_size` bytes; more than the file can hold are refused."""
        value = self.number(self._length)
        if value > (len(self.content) - self.position) // least_size:
            raise self.refusal(f"it declares {value} {what}, more than its {len(self.content)} bytes can hold")
        return value

    def text(self, what: str) -> str:
        """Read a string."""
        size = self.count(f"bytes of {what}", 1)
        start, self.position = self.position, self.position + size
        try:
            return str(self.content[start : self.position], "utf-8")
        except UnicodeDecodeError as problem:
            raise self.refusal(f"{what} is not UTF-8: {problem.reason}") from None

    def value(self, kind: int, key: str, depth: int = 0) -> Any:
        """Read a value: a number, a bool, a string, an array of numbers, or a tuple of strings, bools or arrays."""
        code = NUMBER_CODES.get(kind)
        if code is not None:
            return self.number(code)
        if kind == BOOL:
            return self._bool(key)
        if kind == STRING:
            return self.text(f"the value of '{key}'")
        if kind != ARRAY or depth == _DEEPEST_ARRAY:
            raise self.refusal(f"'{key}' has a value of type {kind}, and types 0 to 12 are known")
        element = self.number("I")
        code = NUMBER_CODES.get(element)
        if element == STRING:
            return self._texts(key)
        if code is None:
            least = 1 if element == BOOL else 4
            return tuple(self.value(element, key, depth + 1) for _ in range(self.count(f"elements of '{key}'", least)))
        stored = np.dtype(self.order + code)
        size = self.count(f"elements of '{key}'", stored.itemsize)
        array = np.frombuffer(self.content, stored, size, self.position).astype(stored.newbyteorder("="))
        self.position += array.nbytes
        array.flags.writeable = False
        return array

    def _texts(self, key: str) -> tuple[str, ...]:
        """Read an array of strings. There may be hundreds of thousands, so this does not call `text`."""
        number = self.count(f"elements of '{key}'", 4)
        size = struct.calcsize(self._length)
        try:
            texts, self.position = native().read_strings(self.content, self.position, number, size, self.order == ">")
        except EOFError:
            raise self.refusal(f"it ends within the strings of '{key}'") from None
        except UnicodeDecodeError as problem:
            raise self.refusal(f"a string of '{key}' is not UTF-8: {problem.reason}") from None
        return texts

    def _bool(self, key: str) -> bool:
        byte = self.number("B")
        if byte > 1:
            raise self.refusal(f"'{key}' has a bool that is stored as {byte}")
        return bool(byte)

    def tensor(self) -> _TensorEntry:
        """Read the description of a tensor."""
        name = self.text("the name of a tensor")
        if not name or len(name) > _LONGEST_NAME:
            raise self.refusal(f"a tensor has a name of {len(name)} characters")
        rank = self.number("I")
        if rank > LARGEST_RANK:
            raise self.refusal(f"tensor '{name}' has {rank} dimensions, and the format has at most {LARGEST_RANK}")
        dims = [self.number(self._length) for _ in range(rank)]
        kind = self.number("I")
        return _TensorEntry(name, tuple(reversed(dims)), kind, self.number("Q"))


@dataclass(frozen=True)
class _GgufFile:
    """The header of one file, read: its metadata and tensors."""

    metadata: dict[str, Any]
    tensors: list[Weight]


def is_alignment(value: object) -> bool:
    """Return whether a value is an alignment of tensors: a power of two up to 2^30."""
    return type(value) is int and 0 < value <= _LARGEST_ALIGNMENT and not value & (value - 1)


def read_content(content: Content, name: str) -> Weights:
    """Return the tensors of a file with this content, or of all parts if it is the first part of a split file.

    Raises:
        Error: The file is damaged or incomplete, a part is missing, or this is not the first part.
    """
    file = _read(content, name)
    count = _count(file.metadata, SPLIT_COUNT, name) or 0
    tensors = list(file.tensors)
    if count > 1:
        for path, number in _other_parts(file.metadata, count, name):
            tensors += _part(path, number, count).tensors
        expected = _count(file.metadata, SPLIT_TENSORS, name)
        if expected not in (None, len(tensors)):
            raise Error(f"cannot read {name}: its {count} parts have {len(tensors)} tensors of {expected}", hint=_HINT)
    return Weights(tensors, name, file.metadata)


@garbage.put_off()
def _read(content: Content, name: str) -> _GgufFile:
    header = _GgufHeader(content, name)
    tensor_count = header.count("tensors", 12)
    metadata: dict[str, Any] = {}
    for _ in range(header.count("pairs of metadata", 9)):
        key = header.text("a key of its metadata")
        value = header.value(header.number("I"), key)
        if key in metadata:
            raise header.refusal(f"it has two values of '{key}'")
        metadata[key] = value
    entries = [header.tensor() for _ in range(tensor_count)]
    alignment = metadata.get(ALIGNMENT_KEY, DEFAULT_ALIGNMENT)
    if not is_alignment(alignment):
        raise header.refusal(f"'{ALIGNMENT_KEY}' must be a power of two, got {alignment!r:.40}")
    begin = -(-header.position // alignment) * alignment
    return _GgufFile(metadata, [_weight(header, entry, begin, alignment) for entry in entries])


def _weight(header: _GgufHeader, entry: _TensorEntry, begin: int, alignment: int) -> Weight:
    encoding = _encoding(entry.ggml_type, header.order)
    if isinstance(encoding, Unreadable):
        return Weight(entry.name, entry.shape, encoding, 0, header.name, bytes)
    try:
        nbytes = encoding.nbytes(entry.shape)
    except Error as problem:
        raise header.refusal(f"tensor '{entry.name}': {problem.message}") from None
    start = begin + entry.offset
    if entry.offset % alignment:
        raise header.refusal(f"tensor '{entry.name}' begins at {entry.offset}, which is no multiple of {alignment}")
    if nbytes and start + nbytes > len(header.content):
        missing = f"tensor '{entry.name}' ends at byte {start + nbytes} of {len(header.content)}"
        raise header.refusal(f"it is cut off: {missing}", hint="fetch it again")
    read: Callable[[], Any] = partial(part, header.content, start, nbytes)
    if isinstance(encoding, PackedBlocks) and header.order == ">":
        read = swapping(encoding.scheme, read)
    return Weight(entry.name, entry.shape, encoding, nbytes, header.name, read)


def _encoding(ggml_type: int, order: ByteOrder) -> Encoding:
    plain = PLAIN_DTYPES.get(ggml_type)
    if plain is not None:
        element = dtype(plain).numpy
        return Plain(element) if order == "<" or element.itemsize == 1 else Swapped(element.newbyteorder(">"))
    scheme = scheme_of_ggml_type(ggml_type)
    if scheme is None:
        return Unreadable(f"ggml_type_{ggml_type}", "convert the model to a format that `rlx.weights.schemes` lists")
    if order == ">" and not can_swap(scheme):
        return Unreadable(scheme.name, "tensors of this format are read from little-endian files; convert the file")
    return PackedBlocks(scheme)


def _count(metadata: Mapping[str, Any], key: str, name: str) -> int | None:
    """Return a number that describes the parts of a model; None if there is none.

    Raises:
        Error: It is not an integer of at least 0.
    """
    value = metadata.get(key)
    if value is not None and (type(value) is not int or value < 0):
        raise Error(
            f"cannot read {name}: '{key}' must be an integer of at least 0, got {short_repr(value)}", hint=_HINT
        )
    return value


def _other_parts(metadata: Mapping[str, Any], count: int, name: str) -> list[tuple[str, int]]:
    """Return the paths of the parts after the first, with their numbers.

    Raises:
        Error: The file is not the first part, or its name is not that of a part.
    """
    folder, base = os.path.split(name)
    match = _SPLIT_NAME.fullmatch(base)
    expected = f"NAME-00001-of-{count:05}.gguf"
    if count > _LARGEST_SPLIT or match is None or int(match["count"]) != count:
        raise Error(f"{name} is one of {count} parts of a model, and the name of the first must be {expected}")
    if _count(metadata, SPLIT_NUMBER, name) != 0:
        first = f"{match['stem']}-00001-of-{count:05}.gguf"
        raise Error(f"{name} is not the first part of a model", hint=f"open {os.path.join(folder, first)}")
    paths = [os.path.join(folder, f"{match['stem']}-{i + 1:05}-of-{count:05}.gguf") for i in range(1, count)]
    return [(path, number) for number, path in enumerate(paths, 1)]


def _part(path: str, number: int, count: int) -> _GgufFile:
    check_regular(path)
    content = content_of(path)
    if content[:4] != MAGIC:
        raise Error(f"cannot read {path}: a part of a GGUF file begins with {MAGIC.decode()}", hint=_HINT)
    file = _read(content, path)
    stored = tuple(_count(file.metadata, key, path) for key in (SPLIT_NUMBER, SPLIT_COUNT))
    if stored != (number, count):
        raise Error(f"{path} is part {stored[0]} of {stored[1]}, and part {number} of {count} is expected", hint=_HINT)
    return file

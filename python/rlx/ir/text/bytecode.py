"""The large constants of MLIR bytecode, taken out before MLIR reads the rest: it would hold each of them several times.

In bytecode, attributes stand one after the other in a section, and another section has their sizes. So those of many elements
are found without knowing what the other sections mean. In the place of one stands a constant of the same type, all of whose
elements are one number: a mark by which it is found again in what MLIR has read. Everything is checked, since a file may be
damaged; what is not as expected stays as it is, for MLIR to say what is wrong with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_MAGIC = b"ML\xefR"
# The least number of bytes of a constant that is taken out, and of a file that is searched for one.
LEAST = 1 << 16
_LARGEST_TABLE = 1 << 24  # bytes of the table of sizes: reading it takes seconds
_LEAST_VERSION = 1  # of bytecode: since then a dialect may have a version
_MOST_DIMENSIONS = 64
_STRINGS, _DIALECTS, _ATTRIBUTES, _SIZES = 0, 1, 2, 3
_ALIGNED = 0x80
_PADDING = b"\xcb"


class _Code(NamedTuple):
    """The numbers of kinds in the encoding of one dialect.

    Attributes:
        dense: Attributes of elements.
        tensor: Tensor types.
        complex: Complex types.
        integer: Integer types whose width follows; None if each width has a number of its own.
        widths: The bytes of an element of the other types.
    """

    dense: int
    tensor: int
    complex: int
    integer: int | None
    widths: Mapping[int, int]


# Booleans are missing: they have too few values for marks, and eight of them stand in a byte.
_VHLO_WIDTHS = {2: 2, 3: 2, 4: 4, 5: 8, 11: 1, 12: 2, 13: 4, 14: 8, 16: 1, 17: 2, 18: 4, 19: 8}
_CODES = {
    "builtin": _Code(18, 13, 9, 0, {3: 2, 4: 2, 5: 4, 6: 8}),
    "vhlo": _Code(15, 20, 1, None, _VHLO_WIDTHS),
}


class SplitBytecode(NamedTuple):
    """Bytecode without its large constants.

    Attributes:
        data: The bytecode, with marks in their place.
        found: The bytes of each constant, by the bytes of its mark and how many it has itself.
    """

    data: Any
    found: dict[tuple[bytes, int], memoryview]


class _Unexpected(Exception):
    """The bytes are not as this module knows them."""


def without_constants(data: Any) -> SplitBytecode:
    """Bytecode without its large constants; as it is if it has none, or is not written as expected.

    Args:
        data: The content of a file, which the constants are views of: bytes or a memory map.
    """
    if len(data) >= LEAST:
        try:
            return _File(memoryview(data)).split()
        except (_Unexpected, LookupError, UnicodeDecodeError):
            pass
    return SplitBytecode(data, {})


class _Bytes:
    """Bytes that are read one after the other; the end is an `IndexError`."""

    def __init__(self, data: memoryview):
        self.data, self.place = data, 0

    def number(self) -> int:
        """An unsigned number: the zeros at the end of its first byte say how many bytes follow."""
        first = self.data[self.place]
        more = 8 if not first else (first & -first).bit_length() - 1
        raw = self.take(1 + more)
        return int.from_bytes(raw[1:] if more == 8 else raw, "little") >> (0 if more == 8 else more + 1)

    def signed(self) -> int:
        number = self.number()
        return (number >> 1) ^ -(number & 1)

    def take(self, size: int) -> memoryview:
        self.place += size
        if self.place > len(self.data):
            raise _Unexpected
        return self.data[self.place - size : self.place]

    def text(self) -> bytes:
        """A text that a zero ends."""
        start = self.place
        while self.data[self.place]:
            self.place += 1
        self.place += 1
        return bytes(self.data[start : self.place])


def _number(value: int) -> bytes:
    """A number as `_Bytes.number` reads it."""
    more = max(0, value.bit_length() - 1) // 7
    return (
        b"\0" + value.to_bytes(8, "little")
        if more > 7
        else (value << (more + 1) | 1 << more).to_bytes(more + 1, "little")
    )


class _Section(NamedTuple):
    kind: int
    alignment: int
    data: memoryview


class _AttributeEntry(NamedTuple):
    """An attribute or a type: its dialect, its bytes, and whether they are in the encoding of the dialect."""

    dialect: str
    data: memoryview
    encoded: int


class _File:
    """The content of a file of bytecode."""

    def __init__(self, data: memoryview):
        head = _Bytes(data)
        if bytes(head.take(4)) != _MAGIC or head.number() < _LEAST_VERSION:
            raise _Unexpected
        head.text()  # the producer
        self.head = bytes(data[: head.place])
        self.sections = list(_sections(head))
        self.of_kind = {s.kind: s.data for s in self.sections}
        if len(self.of_kind) != len(self.sections) or len(self.of_kind[_SIZES]) > _LARGEST_TABLE:
            raise _Unexpected
        self.attributes, self.types, self.groups = self._entries()

    def split(self) -> SplitBytecode:
        """The file without its large constants."""
        dense = {i: held for i, e in enumerate(self.attributes) if (held := self._dense(e)) is not None}
        taken = {
            bytes(blob) for _, blob in dense.values() if len(blob) <= 16
        }  # what other constants have in all elements
        found: dict[tuple[bytes, int], memoryview] = {}
        marks: dict[tuple[int, int], Iterator[bytes]] = {}
        replaced: dict[int, bytes] = {}
        for index, (kind, blob) in dense.items():
            size = len(blob)
            if size < LEAST:
                continue
            width = self._width(kind, size)
            unused = marks.setdefault((width, size), _marks(width, taken))
            if (mark := next(unused, None)) is None:
                if blob[1:] == blob[:-1]:  # it might be read as a mark
                    raise _Unexpected
                continue
            found[mark, size] = blob
            code = _CODES[self.attributes[index].dialect].dense
            replaced[index] = _number(code) + _number(kind) + _number(width) + mark
        if not found:
            raise _Unexpected
        return SplitBytecode(self._written(replaced), found)

    def _entries(self) -> tuple[list[_AttributeEntry], list[_AttributeEntry], list[tuple[int, int]]]:
        """The attributes, the types, and of each group of them its dialect's number and how many they are."""
        table, content, names = _Bytes(self.of_kind[_SIZES]), _Bytes(self.of_kind[_ATTRIBUTES]), self._dialects()
        counts = table.number(), table.number()
        lists: tuple[list[_AttributeEntry], list[_AttributeEntry]] = [], []
        groups: list[tuple[int, int]] = []
        for entries, wanted in zip(lists, counts, strict=True):
            while len(entries) < wanted:
                dialect, size = table.number(), table.number()
                groups.append((dialect, size))
                for _ in range(size):
                    length = table.number()
                    entries.append(_AttributeEntry(names[dialect], content.take(length >> 1), length & 1))
        return *lists, groups

    def _dialects(self) -> list[str]:
        """The names of the dialects."""
        strings, dialects = _Bytes(self.of_kind[_STRINGS]), _Bytes(self.of_kind[_DIALECTS])
        lengths = [strings.number() for _ in range(strings.number())][::-1]  # the last one's comes first
        texts = [bytes(strings.take(n)[:-1]) for n in lengths]
        names: list[str] = []
        for _ in range(dialects.number()):
            name = dialects.number()
            names.append(texts[name >> 1].decode())
            if name & 1:  # a section with the version
                next(_sections(dialects))
        return names

    def _dense(self, entry: _AttributeEntry) -> tuple[int, memoryview] | None:
        """The number of the type, and the bytes, of an attribute of elements; None of another."""
        code = _CODES.get(entry.dialect)
        if code is None or not entry.encoded or not len(entry.data):
            return None
        attribute = _Bytes(entry.data)
        if attribute.number() != code.dense:
            return None
        kind = attribute.number()
        blob = attribute.take(attribute.number())
        if attribute.place != len(entry.data):
            raise _Unexpected
        return kind, blob

    def _width(self, kind: int, size: int) -> int:
        """The bytes of one element of a tensor type, whose elements take so many bytes; 0 if that is not known."""
        entry = self.types[kind]
        code = _CODES.get(entry.dialect)
        described = _Bytes(entry.data)
        if code is None or not entry.encoded or described.number() != code.tensor:
            return 0
        rank = described.number()
        dims = [described.signed() for _ in range(rank)] if rank <= _MOST_DIMENSIONS else [-1]
        width = 0 if min(dims, default=0) < 0 else self._element(described.number(), 0)
        return width if math.prod(dims) * width == size else 0

    def _element(self, kind: int, depth: int) -> int:
        """The bytes of an element of a type; 0 if that is not known."""
        entry = self.types[kind]
        code = _CODES.get(entry.dialect)
        if code is None or not entry.encoded or depth > 1:
            return 0
        described = _Bytes(entry.data)
        number = described.number()
        if number == code.complex:
            return 2 * self._element(described.number(), depth + 1)
        if number == code.integer:
            width = described.number() >> 2
            return width // 8 if width in (8, 16, 32, 64) else 0
        return code.widths.get(number, 0)

    def _written(self, replaced: Mapping[int, bytes]) -> bytes:
        """The file with other bytes for some attributes."""
        entries = [*(e._replace(data=replaced.get(i, e.data)) for i, e in enumerate(self.attributes)), *self.types]
        table, next_one = [_number(len(self.attributes)), _number(len(self.types))], iter(entries)
        for dialect, count in self.groups:
            sizes = [_number(len(e.data) << 1 | e.encoded) for _, e in zip(range(count), next_one, strict=False)]
            table += [_number(dialect), _number(count), *sizes]
        new = {_ATTRIBUTES: b"".join(e.data for e in entries), _SIZES: b"".join(table)}
        file = bytearray(self.head)
        for kind, alignment, data in self.sections:
            content = new.get(kind, data)
            file += bytes([kind | (_ALIGNED if alignment else 0)]) + _number(len(content))
            if alignment:
                file += _number(alignment)
                file += _PADDING * (-len(file) % alignment)
            file += content
        return bytes(file)


def _sections(file: _Bytes) -> Iterator[_Section]:
    """The sections from here to the end."""
    while file.place < len(file.data):
        head = file.take(1)[0]
        size, alignment = file.number(), 0
        if head & _ALIGNED:
            alignment = file.number()
            if not 0 < alignment <= LEAST or alignment & (alignment - 1):
                raise _Unexpected
            file.take(-file.place % alignment)
        yield _Section(head & ~_ALIGNED, alignment, file.take(size))


def _marks(width: int, taken: set[bytes]) -> Iterator[bytes]:
    """The values of an element of so many bytes that no other constant has in all elements."""
    values = (n.to_bytes(width, "little") for n in range(1 << 8 * width)) if width else iter(())
    return (v for v in values if v not in taken)

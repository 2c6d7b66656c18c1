"""Extraction of large constants from MLIR bytecode, because MLIR would hold several copies of each.

In bytecode, attributes are stored consecutively in one section, and another section has their sizes. Large attributes
can therefore be found without decoding the other sections. Each extracted constant is replaced by a mark: a splat
constant of the same type with a unique value, which identifies it in the module that MLIR reads. Everything is checked,
since a file may be damaged. Unexpected content is left unchanged, so that MLIR reports the error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_MAGIC = b"ML\xefR"
# Minimum bytes of a constant that is extracted, and of a file that is searched.
LEAST = 1 << 16
_LARGEST_TABLE = 1 << 24  # maximum bytes of the table of sizes; reading one of this size takes seconds
_LEAST_VERSION = 1  # bytecode version; since then a dialect may have a version
_MOST_DIMENSIONS = 64
_STRINGS, _DIALECTS, _ATTRIBUTES, _SIZES = 0, 1, 2, 3
_ALIGNED = 0x80
_PADDING = b"\xcb"


class _Code(NamedTuple):
    """Codes of attributes and types in the encoding of one dialect.

    Attributes:
        dense: Dense elements attributes.
        tensor: Tensor types.
        complex: Complex types.
        integer: Integer types followed by their width; None if each width has its own code.
        widths: The bytes of an element of the other types.
    """

    dense: int
    tensor: int
    complex: int
    integer: int | None
    widths: Mapping[int, int]


# Booleans are not extracted: they have too few values for marks, and are packed eight to a byte.
_VHLO_WIDTHS = {2: 2, 3: 2, 4: 4, 5: 8, 11: 1, 12: 2, 13: 4, 14: 8, 16: 1, 17: 2, 18: 4, 19: 8}
_CODES = {
    "builtin": _Code(18, 13, 9, 0, {3: 2, 4: 2, 5: 4, 6: 8}),
    "vhlo": _Code(15, 20, 1, None, _VHLO_WIDTHS),
}


class SplitBytecode(NamedTuple):
    """Bytecode without its large constants.

    Attributes:
        data: The bytecode, with marks in place of the constants.
        found: The bytes of each constant, keyed by the bytes of its mark and its own size.
    """

    data: Any
    found: dict[tuple[bytes, int], memoryview]


class _Unexpected(Exception):
    """The bytes do not have the expected structure."""


def without_constants(data: Any) -> SplitBytecode:
    """Return bytecode without its large constants, or unchanged if it has none or an unexpected structure.

    Args:
        data: The content of a file, bytes or a memory map. The constants are views of it.
    """
    if len(data) >= LEAST:
        try:
            return _File(memoryview(data)).split()
        except (_Unexpected, LookupError, UnicodeDecodeError):
            pass
    return SplitBytecode(data, {})


class _Bytes:
    """Sequential reader of bytes. Reading past the end raises an `IndexError`."""

    def __init__(self, data: memoryview):
        self.data, self.place = data, 0

    def number(self) -> int:
        """Read an unsigned number. The number of trailing zeros of its first byte is the number of bytes that follow."""
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
        """Read a zero-terminated text."""
        start = self.place
        while self.data[self.place]:
            self.place += 1
        self.place += 1
        return bytes(self.data[start : self.place])


def _number(value: int) -> bytes:
    """Encode a number in the format that `_Bytes.number` reads."""
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
    """An attribute or a type: its dialect, its bytes, and whether the bytes use the dialect's encoding."""

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
        """Return the file without its large constants."""
        dense = {i: held for i, e in enumerate(self.attributes) if (held := self._dense(e)) is not None}
        # Values of small splat constants, which must not be used as marks.
        taken = {bytes(blob) for _, blob in dense.values() if len(blob) <= 16}
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
                if blob[1:] == blob[:-1]:  # the value may be mistaken for a mark
                    raise _Unexpected
                continue
            found[mark, size] = blob
            code = _CODES[self.attributes[index].dialect].dense
            replaced[index] = _number(code) + _number(kind) + _number(width) + mark
        if not found:
            raise _Unexpected
        return SplitBytecode(self._written(replaced), found)

    def _entries(self) -> tuple[list[_AttributeEntry], list[_AttributeEntry], list[tuple[int, int]]]:
        """Return the attributes, the types, and for each group of them the index of the dialect and the number of entries."""
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
        """Return the names of the dialects."""
        strings, dialects = _Bytes(self.of_kind[_STRINGS]), _Bytes(self.of_kind[_DIALECTS])
        lengths = [strings.number() for _ in range(strings.number())][::-1]  # the length of the last string comes first
        texts = [bytes(strings.take(n)[:-1]) for n in lengths]
        names: list[str] = []
        for _ in range(dialects.number()):
            name = dialects.number()
            names.append(texts[name >> 1].decode())
            if name & 1:  # a section with the version follows
                next(_sections(dialects))
        return names

    def _dense(self, entry: _AttributeEntry) -> tuple[int, memoryview] | None:
        """Return the type's number and the bytes of a dense elements attribute; None for other attributes."""
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
        """Return the bytes of one element of a tensor type whose elements take `size` bytes; 0 if unknown."""
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
        """Return the bytes of an element of a type; 0 if unknown."""
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
        """Return the file with other bytes for some attributes."""
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
    """Yield the sections from the current position to the end."""
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
    """Yield the element values of a given width that are not the value of a splat constant."""
    values = (n.to_bytes(width, "little") for n in range(1 << 8 * width)) if width else iter(())
    return (v for v in values if v not in taken)

"""Object files in ELF: functions that only their own file could call are made visible to the linker."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Set
from dataclasses import dataclass

_HEADER = struct.Struct("<4sBB10xHHIQQQIHHHHHH")  # of a 64-bit file with little-endian numbers
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMBOL_TABLE = 2
_GLOBAL, _WEAK = 1, 2
_HIDDEN = 2  # outside of the file that is linked


class ElfError(ValueError):
    """An object file is not as expected."""


@dataclass(frozen=True)
class _ElfSection:
    kind: int
    offset: int
    size: int
    link: int
    position: int  # of its header in the file


def with_visible(data: bytes, names: Set[str]) -> bytes:
    """Return an object file in which the linker finds some local symbols. Other global symbols become weak.

    Args:
        data: The object file: 64 bits, little-endian.
        names: The names of the symbols.

    Raises:
        ElfError: The file has another format, or lacks a symbol.
    """
    try:
        sections = list(_sections(data))
        table = next((s for s in sections if s.kind == _SYMBOL_TABLE), None)
        if table is None:
            raise ElfError("the object file has no symbols")
        symbols = list(_SYMBOL.iter_unpack(data[table.offset : table.offset + table.size]))
        strings = sections[table.link]
        found = {name: symbol for symbol in symbols if (name := _name(data, strings, symbol[0])) in names}
    except (struct.error, IndexError) as problem:
        raise ElfError(f"the object file is damaged: {problem}") from None
    if missing := names - found.keys():
        raise ElfError(f"the object file has no {', '.join(sorted(missing))}")
    kept = [_rebound(s, _WEAK) if s[1] >> 4 == _GLOBAL and s[3] else s for s in symbols]
    # Local symbols come before all others, and relocations count symbols: copies at the end change neither. They are weak,
    # because several object files of a program may have the same kernel.
    kept += [(*_rebound(symbol, _WEAK)[:2], _HIDDEN, *symbol[3:]) for _, symbol in sorted(found.items())]
    end = -(-len(data) // 8) * 8
    new = b"".join(_SYMBOL.pack(*symbol) for symbol in kept)
    result = bytearray(data.ljust(end, b"\0") + new)
    struct.pack_into("<QQ", result, table.position + 24, end, len(new))
    return bytes(result)


def _sections(data: bytes) -> Iterator[_ElfSection]:
    magic, bits, order, *_, first, _, _, _, _, size, count, _ = _HEADER.unpack_from(data)
    if (magic, bits, order, size) != (b"\x7fELF", 2, 1, _SECTION.size):
        raise ElfError("not an object file of 64 bits with little-endian numbers")
    for position in range(first, first + count * size, size):
        _, kind, _, _, offset, length, link, *_ = _SECTION.unpack_from(data, position)
        yield _ElfSection(kind, offset, length, link, position)


def _name(data: bytes, strings: _ElfSection, start: int) -> str:
    begin = strings.offset + start
    end = data.find(b"\0", begin)
    if end < 0:
        raise ElfError("the object file is damaged: a name has no end")
    return data[begin:end].decode("utf-8", "replace")


def _rebound(symbol: tuple[int, ...], binding: int) -> tuple[int, ...]:
    """The symbol with another binding."""
    name, info, *others = symbol
    return name, binding << 4 | info & 15, *others

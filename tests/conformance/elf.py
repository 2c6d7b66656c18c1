"""Machine code in compiled modules: shared objects that IREE loads itself and that must not need other libraries."""

from __future__ import annotations

import struct
from collections.abc import Iterator

_MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little-endian
_DYNSYM = 11
_UNDEFINED = 0


def check_linked(vmfb: bytes) -> None:
    """Check that a module defines every symbol that its code refers to.

    Raises:
        AssertionError: Symbols are undefined, and are listed; or there is no code.
    """
    objects = list(shared_objects(vmfb))
    missing = {name for start in objects for name in undefined_symbols(vmfb[start:])}
    assert not missing, f"undefined symbols: {', '.join(sorted(missing))}"


def shared_objects(vmfb: bytes) -> Iterator[int]:
    """Yield the offsets of the shared objects in a module. A module that only moves data has none."""
    start = vmfb.find(_MAGIC)
    while start >= 0:
        yield start
        start = vmfb.find(_MAGIC, start + 1)


def undefined_symbols(elf: bytes) -> list[str]:
    """Return the dynamic symbols that a shared object does not define."""
    offset = struct.unpack_from("<Q", elf, 0x28)[0]
    size, count = struct.unpack_from("<HH", elf, 0x3A)
    # type, offset, size and linked section of each section
    sections = [
        struct.unpack_from("<I", elf, at + 4) + struct.unpack_from("<QQI", elf, at + 0x18)
        for at in range(offset, offset + size * count, size)
    ]
    tables = [section for section in sections if section[0] == _DYNSYM]
    assert tables, "a shared object without dynamic symbols"
    found = []
    for _, start, length, link in tables:
        strings = sections[link][1]
        for at in range(start + 24, start + length, 24):  # the first symbol is the null symbol
            name, _, _, section = struct.unpack_from("<IBBH", elf, at)
            if section == _UNDEFINED:
                found.append(elf[strings + name : elf.index(b"\0", strings + name)].decode())
    return found

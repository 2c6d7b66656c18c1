"""A deterministic zip archive without compression, which `unzip` can also read.

Members are contiguous, and each begins at a multiple of 64 bytes. Compiled code can therefore use arrays in a memory-mapped
file directly. Reading returns views of the bytes. No member is inflated, copied or written to disk, so a member name is never
used as a path.

Source of the layout: PKWARE's APPNOTE.TXT, 4.3.
"""

from __future__ import annotations

import io
import re
import struct
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

from rlx.support.errors import Error

ALIGNMENT = 64
LARGEST = (1 << 31) - 1  # bytes of an archive; larger zip files use other records
MOST = 256  # members

# The end of an archive: signature, two disk numbers, members on this disk and in total, size and offset of their table,
# length of the comment.
_END = struct.Struct("<4s4H2LH")
# An entry of the table: signature, two versions, flags, method, time, date, CRC, stored size, size, lengths of name, extra
# field and comment, disk, two fields of attributes, offset of the member.
_ENTRY = struct.Struct("<4s6H3L5H2L")
# The header before the bytes of a member: signature, version, flags, method, time, date, CRC, sizes, lengths of name and
# extra field.
_HEADER = struct.Struct("<4s5H3L2H")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}(/[A-Za-z0-9_][A-Za-z0-9._-]{0,99})?")
_PADDING = 0xD935  # the identifier of the extra field that Android's `zipalign` uses for padding
_TABLE_ENTRY = 512  # the maximal size: a name, an extra field and 46 bytes


def write(file: BinaryIO, members: Mapping[str, Any]) -> None:
    """Write an archive. Equal members give equal bytes, on every system.

    Args:
        file: An open, empty file.
        members: Objects with the buffer protocol, by name.

    Raises:
        Error: The archive would be too large.
    """
    if sum(memoryview(data).nbytes for data in members.values()) > LARGEST - len(members) * _TABLE_ENTRY:
        raise Error(
            "a file of compiled programs of more than 2 GiB cannot be written",
            hint="leave parameters out of it: `rlx compile --params-file` writes them to a file of their own",
        )
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            assert _NAME.fullmatch(name), name
            entry = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            padding = -(file.tell() + _HEADER.size + len(name) + 4) % ALIGNMENT
            entry.extra = struct.pack("<HH", _PADDING, padding) + bytes(padding)
            archive.writestr(entry, data)


def pack_archive(members: Mapping[str, Any]) -> bytes:
    """The bytes of an archive: see `write`."""
    buffer = io.BytesIO()
    write(buffer, members)
    return buffer.getvalue()


def members_of(data: Any, most: int = MOST) -> dict[str, memoryview]:
    """The members of an archive that `write` made, in order, as views of its bytes.

    Args:
        data: The whole archive, an object with the buffer protocol.
        most: The maximal number of members.

    Raises:
        Error: The archive is damaged or truncated. Or it is of another kind: members are compressed, encrypted or
            overlapping, a name occurs twice or is a path out of the folder, or some bytes do not belong to any member.
    """
    view = memoryview(data).toreadonly().cast("B")
    if not _END.size <= len(view) <= LARGEST:
        raise Error(f"{len(view)} bytes")
    table_end = len(view) - _END.size
    signature, disk, first_disk, here, count, table_size, table, comment = _END.unpack_from(view, table_end)
    if signature != b"PK\x05\x06" or comment or disk or first_disk or here != count or table + table_size != table_end:
        raise Error("its last bytes are not the end of an archive")
    if not 0 < count <= most:
        raise Error(f"{count} members, expected 1 to {most}")
    members: dict[str, memoryview] = {}
    place, end = table, 0
    for _ in range(count):
        place, end = _member(view, place, table_end, end, table, members)
    if place != table_end or end != table:
        raise Error("it has bytes that belong to no member")
    return members


def _member(
    view: memoryview, place: int, table_end: int, start: int, limit: int, members: dict[str, memoryview]
) -> tuple[int, int]:
    """Check one entry of the table and the member that it describes, and add the member.

    Args:
        view: The archive.
        place: The offset of the entry.
        table_end: The end of the table.
        start: The required offset of the member's header.
        limit: The end of the last member.
        members: The previous members.

    Returns:
        The offsets of the next entry and of the next member's header.
    """
    if place + _ENTRY.size > table_end:
        raise Error("its table of members is cut off")
    signature, _, _, flags, method, _, _, crc, stored, size, *rest = _ENTRY.unpack_from(view, place)
    name_length, extra, comment, disk, _, _, header = rest
    name = _name(view, place + _ENTRY.size, name_length, table_end)
    if signature != b"PK\x01\x02" or comment or disk or header != start:
        raise Error(f"the entry of {name} in its table of members is damaged")
    if name in members:
        raise Error(f"it has two members {name}")
    if method != zipfile.ZIP_STORED or flags:
        raise Error(f"{name} is compressed or encrypted")
    if header + _HEADER.size > limit:
        raise Error(f"{name} lies outside of the archive")
    signature, _, *said, length, padding = _HEADER.unpack_from(view, header)
    begin = header + _HEADER.size + length + padding
    if stored != size or begin + size > limit:
        raise Error(f"{name} is said to have {size} bytes")
    same = said[0] == flags and said[1] == method and said[4:] == [crc, size, size] and length == name_length
    if signature != b"PK\x03\x04" or not same or _name(view, header + _HEADER.size, length, limit) != name:
        raise Error(f"{name} has another name, size or form than its table of members says")
    if begin % ALIGNMENT or padding >= ALIGNMENT + 4:
        raise Error(f"{name} does not begin at a multiple of {ALIGNMENT} bytes")
    members[name] = view[begin : begin + size]
    return place + _ENTRY.size + name_length + extra, begin + size


def _name(view: memoryview, start: int, length: int, limit: int) -> str:
    """Return a member name after checking it: letters, digits and a few other characters, in at most one folder."""
    if start + length > limit:
        raise Error("the name of a member is cut off")
    name = bytes(view[start : start + min(length, 300)]).decode("latin-1")
    if not _NAME.fullmatch(name):
        raise Error(f"{name[:60]!a} is not the name of a member")
    return name


def unpack_archive(data: Any, names: Sequence[str]) -> dict[str, bytes]:
    """Return copies of the members of an archive, which must have exactly these names, in this order.

    Raises:
        Error: The archive is damaged, or has other members.
    """
    members = members_of(data)
    if list(members) != list(names):
        raise Error(f"its members are not {', '.join(names)}")
    return {name: bytes(member) for name, member in members.items()}

"""Several files in one: a zip archive without compression, which `unzip` can read too."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Mapping, Sequence

from rlx.ir.errors import Error

# The end of an archive: signature, two numbers of disks, members on this disk and in total, size and place of their table,
# length of the comment.
_END = struct.Struct("<4s4H2LH")
_LARGEST = (1 << 31) - 1  # for larger archives zip uses other records
_TABLE_ENTRY = 200  # bytes of the table for each member; the names are short


def packed(members: Mapping[str, bytes]) -> bytes:
    """The bytes of an archive. Equal members give equal bytes, on every system.

    Raises:
        Error: They are too large.
    """
    if sum(map(len, members.values())) > _LARGEST - len(members) * _TABLE_ENTRY:
        raise Error("a compiled program of more than 2 GiB cannot be written to a file")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            entry = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
            entry.create_system = 3
            archive.writestr(entry, data)
    return buffer.getvalue()


def unpacked(data: bytes, names: Sequence[str]) -> dict[str, bytes]:
    """The members of an archive that has members with these names and no others.

    The result is not larger than `data`: nothing is decompressed.

    Raises:
        Error: It is damaged, or has other members, or a member is compressed or encrypted.
    """
    if len(data) < _END.size or len(data) > _LARGEST:
        raise Error(f"{len(data)} bytes")
    signature, _, _, on_this_disk, entries, table_size, _, comment = _END.unpack(data[-_END.size :])
    if signature != b"PK\x05\x06" or comment or on_this_disk != entries or entries != len(names):
        raise Error(f"its last bytes are not the end of an archive of {len(names)} members")
    if table_size > len(names) * _TABLE_ENTRY:
        raise Error(f"a table of members of {table_size} bytes")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if [entry.filename for entry in members] != list(names):
                raise Error(f"its members are not {', '.join(names)}")
            for entry in members:
                if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
                    raise Error(f"{entry.filename} is compressed or encrypted")
                if not entry.file_size == entry.compress_size <= len(data):
                    raise Error(f"{entry.filename} is said to have {entry.file_size} bytes")
            return {entry.filename: archive.read(entry) for entry in members}
    except Error:
        raise
    except Exception as problem:  # the exceptions of zipfile for damaged bytes have no common class
        raise Error(str(problem) or type(problem).__name__) from None

"""Files in a file: a zip archive of members that are stored as they are, which `unzip` reads too."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Mapping, Sequence

from rlx.ir.errors import Error

# The end of an archive: signature, numbers of disks, members on this disk and in all, size and place of their table, comment.
_END = struct.Struct("<4s4H2LH")
_LARGEST = (1 << 31) - 1  # above, zip has other records
_TABLE_ENTRY = 200  # bytes that the table may have for each member, whose names are short


def packed(members: Mapping[str, bytes]) -> bytes:
    """An archive. Equal members give equal bytes, on every system.

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
    """The members of an archive that has these and no others.

    What is given back is no larger than `data`: nothing is decompressed.

    Raises:
        Error: It is damaged, or has other members, or some that are compressed or encrypted.
    """
    if len(data) < _END.size or len(data) > _LARGEST:
        raise Error(f"{len(data)} bytes")
    mark, _, _, here, entries, table, _, comment = _END.unpack(data[-_END.size :])
    if mark != b"PK\x05\x06" or comment or here != entries or entries != len(names):
        raise Error(f"its last bytes are not the end of an archive of {len(names)} members")
    if table > len(names) * _TABLE_ENTRY:
        raise Error(f"a table of members of {table} bytes")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            found = archive.infolist()
            if [entry.filename for entry in found] != list(names):
                raise Error(f"its members are not {', '.join(names)}")
            for entry in found:
                if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
                    raise Error(f"{entry.filename} is compressed or encrypted")
                if not entry.file_size == entry.compress_size <= len(data):
                    raise Error(f"{entry.filename} is said to have {entry.file_size} bytes")
            return {entry.filename: archive.read(entry) for entry in found}
    except Error:
        raise
    except Exception as problem:  # what zipfile raises for damaged bytes has no common class
        raise Error(str(problem) or type(problem).__name__) from None

"""Files in memory: mapped, so that only the parts that are used are read."""

from __future__ import annotations

import mmap
import os
import stat

from rlx.ir.errors import Error
from rlx.ir.files import file_name, read_bytes

Content = mmap.mmap | bytes


def content_of(path: str | os.PathLike[str]) -> Content:
    """The content of a file: a memory map, or bytes for files that cannot be mapped (a pipe, an empty file).

    Raises:
        Error: The file is missing, is a folder, or cannot be read.
    """
    name = file_name(path)
    try:
        with open(name, "rb") as file:
            status = os.fstat(file.fileno())
            if stat.S_ISREG(status.st_mode) and status.st_size:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise Error(f"no such file: {name}") from None
    except IsADirectoryError:
        raise Error(f"{name} is no file") from None
    except OSError as problem:
        raise Error(f"cannot read {name}: {problem.strerror}") from None
    return read_bytes(name)


def part(content: Content, start: int, size: int) -> memoryview:
    """Some bytes of a file, without a copy; fewer than `size` if the file ends before."""
    return memoryview(content)[start : start + size]

"""Memory-mapped files. Only the parts that are used are read from the disk."""

from __future__ import annotations

import contextlib
import mmap
import os
import stat

import numpy as np

from rlx.support.errors import Error
from rlx.support.files import check_fetched, file_name, note_input, read_bytes


class MappedFile(mmap.mmap):
    """A file that is mapped for reading only."""


Content = MappedFile | bytes


def content_of(path: str | os.PathLike[str]) -> Content:
    """Return the content of a file: a memory map, or bytes for files that cannot be mapped (a pipe, an empty file).

    Raises:
        Error: The file is missing, is a folder, or cannot be read.
    """
    name = file_name(path)
    try:
        status = os.stat(name)  # a pipe is not opened here: it could not be opened again
        if stat.S_ISREG(status.st_mode) and status.st_size:
            with open(name, "rb") as file:
                note_input(status)
                content = MappedFile(file.fileno(), 0, access=mmap.ACCESS_READ)
            check_fetched(content, name)
            return content
        if stat.S_ISDIR(status.st_mode):
            raise Error(f"{name} is no file")
    except FileNotFoundError:
        raise Error(f"no such file: {name}") from None
    except OSError as problem:
        raise Error(f"cannot read {name}: {problem.strerror or problem}") from None
    return read_bytes(name)


def content_of_file(path: str | os.PathLike[str], what: str) -> Content:
    """Return the content of a file from another program. Endless or blocking files are rejected.

    Args:
        path: The file.
        what: A description of the content, for messages.

    Raises:
        Error: The file is missing or cannot be read, or is a folder, a pipe, a socket or a device.
    """
    name = file_name(path)
    mode = stat.S_IFREG
    with contextlib.suppress(OSError):  # the error is raised when the file is read
        mode = os.stat(name).st_mode
    if stat.S_ISDIR(mode):
        raise Error(f"expected a file of {what}, and {name} is a folder")
    if not stat.S_ISREG(mode):
        kind = "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
        raise Error(f"expected a file of {what}, and {name} is {kind}", hint="read it, and give its bytes")
    return content_of(name)


def check_regular(name: str) -> None:
    """Check that a name in a folder or index is a regular file, if it exists. A pipe may block its reader forever.

    Raises:
        Error: It is a pipe, a device or a socket.
    """
    if os.path.exists(name) and not os.path.isfile(name):
        raise Error(f"{name} is no file")


def release_pages(array: np.ndarray) -> None:
    """Remove the pages of an array from this process, if they are of a mapped file. They are read again when used."""
    file = file_of(array)
    if file is None or not hasattr(mmap, "MADV_DONTNEED") or not array.flags.c_contiguous:
        return
    start = array.__array_interface__["data"][0] - np.frombuffer(file, np.uint8).__array_interface__["data"][0]
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    stop = (start + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if first < stop:
        file.madvise(mmap.MADV_DONTNEED, first, stop - first)


def file_of(array: np.ndarray) -> MappedFile | None:
    """Return the mapped file that an array is a part of."""
    owner: object = array
    while isinstance(owner, np.ndarray) or type(owner) is memoryview:
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    return owner if isinstance(owner, MappedFile) else None


def part(content: Content, start: int, size: int) -> memoryview:
    """Return bytes of a file without a copy; fewer than `size` if the file ends before."""
    return memoryview(content)[start : start + size]

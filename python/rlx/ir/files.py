"""Files: read whole, and replaced whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

from rlx.ir.errors import Error

# What a file may have that is read into memory at once.
LARGEST = 4 << 30
_LARGEST_STREAM = 1 << 30
_LARGEST_JSON = 64 << 20
_CHUNK = 1 << 20
_PARTIAL = ".rlx-partial"
_LONGEST_PREFIX = 200  # bytes of a name that its temporary file repeats, so that it is not too long itself


def file_name(path: str | os.PathLike[str], what: str = "a file") -> str:
    """A path as text.

    Args:
        path: Text or an `os.PathLike`.
        what: What it should be the path of.

    Raises:
        Error: It is none: of another type, empty, with a null character or half of a character.
    """
    try:
        name = os.fspath(path)
    except TypeError:
        name = path
    if not isinstance(name, str) or not name or "\0" in name or not _can_be_encoded(name):
        raise Error(f"expected the path of {what}, got {path!r}")
    return name


def _can_be_encoded(name: str) -> bool:
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return True


def read_bytes(path: str | os.PathLike[str], limit: int = LARGEST) -> bytes:
    """The contents of a file.

    Raises:
        Error: It is missing, unreadable or larger than `limit` bytes.
    """
    name = file_name(path)
    try:
        with open(name, "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_size > limit:
                raise Error(f"cannot read {name}: it has {status.st_size} bytes, and at most {limit} are read")
            if stat.S_ISREG(status.st_mode):
                return file.read()
            data = bytearray()  # a pipe, or a device that may have no end
            while chunk := file.read(_CHUNK):
                data += chunk
                if len(data) > min(limit, _LARGEST_STREAM):
                    raise Error(f"cannot read {name}: it has more than {min(limit, _LARGEST_STREAM)} bytes")
            return bytes(data)
    except FileNotFoundError:
        raise Error(f"no such file: {name}") from None
    except OSError as problem:
        raise Error(f"cannot read {name}: {problem.strerror}") from None
    except MemoryError:
        raise Error(f"cannot read {name}: it does not fit into memory") from None


def read_json(path: str | os.PathLike[str]) -> Any:
    """What a JSON file holds.

    Raises:
        Error: The file is missing, no JSON, or an object of it has a name twice.
    """
    try:
        return json.loads(read_bytes(path, _LARGEST_JSON).decode(), object_pairs_hook=unique_names)
    except (ValueError, RecursionError) as problem:
        raise Error(f"cannot read {os.fspath(path)}: {problem}") from None


def unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, for the reader's `object_pairs_hook`: of a name that stands twice, others may take another value.

    Raises:
        ValueError: A name stands twice.
    """
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"'{next(name for name in names if names.count(name) > 1)}' stands twice")
    return made


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file, whole or not at all.

    Raises:
        Error: The directory cannot be written.
    """
    with replacing(path) as temporary:
        Path(temporary).write_bytes(data)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], *, durable: bool = False) -> Generator[str]:
    """The name of a file to write to, which takes the place of `path` at the end; not after an exception.

    It lies in the same folder and is locked, so that a later call for the same path removes it if this process is
    killed. What `path` is stays: a file keeps its permissions, a symbolic link stays one, and a device or a pipe is
    written to.

    Args:
        path: The file.
        durable: Wait until it is on the disk, so that a loss of power leaves the old file or the new one.

    Raises:
        Error: The directory cannot be written.
    """
    name = file_name(path)
    try:
        before = _status(name)
        if before is not None and not stat.S_ISREG(before.st_mode) and not stat.S_ISDIR(before.st_mode):
            with _passed_on(name) as temporary:
                yield temporary
            return
        with _partial(Path(os.path.realpath(name)), before, durable) as temporary:
            yield temporary
    except OSError as problem:
        raise Error(f"cannot write {name}: {problem.strerror or problem}") from None


def _status(name: str) -> os.stat_result | None:
    try:
        return os.stat(name)
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def _passed_on(name: str) -> Generator[str]:
    """A temporary file whose bytes go to a device or a pipe at the end."""
    with tempfile.TemporaryDirectory(prefix="rlx-") as folder:
        temporary = os.path.join(folder, "output")
        yield temporary
        with open(temporary, "rb") as source, open(name, "wb") as sink:
            shutil.copyfileobj(source, sink)


@contextlib.contextmanager
def _partial(target: Path, before: os.stat_result | None, durable: bool) -> Generator[str]:
    sweep(target)
    temporary, handle = _claimed(target)
    try:
        # The system has taken the umask off: reading the umask would mean to change it, in all threads.
        permissions = stat.S_IMODE(os.fstat(handle).st_mode) if before is None else stat.S_IMODE(before.st_mode)
        _permit(temporary, (0o600 | permissions) if before is None else 0o600)
        if os.name == "nt":  # which replaces no file that is open
            os.close(handle)
            handle = -1
        yield temporary
        _permit(temporary, permissions)
        if durable:
            _synchronise(temporary)
        os.replace(temporary, target)
        temporary = ""
        if durable and os.name != "nt":  # which opens no folders
            _synchronise(target.parent)
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        if handle >= 0:
            os.close(handle)


def _claimed(target: Path) -> tuple[str, int]:
    """A new file beside `target`, opened and locked for as long as this process holds it."""
    while True:
        temporary = str(target.with_name(_prefix(target) + secrets.token_hex(4) + _PARTIAL))
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        try:
            handle = os.open(temporary, flags, 0o666)
        except FileExistsError:
            continue
        lock(handle, wait=True)
        if os.path.exists(temporary):
            return temporary, handle
        os.close(handle)  # swept away before it was locked


def _permit(path: str, mode: int) -> None:
    with contextlib.suppress(OSError):  # of file systems that have no permissions
        os.chmod(path, mode & 0o777)


def sweep(target: Path) -> None:
    """Remove the temporary files that calls for the same target left when they were killed: nobody holds their locks."""
    ours = re.compile(re.escape(_prefix(target)) + r"[0-9a-f]{8}" + re.escape(_PARTIAL))
    with contextlib.suppress(OSError):
        for name in os.listdir(target.parent):
            if ours.fullmatch(name):
                remove_abandoned(target.with_name(name))


def remove_abandoned(path: str | os.PathLike[str], dir_fd: int | None = None) -> None:
    """Remove a temporary file unless a process that lives has locked it. Does not raise."""
    flags = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    with contextlib.suppress(OSError):
        handle = os.open(path, flags, dir_fd=dir_fd)
        try:
            if stat.S_ISREG(os.fstat(handle).st_mode) and lock(handle, wait=False):
                os.unlink(path, dir_fd=dir_fd)
        finally:
            os.close(handle)


def lock(handle: int, *, wait: bool, shared: bool = False) -> bool:
    """Lock an open file, until all handles of it are closed; returns whether that worked.

    Args:
        handle: The file.
        wait: Wait for others that have locked it.
        shared: Let others lock it in the same way.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        return False
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except OSError:  # another's, or a file system without locks
        return False
    return True


def _prefix(target: Path) -> str:
    return f".{os.fsencode(target.name)[:_LONGEST_PREFIX].decode(errors='ignore')}."


def _synchronise(path: str | os.PathLike[str]) -> None:
    """Wait until a file, or a folder's list of files, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

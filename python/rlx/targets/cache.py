"""A cache on disk for compiled artifacts. It may lose an entry at any time, but never returns a wrong one.

An entry is one file: a header (magic, version, length, SHA-256 of key and payload) and the payload. It is written
to a temporary file in the same folder, which is then renamed, so that a reader, or another process that writes
the same entry, sees the complete entry or none. Every problem with the disk becomes a cache miss and a message
of the logger ``rlx``.

Programs from the cache are executed. So the folder must belong to this user alone (`rlx.targets.private`). Otherwise the
cache is not used, and a message reports this once.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import secrets
import stat
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlx.support.errors import Error
from rlx.support.files import file_name, lock, remove_abandoned
from rlx.support.locks import make_lock
from rlx.targets.private import Folder, private_folder

_log = logging.getLogger("rlx")

DEFAULT_MAX_BYTES = 2 << 30
_HEADER = struct.Struct("<4sIQ32s")
_MAGIC = b"RLXC"
_VERSION = 2
_SUFFIX = ".rlxc"
_TEMPORARY_SUFFIX = ".tmp"
_LARGEST_ENTRY = 1 << 29  # reading it takes about a second
_CHUNK = 1 << 20
_HEX = frozenset("0123456789abcdef")
_SUBFOLDER = re.compile(r"[0-9a-f]{2}")

# Folders with a problem that has been reported: once for each folder, even if several caches use it.
_warned: set[Path] = set()


def default_directory() -> Path:
    """``RLX_CACHE_DIR``, else ``rlx`` in ``XDG_CACHE_HOME``, else ``~/.cache/rlx``, else a folder for temporary files.

    An empty variable counts as not set, and so do a relative ``XDG_CACHE_HOME`` (as its specification says) and a relative
    ``HOME``.

    Raises:
        Error: ``RLX_CACHE_DIR`` begins with ``~`` and the name of an unknown user.
    """
    if chosen := os.environ.get("RLX_CACHE_DIR"):
        try:
            return Path(chosen).expanduser()
        except RuntimeError as problem:
            raise Error(f"RLX_CACHE_DIR is {chosen!r}: {problem}") from None
    if os.path.isabs(base := os.environ.get("XDG_CACHE_HOME", "")):
        return Path(base) / "rlx"
    home = os.path.expanduser("~") if os.environ.get("HOME") != "" else ""
    if not os.path.isabs(home):  # no home directory at all, as in some containers
        home = os.path.join(tempfile.gettempdir(), f"rlx-{os.getuid() if hasattr(os, 'getuid') else 'user'}")
    return Path(home) / ".cache" / "rlx"


class DiskCache:
    """Payloads by hexadecimal key. Usable from several threads and several processes at once.

    Args:
        directory: The folder of the entries; by default ``default_directory()``. It is created when the first entry is
            written. If other users can change it or a folder above it, the cache is not used.
        max_bytes: Above this total size the least recently used entries are removed. An entry larger than this, or larger
            than 512 MiB, is not stored.

    Raises:
        Error: The directory is not a path, or is empty.
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        chosen = default_directory() if directory is None else Path(file_name(directory, "a folder for the cache"))
        try:
            self.directory = chosen.absolute()
        except OSError as problem:
            raise Error(
                f"the cache folder {chosen} is relative to the current folder, which does not exist any more: {problem}"
            ) from None
        self.max_bytes = max_bytes
        self._largest = min(max_bytes, _LARGEST_ENTRY)
        self._lock = make_lock()
        self._estimated_size: int | None = None

    def get(self, key: str) -> bytes | None:
        """Return the payload stored under ``key``, or ``None``. A damaged entry is removed."""
        part, name = _folder_and_name(key)
        try:
            with self._opened() as folder, folder.folder(part, create=False) as inner:
                try:
                    payload = self._read(inner, name, key)
                except FileNotFoundError:
                    return None
                except OSError as problem:  # a link, a pipe, a folder …
                    self._warn(f"cannot read a cache entry: {problem}")
                    payload = None
                if payload is None:
                    _log.info("the cache entry %s is damaged and is removed", inner.path / name)
                    with contextlib.suppress(OSError):
                        inner.unlink(name)
                return payload
        except FileNotFoundError:
            return None
        except OSError as problem:
            self._warn(f"cannot use the cache {self.directory}: {problem}")
            return None

    def put(self, key: str, payload: bytes) -> bool:
        """Store ``payload`` under ``key``, and return whether that succeeded. Disk errors do not raise an exception."""
        part, name = _folder_and_name(key)
        if _HEADER.size + len(payload) > self._largest:
            return False
        try:
            with self._opened(create=True) as folder, folder.folder(part, create=True) as inner:
                _write(inner, name, key, payload)
            self._limit(_HEADER.size + len(payload))
        except OSError as problem:
            self._warn(f"cannot write to the cache {self.directory}: {problem}")
            return False
        return True

    def problem(self) -> str | None:
        """The reason why the folder cannot be used, or None if it can. The folder is created if it does not exist."""
        try:
            with self._opened(create=True):
                return None
        except OSError as problem:
            return str(problem)

    def clear(self) -> None:
        """Remove all entries."""
        with self._lock, contextlib.suppress(OSError):
            for part, name, _ in self._entries():
                self._remove(part, name)
            self._estimated_size = None

    def size(self) -> int:
        """The size of all entries in bytes."""
        return sum(status.st_size for _, _, status in self._entries())

    def __len__(self) -> int:
        return len(self._entries())

    def _opened(self, *, create: bool = False) -> Folder:
        return private_folder(self.directory, lambda name: bool(_SUBFOLDER.fullmatch(name)), create=create)

    def _read(self, folder: Folder, name: str, key: str) -> bytes | None:
        """Return the payload of an entry, or None. It is read into memory only after its checksum has been verified."""
        with open(folder.open(name), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            header = file.read(_HEADER.size)
            if len(header) < _HEADER.size:
                return None
            magic, version, length, digest = _HEADER.unpack(header)
            if magic != _MAGIC or version != _VERSION or length != size - _HEADER.size or size > self._largest:
                return None
            hashed = hashlib.sha256(key.encode())
            while chunk := file.read(_CHUNK):
                hashed.update(chunk)
            if hashed.digest() != digest:
                return None
            file.seek(_HEADER.size)
            payload = file.read(length)
            with contextlib.suppress(OSError):
                # The time of the last use decides which entries are removed first.
                os.utime(file.fileno() if os.utime in os.supports_fd else folder.name(name))
            return payload

    def _limit(self, added: int) -> None:
        """Remove entries until the size is at most ``max_bytes``. The folder is listed only if the estimated size is larger."""
        with self._lock:
            if self._estimated_size is not None:
                self._estimated_size += added
                if self._estimated_size <= self.max_bytes:
                    return
            entries = sorted(self._entries(), key=lambda entry: entry[2].st_mtime_ns)
            total = sum(status.st_size for _, _, status in entries)
            for part, name, status in entries:
                if total <= self.max_bytes:
                    break
                self._remove(part, name)
                total -= status.st_size
            self._estimated_size = total

    def _entries(self) -> list[tuple[str, str, os.stat_result]]:
        """All entries: folder, name, status. Also removes the temporary files of processes that were killed."""
        entries = []
        with contextlib.suppress(OSError), self._opened() as folder:
            for part in filter(_SUBFOLDER.fullmatch, folder.names()):
                with contextlib.suppress(OSError), folder.folder(part, create=False) as inner:
                    _sweep(inner)
                    entries += [(part, name, status) for name, status in _files(inner)]
        return entries

    def _remove(self, part: str, name: str) -> None:
        with contextlib.suppress(OSError), self._opened() as folder, folder.folder(part, create=False) as inner:
            inner.unlink(name)

    def _warn(self, message: str) -> None:
        if self.directory not in _warned:
            _warned.add(self.directory)
            _log.warning("%s; going on without the cache", message)


def _folder_and_name(key: str) -> tuple[str, str]:
    """The folder and the name of an entry."""
    if len(key) < 3 or not _HEX.issuperset(key):
        raise ValueError(f"a cache key is hexadecimal, not {key!r}")
    return key[:2], key[2:] + _SUFFIX


def _write(folder: Folder, name: str, key: str, payload: bytes) -> None:
    _sweep(folder)
    digest = hashlib.sha256(key.encode())
    digest.update(payload)
    header = _HEADER.pack(_MAGIC, _VERSION, len(payload), digest.digest())
    temporary, handle = _create_locked(folder)
    # No fsync: an entry damaged by a power loss is a cache miss, and compiling again is cheaper than
    # an fsync for every entry.
    with open(handle, "wb") as file:
        try:
            file.write(header)
            file.write(payload)
            file.flush()
            if os.name == "nt":  # Windows cannot rename an open file
                file.close()
            folder.replace(temporary, name)
        except BaseException:
            with contextlib.suppress(OSError):
                folder.unlink(temporary)
            raise


def _create_locked(folder: Folder) -> tuple[str, int]:
    """Create a file that is locked while it is open, so that no other process removes it as abandoned."""
    while True:
        temporary = secrets.token_hex(8) + _TEMPORARY_SUFFIX
        handle = folder.create(temporary)
        lock(handle, wait=True)
        if temporary in folder.names():
            return temporary, handle
        os.close(handle)  # another process has removed it before it was locked


def _sweep(folder: Folder) -> None:
    """Remove the temporary files of killed processes. These files are no longer locked."""
    for name in folder.names():
        if name.endswith(_TEMPORARY_SUFFIX):
            remove_abandoned(folder.name(name), dir_fd=folder.handle)


def _files(folder: Folder) -> Iterator[tuple[str, Any]]:
    for name in folder.names():
        if name.endswith(_SUFFIX):
            with contextlib.suppress(OSError):
                status = os.stat(folder.name(name), dir_fd=folder.handle, follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    yield name, status

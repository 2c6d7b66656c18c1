"""A cache on disk for compiled artifacts. It may lose an entry at any time, and never gives a wrong one.

An entry is one file: a header (magic, version, length, SHA-256 of the payload) and the payload. It is written
to a temporary file in the same folder and moved into place, so that a reader, or another process that writes
the same entry, sees all of it or nothing. Whatever goes wrong with the disk turns into a miss and a message
of the logger ``rlx``.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import struct
import tempfile
import threading
import time
from pathlib import Path

_log = logging.getLogger("rlx")

DEFAULT_MAX_BYTES = 2 << 30
_HEADER = struct.Struct("<4sIQ32s")
_MAGIC = b"RLXC"
_VERSION = 1
_SUFFIX = ".rlxc"
_TEMPORARY_SUFFIX = ".tmp"
_ABANDONED_AFTER_S = 3600.0
_HEX = frozenset("0123456789abcdef")


def default_directory() -> Path:
    """``RLX_CACHE_DIR``, else ``rlx`` in ``XDG_CACHE_HOME``, else ``~/.cache/rlx``."""
    if chosen := os.environ.get("RLX_CACHE_DIR"):
        return Path(chosen).expanduser()
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "rlx"
    try:
        home = Path.home()
    except RuntimeError:  # no home directory at all, as in some containers
        home = Path(tempfile.gettempdir()) / f"rlx-{os.getuid() if hasattr(os, 'getuid') else 'user'}"
    return home / ".cache" / "rlx"


def fingerprint(*parts: str | bytes) -> str:
    """A key: SHA-256 over each part with its length, so ``"ab", "c"`` differs from ``"a", "bc"``."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


class DiskCache:
    """Payloads by hexadecimal key. Usable from several threads and several processes at once.

    Args:
        directory: Where entries lie; by default ``default_directory()``. It is made when the first entry is
            put.
        max_bytes: Beyond this size the entries that were not used for longest are removed.
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self.directory = Path(directory) if directory is not None else default_directory()
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._warned = False
        self._estimated_size: int | None = None

    def get(self, key: str) -> bytes | None:
        """The payload put under ``key``, or ``None``. An entry that is not intact is removed."""
        path = self._path(key)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn(f"cannot read {path}: {error}")
            return None
        payload = _unpack(data)
        if payload is None:
            _log.info("the cache entry %s is damaged and is removed", path)
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # the time of last use, for eviction
        return payload

    def put(self, key: str, payload: bytes) -> bool:
        """Keep ``payload`` under ``key``; returns whether that worked. The disk is no reason to raise."""
        path = self._path(key)
        try:
            self._write(path, payload)
        except OSError as error:
            self._warn(f"cannot write to the cache {self.directory}: {error}")
            return False
        self._limit(_HEADER.size + len(payload))
        return True

    def clear(self) -> None:
        """Remove all entries."""
        with self._lock:
            for path, _ in self._entries():
                with contextlib.suppress(OSError):
                    path.unlink()
            self._estimated_size = None

    def size(self) -> int:
        """The bytes that all entries take."""
        return sum(status.st_size for _, status in self._entries())

    def __len__(self) -> int:
        return len(self._entries())

    def _path(self, key: str) -> Path:
        if len(key) < 3 or not _HEX.issuperset(key):
            raise ValueError(f"a cache key is hexadecimal, not {key!r}")
        return self.directory / key[:2] / (key[2:] + _SUFFIX)

    def _write(self, path: Path, payload: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        header = _HEADER.pack(_MAGIC, _VERSION, len(payload), hashlib.sha256(payload).digest())
        # No fsync: after a loss of power a damaged entry is a miss, and compiling again costs less than
        # syncing always.
        descriptor, temporary = tempfile.mkstemp(suffix=_TEMPORARY_SUFFIX, dir=path.parent)
        try:
            with open(descriptor, "wb") as file:
                file.write(header)
                file.write(payload)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    def _limit(self, added: int) -> None:
        """Evict down to ``max_bytes``. The folder is only listed if the size we know of is above that."""
        with self._lock:
            if self._estimated_size is not None:
                self._estimated_size += added
                if self._estimated_size <= self.max_bytes:
                    return
            entries = sorted(self._entries(), key=lambda entry: entry[1].st_mtime_ns)
            total = sum(status.st_size for _, status in entries)
            for path, status in entries:
                if total <= self.max_bytes:
                    break
                with contextlib.suppress(OSError):
                    path.unlink()
                total -= status.st_size
            self._estimated_size = total

    def _entries(self) -> list[tuple[Path, os.stat_result]]:
        """All entries; on the way, removes temporary files that a process left when it was killed."""
        found = []
        abandoned = time.time() - _ABANDONED_AFTER_S
        with contextlib.suppress(OSError):
            for path in self.directory.glob("??/*"):
                with contextlib.suppress(OSError):
                    status = path.stat()
                    if path.suffix == _SUFFIX:
                        found.append((path, status))
                    elif path.suffix == _TEMPORARY_SUFFIX and status.st_mtime < abandoned:
                        path.unlink()
        return found

    def _warn(self, message: str) -> None:
        if not self._warned:
            self._warned = True
            _log.warning("%s; going on without the cache", message)


def _unpack(data: bytes) -> bytes | None:
    if len(data) < _HEADER.size:
        return None
    magic, version, length, digest = _HEADER.unpack_from(data)
    payload = data[_HEADER.size :]
    if magic != _MAGIC or version != _VERSION or length != len(payload):
        return None
    return payload if hashlib.sha256(payload).digest() == digest else None

"""The disk cache stores entries. With any disk error it never returns a wrong entry, and never raises."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rlx.targets.cache import DiskCache, default_directory
from rlx.targets.hashes import fingerprint
from rlx.targets.private import Folder

KEY = fingerprint("a module")


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    return DiskCache(tmp_path / "cache")


def entry_of(cache: DiskCache) -> Path:
    (path,) = [path for path in cache.directory.rglob("*") if path.is_file()]
    return path


def test_round_trip(cache: DiskCache):
    assert cache.get(KEY) is None
    assert cache.put(KEY, b"payload \0 of bytes")
    assert cache.get(KEY) == b"payload \0 of bytes"
    assert DiskCache(cache.directory).get(KEY) == b"payload \0 of bytes"
    assert cache.get(fingerprint("another")) is None


def test_empty_payload_and_overwriting(cache: DiskCache):
    assert cache.put(KEY, b"")
    assert cache.get(KEY) == b""
    assert cache.put(KEY, b"new")
    assert cache.get(KEY) == b"new"
    assert len(cache) == 1


def test_size_and_clear(cache: DiskCache):
    for number in range(3):
        cache.put(fingerprint(str(number)), bytes(100))
    assert len(cache) == 3
    assert 300 < cache.size() < 600
    cache.clear()
    assert (len(cache), cache.size()) == (0, 0)
    assert cache.get(fingerprint("0")) is None


def test_fingerprint_separates_its_parts():
    assert fingerprint("ab", "c") != fingerprint("a", "bc") != fingerprint("abc")
    assert fingerprint("a", b"b") == fingerprint("a", "b")
    assert len(fingerprint()) == 64
    assert fingerprint() != fingerprint("")


@pytest.mark.parametrize("key", ["", "ab", "../../etc/passwd", "XYZ1", "a/b"])
def test_a_key_is_hexadecimal(cache: DiskCache, key: str):
    with pytest.raises(ValueError, match="hexadecimal"):
        cache.get(key)
    with pytest.raises(ValueError, match="hexadecimal"):
        cache.put(key, b"")


def test_a_truncated_entry_is_a_miss_at_every_length(cache: DiskCache):
    cache.put(KEY, b"payload")
    whole = entry_of(cache).read_bytes()
    for length in range(len(whole)):
        cache.put(KEY, b"payload")
        path = entry_of(cache)
        path.write_bytes(whole[:length])
        assert cache.get(KEY) is None, length
        assert not path.exists()


def test_a_flipped_bit_is_a_miss_wherever_it_is(cache: DiskCache):
    cache.put(KEY, b"payload")
    whole = entry_of(cache).read_bytes()
    for position in range(len(whole)):
        cache.put(KEY, b"payload")
        path = entry_of(cache)
        damaged = bytearray(whole)
        damaged[position] ^= 1 << (position % 8)
        path.write_bytes(damaged)
        assert cache.get(KEY) is None, position
        assert not path.exists()


def test_trailing_bytes_are_a_miss(cache: DiskCache):
    cache.put(KEY, b"payload")
    path = entry_of(cache)
    path.write_bytes(path.read_bytes() + b"x")
    assert cache.get(KEY) is None


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO])
def test_a_disk_that_takes_no_writes(
    cache: DiskCache, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: int
):
    cache.put(KEY, b"old")

    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "replace", fail)
    with caplog.at_level(logging.WARNING, logger="rlx"):
        assert not cache.put(KEY, b"new")
        assert not cache.put(fingerprint("other"), b"new")
    assert len(caplog.records) == 1
    assert os.strerror(code) in caplog.text
    assert cache.get(KEY) == b"old"
    assert [path.suffix for path in cache.directory.rglob("*") if path.is_file()] == [".rlxc"]


def test_a_disk_that_fills_up_in_the_middle_of_a_write(cache: DiskCache, monkeypatch: pytest.MonkeyPatch):
    real_open = open

    class Full:
        def __init__(self, descriptor: int):
            self.file = real_open(descriptor, "wb")

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

        def write(self, data: bytes) -> None:
            self.file.write(data[:10])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("rlx.targets.cache.open", lambda target, _: Full(target), raising=False)
    assert not cache.put(KEY, b"payload")
    monkeypatch.undo()
    assert cache.get(KEY) is None
    assert [path for path in cache.directory.rglob("*") if path.is_file()] == []


def test_no_temporary_file_can_be_made(cache: DiskCache, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Folder, "create", fail)
    assert not cache.put(KEY, b"payload")
    assert cache.get(KEY) is None


def test_the_directory_is_a_file(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    path = tmp_path / "cache"
    path.write_text("not a directory")
    cache = DiskCache(path)
    with caplog.at_level(logging.WARNING, logger="rlx"):
        assert cache.get(KEY) is None
        assert not cache.put(KEY, b"payload")
    assert len(caplog.records) == 1
    assert (len(cache), cache.size()) == (0, 0)
    cache.clear()
    assert path.read_text() == "not a directory"


def test_an_entry_that_cannot_be_read(cache: DiskCache):
    cache.put(KEY, b"payload")
    path = entry_of(cache)
    path.unlink()
    path.mkdir()
    assert cache.get(KEY) is None


def test_eviction_takes_what_was_not_used_for_longest(tmp_path: Path):
    cache = DiskCache(tmp_path, max_bytes=5 * 1100)
    keys = [fingerprint(str(number)) for number in range(8)]
    for age, key in enumerate(keys[:5]):
        cache.put(key, bytes(1000))
        os.utime(cache.directory / key[:2] / f"{key[2:]}.rlxc", (1000 + age, 1000 + age))
    assert len(cache) == 5
    assert cache.get(keys[0]) is not None  # used now: no longer the oldest
    for key in keys[5:]:
        cache.put(key, bytes(1000))
    kept = [key for key in keys if cache.get(key) is not None]
    assert kept == [keys[0], keys[4], *keys[5:]]
    assert cache.size() <= cache.max_bytes


def test_eviction_sees_what_other_caches_wrote(tmp_path: Path):
    for number in range(6):
        DiskCache(tmp_path).put(fingerprint(str(number)), bytes(1000))
    DiskCache(tmp_path, max_bytes=3 * 1100).put(fingerprint("last"), bytes(1000))
    assert len(DiskCache(tmp_path)) == 3
    assert DiskCache(tmp_path).get(fingerprint("last")) is not None


def test_an_entry_above_the_limit_is_not_kept(tmp_path: Path):
    cache = DiskCache(tmp_path, max_bytes=100)
    cache.put(KEY, bytes(1000))
    assert cache.size() == 0


def test_default_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "mine"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert default_directory() == tmp_path / "mine"
    monkeypatch.delenv("RLX_CACHE_DIR")
    assert DiskCache().directory == tmp_path / "xdg" / "rlx"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_directory() == tmp_path / "home" / ".cache" / "rlx"


WRITER = """
import sys
from rlx.targets.cache import DiskCache
from rlx.targets.hashes import fingerprint
cache = DiskCache(sys.argv[1], max_bytes=200_000)
letter = sys.argv[2].encode()
sys.stdin.readline()
for turn in range(150):
    key = fingerprint(str(turn % 4))
    assert cache.put(key, letter * (5_000 + 13 * turn))
    found = cache.get(key)
    assert found is None or len(set(found)) == 1, "two writers were mixed"
"""


def test_two_processes_write_the_same_entries(tmp_path: Path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), letter],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )
        for letter in "ab"
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(b"go\n")
        writer.stdin.flush()
    for writer in writers:
        _, errors = writer.communicate(timeout=60)
        assert writer.returncode == 0, errors.decode()
    assert len(DiskCache(tmp_path)) == 4


def test_threads_share_a_cache(tmp_path: Path):
    cache = DiskCache(tmp_path, max_bytes=50_000)
    wrong: list[object] = []

    def work(letter: bytes) -> None:
        for turn in range(100):
            key = fingerprint(str(turn % 7))
            cache.put(key, letter * 1000)
            found = cache.get(key)
            if found is not None and len(set(found)) != 1:
                wrong.append(found)

    threads = [threading.Thread(target=work, args=(letter,)) for letter in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(cache) == 7

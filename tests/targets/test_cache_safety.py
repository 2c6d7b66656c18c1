"""Cache entries are executed, so other users must not be able to write them, and invalid files must be harmless."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import stat
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.runtime.session import _cache
from rlx.targets import private
from rlx.targets.cache import DiskCache, default_directory
from rlx.targets.hashes import fingerprint
from rlx.targets.private import UnsafeFolder, private_folder

pytestmark = pytest.mark.skipif(not private.CHECKED, reason="this system's folders are not checked")

KEY = fingerprint("a module")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def works(cache: DiskCache) -> bool:
    stored = cache.put(KEY, b"payload")
    found = cache.get(KEY)
    assert found == (b"payload" if stored else None)
    return stored


def entry(cache: DiskCache) -> Path:
    return cache.directory / KEY[:2] / f"{KEY[2:]}.rlxc"


# --- folders ------------------------------------------------------------------------------------------


def no_home(patch: pytest.MonkeyPatch, path: Path) -> Path:
    """As in a container where the user has no home: the folder is in a place that everyone may write to."""
    shared = path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    patch.setenv("HOME", "")
    patch.setattr("tempfile.gettempdir", lambda: str(shared))
    return shared / f"rlx-{os.getuid()}" / ".cache" / "rlx"


def by_variable(name: str, *rest: str) -> Callable[[pytest.MonkeyPatch, Path], Path]:
    def choose(patch: pytest.MonkeyPatch, path: Path) -> Path:
        patch.setenv(name, str(path / "chosen"))
        return path.joinpath("chosen", *rest)

    return choose


WAYS: dict[str, Callable[[pytest.MonkeyPatch, Path], Path]] = {
    "RLX_CACHE_DIR": by_variable("RLX_CACHE_DIR"),
    "XDG_CACHE_HOME": by_variable("XDG_CACHE_HOME", "rlx"),
    "HOME": by_variable("HOME", ".cache", "rlx"),
    "no home": no_home,
}


@pytest.fixture(params=WAYS)
def chosen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder for each way of choosing it. It does not exist yet."""
    for name in ("RLX_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    path = WAYS[request.param](monkeypatch, tmp_path)
    assert default_directory() == path
    return path


def test_a_folder_that_is_made_is_closed_to_others(chosen: Path) -> None:
    before = os.umask(0)
    try:
        assert works(DiskCache())
    finally:
        os.umask(before)
    for path in (chosen, chosen.parent, chosen / KEY[:2]):
        if stat.S_ISDIR(path.stat().st_mode) and path.name not in ("tmp",) and path != path.parent:
            assert path == chosen.parent or mode(path) == 0o700, path
    assert mode(entry(DiskCache())) == 0o600


def test_a_folder_that_others_may_write_to_is_not_used(chosen: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert works(DiskCache())
    chosen.chmod(0o777)
    with caplog.at_level(logging.WARNING, logger="rlx"):
        for _ in range(3):
            assert DiskCache().get(KEY) is None
            assert not DiskCache().put(fingerprint("another"), b"")
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert f"{chosen} is writable by others" in caplog.text and "going on without the cache" in caplog.text
    assert (len(DiskCache()), mode(chosen)) == (0, 0o777)
    DiskCache().clear()
    assert entry(DiskCache()).exists()


def test_another_users_folder_is_not_used(
    chosen: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The other user created the folder first, under its predictable name."""
    assert works(DiskCache())
    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING, logger="rlx"):
        patched.setattr(os, "geteuid", lambda: os.getuid() + 12345)
        assert DiskCache().get(KEY) is None and not DiskCache().put(KEY, b"")
    assert "belongs to the user" in caplog.text and len(caplog.records) == 1
    assert DiskCache().get(KEY) == b"payload"


@pytest.mark.parametrize("give", [DiskCache, _cache], ids=["DiskCache", "cache="])
def test_a_folder_that_is_given_is_held_to_the_same(give: Any, tmp_path: Path) -> None:
    path = tmp_path / "given"
    assert works(give(path))
    path.chmod(0o757)
    assert not works(give(path))


@pytest.mark.parametrize(
    ("bits", "fine"), [(0o777, False), (0o1777, True), (0o775, False), (0o1775, True), (0o755, True), (0o711, True)]
)
def test_the_way_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bits: int, fine: bool) -> None:
    """A user who can write to a folder on the path can replace the cache folder."""
    monkeypatch.setattr(private, "_is_own_group", lambda _: False)
    way = tmp_path / "way"
    (way / "between").mkdir(parents=True)
    way.chmod(bits)
    assert works(DiskCache(way / "between" / "cache")) is fine


def test_a_users_own_group_is_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On systems with a group for each user, folders are writable by the group by default."""
    (tmp_path / "way").mkdir()
    cache = DiskCache(tmp_path / "way" / "cache")
    assert works(cache)
    for path in (tmp_path / "way", cache.directory):
        path.chmod(0o775)
    for own, expected in ((False, None), (True, b"payload")):
        monkeypatch.setattr(private, "_is_own_group", lambda _, own=own: own)
        assert cache.get(KEY) == expected
    assert mode(cache.directory) == 0o700 and mode(tmp_path / "way") == 0o775


def test_a_cache_of_before_is_closed_to_others_and_used(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "cache")
    assert works(cache)
    for path in (cache.directory, entry(cache).parent):
        path.chmod(0o755)
    assert cache.get(KEY) == b"payload"
    assert mode(cache.directory) == mode(entry(cache).parent) == 0o700


def test_a_folder_that_holds_other_things_keeps_its_permissions(tmp_path: Path) -> None:
    """For example, the user may pass the current directory as the cache folder."""
    (tmp_path / "mine").write_text("others read this")
    tmp_path.chmod(0o755)
    cache = DiskCache(tmp_path)
    assert works(cache)
    assert mode(tmp_path) == 0o755 and mode(entry(cache).parent) == 0o700


def test_links_are_followed_where_nobody_else_can_change_them(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    for name, target in (("absolute", tmp_path / "disk"), ("relative", "disk"), ("up", "disk/../disk")):
        (tmp_path / name).symlink_to(target)
        assert works(DiskCache(tmp_path / name / "cache")), name
    assert works(DiskCache(tmp_path / "disk" / ".." / "disk" / "cache"))
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    (open_to_all / "link").symlink_to(tmp_path / "disk")  # everyone may replace it
    (tmp_path / "there").symlink_to(open_to_all)
    for path in (open_to_all / "link" / "cache", tmp_path / "there" / "cache", tmp_path / "there"):
        assert not works(DiskCache(path)), path
    (tmp_path / "loop").symlink_to("loop")
    assert not works(DiskCache(tmp_path / "loop" / "cache"))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_of_files_that_are_given_to_another_user(tmp_path: Path) -> None:
    """Links, folders on the path, and entries of a real other user instead of a fictitious one."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to("disk")
    assert works(DiskCache(tmp_path / "link" / "cache"))
    os.lchown(tmp_path / "link", 12345, -1)
    assert not works(DiskCache(tmp_path / "link" / "cache"))
    cache = DiskCache(tmp_path / "disk" / "cache")
    assert works(cache)
    os.chown(entry(cache), 12345, -1)
    assert cache.get(KEY) is None
    os.chown(tmp_path / "disk", 12345, -1)
    assert not works(cache)


def test_in_a_container_root_may_be_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All folders on the path belong to the overflow user. In a sticky folder, this user could be anyone."""
    real, stranger = os.fstat, 65534

    def fstat(handle: int) -> os.stat_result:
        found = real(handle)
        return os.stat_result((*found[:4], stranger, *found[5:])) if found.st_ino in outside else found

    (tmp_path / "home").mkdir()
    (tmp_path / "shared" / "taken").mkdir(parents=True)
    (tmp_path / "shared").chmod(0o1777)
    ways = tmp_path / "home" / "cache", tmp_path / "shared" / "taken" / "cache"
    assert all(works(DiskCache(way)) for way in ways)
    outside = {path.stat().st_ino for path in (ways[0].parent, ways[1].parent, ways[1].parents[1])}
    monkeypatch.setattr(os, "fstat", fstat)
    for unmapped, expected in ((None, [False, False]), (stranger, [True, False])):
        monkeypatch.setattr(private, "_unmapped_owner", lambda unmapped=unmapped: unmapped)
        assert [works(DiskCache(way)) for way in ways] == expected


def test_a_folder_that_is_replaced_after_it_was_checked(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    with private_folder(tmp_path / "ours", lambda _: True, create=True) as folder:
        (tmp_path / "ours").rename(tmp_path / "moved")
        (tmp_path / "ours").symlink_to(theirs)
        os.close(folder.create("entry"))
        with folder.folder("ab", create=True) as inner:
            os.close(inner.create("entry"))
        assert folder.names() == os.listdir(tmp_path / "moved")
    assert os.listdir(theirs) == []
    with private_folder(tmp_path / "moved", lambda _: True, create=False) as folder:
        (tmp_path / "moved" / "ab" / "entry").unlink()
        (tmp_path / "moved" / "ab").rmdir()
        (tmp_path / "moved" / "ab").symlink_to(theirs)
        with pytest.raises(OSError):
            folder.folder("ab", create=True)


def test_handles_are_given_back(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "cache")
    (tmp_path / "open").mkdir(mode=0o777)
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path)
    folder = Path("/proc/self/fd")
    if not folder.exists():
        pytest.skip("no list of open files")
    works(cache)
    before = len(list(folder.iterdir()))
    for _ in range(5):
        works(cache)
        works(DiskCache(tmp_path / "open"))
        works(DiskCache(tmp_path / "link" / "cache"))
        with contextlib.suppress(UnsafeFolder):
            private_folder(tmp_path / "open" / "none", lambda _: True, create=False)
    assert len(list(folder.iterdir())) == before


@pytest.mark.parametrize("value", ["", 123, b"bytes", 1.5, ["x"], "a\0b"])
def test_what_is_no_folder_for_a_cache(value: Any) -> None:
    g: Any = rlx.Graph("g")
    g.set_outputs([g.input("x", (2,)) + 1])
    with pytest.raises(rlx.Error, match="expected the path of a folder for the cache, got"):
        rlx.Session().compile(g, cache=value)


def test_variables_that_are_empty_are_not_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    expected = tmp_path / "home" / ".cache" / "rlx"
    for name, values in (("RLX_CACHE_DIR", [""]), ("XDG_CACHE_HOME", ["", "relative", "."])):
        for value in values:
            monkeypatch.delenv("RLX_CACHE_DIR", raising=False)
            monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
            monkeypatch.setenv(name, value)
            assert DiskCache().directory == expected
    monkeypatch.setenv("RLX_CACHE_DIR", "here")
    cache = DiskCache()
    monkeypatch.chdir("/")
    assert cache.directory == tmp_path / "here"
    monkeypatch.setenv("RLX_CACHE_DIR", "~no_such_user_at_all/x")
    with pytest.raises(rlx.Error, match="RLX_CACHE_DIR is '~no_such_user_at_all/x'"):
        DiskCache()


def test_in_a_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert works(DiskCache(tmp_path / "cache"))
    with pytest.raises(rlx.Error, match="relative to the current folder, which does not exist any more"):
        DiskCache("cache")


# --- entries ------------------------------------------------------------------------------------------


def packed(payload: bytes, key: str, length: int | None = None) -> bytes:
    """An intact entry."""
    digest = hashlib.sha256(key.encode() + payload).digest()
    return struct.pack("<4sIQ32s", b"RLXC", 2, len(payload) if length is None else length, digest) + payload


def fifo(path: Path) -> None:
    os.mkfifo(path)


def sparse(size: int, start: bytes = b"") -> Callable[[Path], None]:
    def make(path: Path) -> None:
        with open(path, "wb") as file:
            file.write(start)
            file.truncate(size)

    return make


def of_another_key(path: Path) -> None:
    path.write_bytes(packed(b"payload", fingerprint("another")))


ENTRIES: dict[str, Callable[[Path], object]] = {
    "a pipe": fifo,
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to the terminal": lambda path: path.symlink_to("/dev/tty"),
    "a link to nothing": lambda path: path.symlink_to("nothing"),
    "a folder": lambda path: path.mkdir(),
    "holes": sparse(1 << 40),
    "holes after a header": sparse((1 << 40) + 48, packed(b"", KEY, 1 << 40)),
    "holes of a size that is allowed": sparse((1 << 25) + 48, packed(b"", KEY, 1 << 25)),
    "holes of a size that would take long": sparse((1 << 30) + 48, packed(b"", KEY, 1 << 30)),
    "empty": lambda path: path.write_bytes(b""),
    "of another key": of_another_key,
    "of an older version": lambda path: path.write_bytes(
        struct.pack("<4sIQ32s", b"RLXC", 1, 7, hashlib.sha256(b"payload").digest()) + b"payload"
    ),
}


@pytest.mark.parametrize("name", ENTRIES)
def test_what_is_no_entry_is_a_miss(name: str, tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "cache")
    assert works(cache)
    path = entry(cache)
    path.unlink()
    ENTRIES[name](path)
    found: list[object] = []
    reader = threading.Thread(target=lambda: found.append(cache.get(KEY)), daemon=True)
    reader.start()
    reader.join(60)
    assert found == [None], "it hangs" if reader.is_alive() else found
    assert name == "a folder" or not os.path.lexists(path)
    assert works(cache) or name == "a folder"


def test_a_link_to_an_intact_entry_is_none(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "cache")
    assert works(cache)
    entry(cache).rename(tmp_path / "elsewhere")
    entry(cache).symlink_to(tmp_path / "elsewhere")
    assert cache.get(KEY) is None and (tmp_path / "elsewhere").exists()


def test_an_entry_that_is_larger_than_the_cache_is_not_read(tmp_path: Path) -> None:
    assert DiskCache(tmp_path / "cache").put(KEY, bytes(5000))
    assert DiskCache(tmp_path / "cache", max_bytes=1000).get(KEY) is None


def test_an_intact_entry_of_something_else_is_compiled_again(tmp_path: Path) -> None:
    """For any bytes, and for a program of another graph."""
    pytest.importorskip("jax")
    graphs = []
    for size in (2, 3):
        g: Any = rlx.Graph("g")
        g.set_outputs([g.input("x", (size,)) + size])
        graphs.append(g)
    disk = DiskCache(tmp_path / "cache")
    session = rlx.Session("xla")
    others = session.compile(graphs[1], cache=False).artifact
    session.compile(graphs[0], cache=disk)
    (path,) = (p for p in disk.directory.rglob("*.rlxc"))
    key = path.parent.name + path.stem
    good = path.read_bytes()
    for payload in (b"", b"nonsense", b"PK\x05\x06" + bytes(18), others.to_bytes()):
        path.write_bytes(packed(payload, key))
        compiled = session.compile(graphs[0], cache=disk)
        assert "cached" not in compiled.phases
        np.testing.assert_array_equal(compiled.run({"x": np.ones(2, np.float32)})[0], [3, 3])
        assert path.read_bytes() == good
    assert "cached" in session.compile(graphs[0], cache=disk).phases

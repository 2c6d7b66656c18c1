"""Atomic file replacement, even if the writing process dies."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import rlx
from rlx.support.files import (
    check_folder_writable,
    check_writable,
    read_bytes,
    read_json,
    replacing,
    write_atomically,
    write_folder,
)

posix = pytest.mark.skipif(os.name == "nt", reason="needs permissions, locks and special files")


def started(code: str, *arguments: object) -> subprocess.Popen[bytes]:
    """Start a process that runs code and reports when it reaches its `input()`."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)


STOPS_IN_THE_MIDDLE = """
import sys
from rlx.support.files import replacing
with replacing(sys.argv[1]) as temporary:
    open(temporary, "wb").write(b"half")
    print("half", flush=True)
    sys.stdin.readline()
    open(temporary, "wb").write(b"whole")
"""


@posix
def test_what_a_killed_save_left_is_removed_by_the_next_and_nothing_else_is(tmp_path: Path) -> None:
    names = ["model.rlxa", "m*[x]", "n" * 240]
    bystanders = [".model.rlx.backup12", ".model.rlx.0123abcd", "model.rlx-partial", ".model.rlx.notes.rlx-partial"]
    for bystander in bystanders:
        (tmp_path / bystander).write_bytes(b"a user's")
    dead = [started(STOPS_IN_THE_MIDDLE, tmp_path / name) for name in names]
    alive = started(STOPS_IN_THE_MIDDLE, tmp_path / "model.rlxa")
    for process in (*dead, alive):
        assert process.stdout is not None and process.stdout.readline() == b"half\n"
    for process in dead:
        process.kill()
        process.wait()
        process.communicate()
    left = set(os.listdir(tmp_path)) - set(bystanders)
    assert len(left) == len(dead) + 1
    for name in names:
        write_atomically(tmp_path / name, b"new")
    (partial,) = set(os.listdir(tmp_path)) - {*bystanders, *names}  # of the live process
    assert (tmp_path / partial).read_bytes() == b"half"
    alive.communicate(b"\n")
    assert alive.returncode == 0 and (tmp_path / "model.rlxa").read_bytes() == b"whole"
    assert sorted(os.listdir(tmp_path)) == sorted([*bystanders, *names])


@posix
def test_many_write_the_same_file_at_once(tmp_path: Path) -> None:
    """Each writer cleans up first, and none removes a file that another is about to move into place."""
    path, failed = tmp_path / "shared", []
    barrier = threading.Barrier(6)

    def work(letter: bytes) -> None:
        barrier.wait()
        try:
            for turn in range(60):
                write_atomically(path, letter * (1000 + turn))
        except Exception as problem:
            failed.append(problem)

    threads = [threading.Thread(target=work, args=(letter,)) for letter in (b"a", b"b", b"c", b"d", b"e", b"f")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == [] and os.listdir(tmp_path) == ["shared"]
    assert len(set(path.read_bytes())) == 1


@posix
def test_the_umask_is_heeded_and_never_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0o027)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(os, "umask", lambda _: pytest.fail("other threads make files meanwhile"))
            write_atomically(tmp_path / "new", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


@posix
@pytest.mark.parametrize("mode", [0o600, 0o444, 0o755, 0o664])
def test_a_file_keeps_its_permissions(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"old")
    path.chmod(mode)
    with replacing(path) as temporary:
        assert stat.S_IMODE(os.stat(temporary).st_mode) == 0o600
        Path(temporary).write_bytes(b"new")
    assert path.read_bytes() == b"new" and stat.S_IMODE(path.stat().st_mode) == mode


@posix
def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    link = tmp_path / "latest"
    link.symlink_to("folder/first")  # does not exist yet
    for content in (b"1", b"2"):
        write_atomically(link, content)
        assert link.is_symlink() and (tmp_path / "folder" / "first").read_bytes() == content
    assert os.listdir(tmp_path / "folder") == ["first"]
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    with pytest.raises(rlx.Error, match="cannot write"):
        write_atomically(loop, b"")


@posix
def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        write_atomically(pipe, b"through")
        assert reader.communicate()[0] == b"through"
    assert stat.S_ISFIFO(pipe.stat().st_mode) and os.listdir(tmp_path) == ["pipe"]
    write_atomically(os.devnull, b"nowhere")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


FULL = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
import rlx
from rlx.support.files import write_atomically
try:
    write_atomically(sys.argv[1], b"new" * 1000)
except rlx.Error as problem:
    print(problem)
"""


@posix
def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "model.rlxa"
    path.write_bytes(b"old")
    told = started(FULL, path).communicate()[0].decode()
    assert told.startswith(f"cannot write {path}:"), told
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["model.rlxa"]


@pytest.mark.parametrize("path", ["", "a\0b", b"bytes", 7, None, ["list"], 1.5])
def test_what_is_no_path_is_refused(path: object) -> None:
    for use in (read_bytes, lambda p: write_atomically(p, b"")):
        with pytest.raises(rlx.Error, match="expected the path of a file, got"):
            use(path)  # type: ignore[operator]


def test_what_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(rlx.Error, match="no such file"):
        read_bytes(tmp_path / "none")
    with pytest.raises(rlx.Error, match="cannot read"):
        read_bytes(tmp_path)
    (tmp_path / "long").write_bytes(bytes(100))
    assert len(read_bytes(tmp_path / "long", 100)) == 100
    with pytest.raises(rlx.Error, match="100 bytes, and at most 99 are read"):
        read_bytes(tmp_path / "long", 99)


@posix
def test_files_without_end_are_not_read_into_memory(tmp_path: Path) -> None:
    sparse = tmp_path / "sparse"
    with open(sparse, "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(rlx.Error, match="at most"):
        read_bytes(sparse)
    with pytest.raises(rlx.Error, match="more than 5000000 bytes"):
        read_bytes("/dev/zero", 5_000_000)


def test_names_are_not_too_long_for_a_temporary_file(tmp_path: Path) -> None:
    for name in ("x" * 255, "é" * 127):
        write_atomically(tmp_path / name, b"long")
        assert (tmp_path / name).read_bytes() == b"long"


def test_bytes_are_no_json(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(b"PK\x03\x04\x9d")
    with pytest.raises(rlx.Error, match="it is no JSON text"):
        read_json(path)


def test_a_folder_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    check_folder_writable(folder)
    for name in ("..", "a/b", "", "a\0"):
        with pytest.raises(rlx.Error, match="not the name of a file"):
            write_folder(folder, {"a": b"1", name: b"2"})
    with pytest.raises(rlx.Error, match="at most 255 bytes, and this one has 256"):
        write_folder(folder, {"a": b"1", "ä" * 128: b"2", "b": b"3"})
    for check, place in ((check_folder_writable, tmp_path / ("n" * 300)), (check_writable, tmp_path / ("n" * 300))):
        with pytest.raises(rlx.Error, match="at most 255 bytes, and this one has 300"):
            check(place)
    assert not folder.exists()
    write_folder(folder, {"a": b"1", "b": b"2"})
    (folder / "mine").write_bytes(b"3")
    (folder / "c").mkdir()
    for order in (("a", "c"), ("c", "a")):
        with pytest.raises(rlx.Error, match=r"cannot write .*c: "):
            write_folder(folder, dict.fromkeys(order, b"a folder is there"))
    write_folder(folder, {"b": b"new"})
    assert {f.name: f.read_bytes() for f in folder.iterdir() if f.is_file()} == {"a": b"1", "b": b"new", "mine": b"3"}
    for place in (folder / "a", tmp_path / "none" / "model", folder / "a" / "model"):
        with pytest.raises(rlx.Error, match="cannot write"):
            check_folder_writable(place)

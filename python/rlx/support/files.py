"""Reading and writing of complete files: a file is replaced as a whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import json
import mmap
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

from rlx.support.errors import Error
from rlx.support.short import short_repr

# Maximum size of a file that is read into memory.
LARGEST = 4 << 30
_LARGEST_STREAM = 1 << 30
_LARGEST_JSON = 64 << 20
_CHUNK = 1 << 20
_POINTER, _LONGEST_POINTER = b"version https://git-lfs.github.com/spec/", 1024
_PARTIAL = ".rlx-partial"
_LONGEST_NAME = 255  # maximum bytes of a file name on Linux, macOS and Windows
_LONGEST_PREFIX = 200  # bytes of a file's name that the name of its temporary file repeats
# The device and inode of each file that was read, while inputs are protected.
_inputs: set[tuple[int, int]] | None = None


def file_name(path: str | os.PathLike[str], what: str = "a file") -> str:
    """Return a path as text.

    Args:
        path: Text or an `os.PathLike`.
        what: A noun for the file, for messages.

    Raises:
        Error: The path has another type, is empty, or contains a NUL or half of a surrogate pair.
    """
    try:
        name = os.fspath(path)
    except TypeError:
        name = path
    if not isinstance(name, str) or not name or "\0" in name or not _can_be_encoded(name):
        raise Error(f"expected the path of {what}, got {short_repr(path)}")
    return name


def _can_be_encoded(name: str) -> bool:
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return True


def check_length(path: str, hint: str | None = None) -> None:
    """Check that file systems accept the last component of a path.

    Raises:
        Error: It is too long; the error has the given hint.
    """
    length = len(os.fsencode(os.path.basename(path)))
    if length > _LONGEST_NAME:
        problem = f"a file name has at most {_LONGEST_NAME} bytes, and this one has {length}"
        raise Error(f"cannot write {short_repr(path)}: {problem}", hint=hint)


@contextlib.contextmanager
def inputs_protected() -> Generator[None]:
    """Raise an error where a file would be replaced that was read before, also one that another file names.

    Commands run in this context, because their arguments do not name all files that they read: a model may name files
    with its weights.
    """
    global _inputs
    before, _inputs = _inputs, set()
    try:
        yield
    finally:
        _inputs = before


def note_input(status: os.stat_result) -> None:
    """Note that a file is read, for `inputs_protected`."""
    if _inputs is not None:
        _inputs.add((status.st_dev, status.st_ino))


def _check_no_input(name: str, status: os.stat_result | None) -> None:
    if status is not None and _inputs and (status.st_dev, status.st_ino) in _inputs:
        raise Error(f"{name} is also an input: this command has read it", hint="name another file")


def read_bytes(path: str | os.PathLike[str], limit: int = LARGEST) -> bytes:
    """Return the contents of a file.

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
                note_input(status)
                data = file.read()
                check_fetched(data, name)
                return data
            data = bytearray()  # a pipe, or a device that may be endless
            while chunk := file.read(_CHUNK):
                data += chunk
                if len(data) > min(limit, _LARGEST_STREAM):
                    raise Error(f"cannot read {name}: it has more than {min(limit, _LARGEST_STREAM)} bytes")
            return bytes(data)
    except FileNotFoundError:
        raise Error(f"no such file: {name}") from None
    except OSError as problem:
        raise Error(f"cannot read {name}: {problem.strerror or problem}") from None
    except MemoryError:
        raise Error(f"cannot read {name}: it does not fit into memory") from None


def check_fetched(content: bytes | mmap.mmap, name: str) -> None:
    """Check that a file is not a Git LFS pointer.

    Raises:
        Error: It is a pointer; the real file was not fetched.
    """
    if content[: len(_POINTER)] != _POINTER:
        return
    size = re.search(rb"^size (\d{1,18})$", content[:_LONGEST_POINTER], re.MULTILINE)
    of = f" of {int(size[1])} bytes" if size else ""
    raise Error(
        f"{name} is a pointer of Git LFS: the file{of} has not been fetched",
        hint="run 'git lfs install' once and 'git lfs pull' in its repository, or download the file itself",
    )


def read_json(path: str | os.PathLike[str]) -> Any:
    """Return the value in a JSON file.

    Raises:
        Error: The file is missing, too large, or not valid JSON, or an object in it repeats a name.
    """
    return parsed_json(read_bytes(path, _LARGEST_JSON), os.fspath(path))


def parsed_json(data: bytes | mmap.mmap, name: str) -> Any:
    """Return the value of JSON text; `name` is the file's name in messages. See `read_json`."""
    if len(data) > _LARGEST_JSON:
        raise Error(f"cannot read {name}: it has {len(data)} bytes, and at most {_LARGEST_JSON} are read")
    try:
        return json.loads(bytes(data).decode(), object_pairs_hook=unique_names)
    except UnicodeDecodeError:
        raise Error(f"cannot read {name}: it is no JSON text") from None
    except (ValueError, RecursionError) as problem:
        raise Error(f"cannot read {name}: {problem}") from None


def unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object, for `object_pairs_hook` of `json.loads`.

    A repeated name is an error, because other programs may use the other one of its values.

    Raises:
        ValueError: A name is repeated.
    """
    result = dict(pairs)
    if len(result) < len(pairs):
        found: set[str] = set()
        for name, _ in pairs:
            if name in found:
                raise ValueError(f"{name[:200]!r} occurs twice")
            found.add(name)
    return result


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file completely or not at all.

    Raises:
        Error: The directory cannot be written.
    """
    with replacing(path) as temporary:
        Path(temporary).write_bytes(data)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], *, durable: bool = False) -> Generator[str]:
    """Yield the name of a temporary file that replaces `path` at the end, unless an exception is raised.

    The temporary file is in the same folder and is locked. If this process is killed, the lock is released, and a later
    call for the same path removes the file. The replaced file keeps its permissions. A symbolic link stays a link. If
    `path` is a device or a pipe, the bytes are written to it.

    Args:
        path: The file.
        durable: Wait until the data is on the disk, so that a power failure leaves either the old file or the new one.

    Raises:
        Error: The directory cannot be written, the file is a protected input, or `path` is a directory.
    """
    name = file_name(path)
    try:
        status = _status(name)
        if status is not None and stat.S_ISDIR(status.st_mode):  # before others of several files are replaced
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if status is not None and not stat.S_ISREG(status.st_mode):
            with _passed_on(name) as temporary:
                yield temporary
            return
        _check_no_input(name, status)
        with _partial(Path(os.path.realpath(name)), status, durable) as temporary:
            yield temporary
    except OSError as problem:
        raise Error(f"cannot write {name}: {problem.strerror or problem}") from None


def write_folder(path: str | os.PathLike[str], files: Mapping[str, bytes], *, durable: bool = False) -> None:
    """Write files into a folder: all of them, or none. The folder is created if necessary, and its other files stay.

    Args:
        path: The folder. Its parent must exist.
        files: Contents by name.
        durable: Wait until the data is on the disk; see `replacing`.

    Raises:
        Error: The folder cannot be written, or a name is not a valid file name.
    """
    folder = file_name(path, "a folder")
    for name in files:
        if name in ("", ".", "..") or name != os.path.basename(name) or "\0" in name:
            raise Error(f"cannot write {folder}: {short_repr(name)} is not the name of a file in it")
        check_length(os.path.join(folder, name))
    with contextlib.ExitStack() as stack:
        try:
            if not os.path.isdir(folder):
                os.mkdir(folder)
                stack.callback(_remove_empty, folder)
            for name, data in files.items():
                Path(stack.enter_context(replacing(os.path.join(folder, name), durable=durable))).write_bytes(data)
        except OSError as problem:
            raise Error(f"cannot write {folder}: {problem.strerror or problem}") from None


def _remove_empty(folder: str) -> None:
    with contextlib.suppress(OSError):  # the folder has files
        os.rmdir(folder)


def check_folder_writable(path: str | os.PathLike[str]) -> None:
    """Check that a folder can be written or created, before work whose result goes there. Changes nothing.

    Raises:
        Error: The path is a file, the folder cannot be written, or its parent is missing or cannot be written.
    """
    name = file_name(path, "a folder")
    check_length(name.rstrip(os.sep))
    parent = os.path.dirname(os.path.realpath(name))
    if os.path.isdir(name):
        problem = 0 if os.access(name, os.W_OK) else errno.EACCES
    elif os.path.exists(name):
        problem = errno.ENOTDIR
    elif not os.path.isdir(parent):
        problem = errno.ENOTDIR if os.path.exists(parent) else errno.ENOENT
    else:
        problem = 0 if os.access(parent, os.W_OK) else errno.EACCES
    if problem:
        raise Error(f"cannot write {name}: {os.strerror(problem)}")


def check_writable(path: str | os.PathLike[str]) -> None:
    """Check that a file can be written, before work whose result goes there. Changes nothing.

    Raises:
        Error: The path is a folder, its name is too long, or its parent is missing or cannot be written.
    """
    name = file_name(path)
    check_length(name)
    folder = os.path.dirname(os.path.realpath(name))
    if os.path.isdir(name):
        problem = errno.EISDIR
    elif not os.path.isdir(folder):
        problem = errno.ENOTDIR if os.path.exists(folder) else errno.ENOENT
    elif not os.access(name if os.path.exists(name) and not os.path.isfile(name) else folder, os.W_OK):
        problem = errno.EACCES
    else:
        return
    raise Error(f"cannot write {name}: {os.strerror(problem)}")


def _status(name: str) -> os.stat_result | None:
    try:
        return os.stat(name)
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def _passed_on(name: str) -> Generator[str]:
    """Yield a temporary file whose bytes are copied to a device or a pipe at the end."""
    with tempfile.TemporaryDirectory(prefix="rlx-") as folder:
        temporary = os.path.join(folder, "output")
        yield temporary
        with open(temporary, "rb") as source, open(name, "wb") as sink:
            shutil.copyfileobj(source, sink)


@contextlib.contextmanager
def _partial(target: Path, status: os.stat_result | None, durable: bool) -> Generator[str]:
    """Yield a temporary file that replaces `target` at the end; `status` is the status of `target`."""
    sweep(target)
    temporary, handle = _create_locked(target)
    try:
        # The system has applied the umask to the new file. The umask itself can only be read by setting it, for all
        # threads.
        permissions = stat.S_IMODE(os.fstat(handle).st_mode) if status is None else stat.S_IMODE(status.st_mode)
        _permit(temporary, (0o600 | permissions) if status is None else 0o600)
        if os.name == "nt":  # Windows cannot replace a file that is open
            os.close(handle)
            handle = -1
        yield temporary
        _permit(temporary, permissions)
        if durable:
            _synchronise(temporary)
        os.replace(temporary, target)
        temporary = ""
        if durable and os.name != "nt":  # Windows cannot open folders
            _synchronise(target.parent)
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        if handle >= 0:
            os.close(handle)


def _create_locked(target: Path) -> tuple[str, int]:
    """Create a file in the folder of `target`, locked until this process closes it. Returns its name and handle."""
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
        os.close(handle)  # another process removed it before it was locked


def _permit(path: str, mode: int) -> None:
    with contextlib.suppress(OSError):  # the file system may have no permissions
        os.chmod(path, mode & 0o777)


def sweep(target: Path) -> None:
    """Remove temporary files for the same target whose process was killed. These files are no longer locked."""
    temporary_name = re.compile(re.escape(_prefix(target)) + r"[0-9a-f]{8}" + re.escape(_PARTIAL))
    with contextlib.suppress(OSError):
        for name in os.listdir(target.parent):
            if temporary_name.fullmatch(name):
                remove_abandoned(target.with_name(name))


def remove_abandoned(path: str | os.PathLike[str], dir_fd: int | None = None) -> None:
    """Remove a temporary file unless a running process has locked it. Does not raise."""
    flags = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    with contextlib.suppress(OSError):
        handle = os.open(path, flags, dir_fd=dir_fd)
        try:
            if stat.S_ISREG(os.fstat(handle).st_mode) and lock(handle, wait=False):
                os.unlink(path, dir_fd=dir_fd)
        finally:
            os.close(handle)


def lock(handle: int, *, wait: bool, shared: bool = False) -> bool:
    """Lock an open file until all of its handles are closed. Returns whether it was locked.

    Args:
        handle: The file.
        wait: Wait while another process holds the lock.
        shared: Let other processes take a shared lock as well.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        return False
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except OSError:  # another process holds the lock, or the file system has no locks
        return False
    return True


def _prefix(target: Path) -> str:
    return f".{os.fsencode(target.name)[:_LONGEST_PREFIX].decode(errors='ignore')}."


def _synchronise(path: str | os.PathLike[str]) -> None:
    """Wait until a file, or the entries of a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

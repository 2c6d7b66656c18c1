"""Folders to which only this user can write. Programs read from them are executed.

A folder is opened step by step from the root, each step relative to the handle of the previous folder, so that another user
cannot replace a folder meanwhile. Windows has neither these handles nor these permissions, and the checks are skipped there:
by default, other users cannot access a user's own folders.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

# Whether a folder has an owner and permissions, and files can be named relative to an open one.
CHECKED = (
    hasattr(os, "getuid") and {os.open, os.mkdir, os.stat, os.unlink, os.readlink, os.rename} <= os.supports_dir_fd
)

_MOST_LINKS = 40  # as in Linux
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_CLOSED = getattr(os, "O_CLOEXEC", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _CLOSED
# A folder on the path can be passed through even if it is not readable.
_STEP = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | _CLOSED
_NO_REDIRECTION = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | _CLOSED


class UnsafeFolder(OSError):
    """Another user could have put files into a folder."""

    def __str__(self) -> str:
        return str(self.args[0])


class Folder:
    """An open folder. Its files are accessed through its handle, so renaming or replacing the folder has no effect."""

    def __init__(self, path: Path, handle: int | None):
        self.path, self.handle = path, handle

    def __enter__(self) -> Folder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.handle is not None:
            os.close(self.handle)

    def name(self, name: str) -> Any:
        """The path of a file in the folder, for functions of `os` that take `dir_fd=folder.handle`."""
        return name if self.handle is not None else self.path / name

    def names(self) -> list[str]:
        """The names of all files in the folder."""
        return os.listdir(self.path if self.handle is None else self.handle)

    def open(self, name: str) -> int:
        """A handle to read a file of this user.

        Raises:
            OSError: The file does not exist, is a link, pipe, device or folder, or belongs to another user.
        """
        handle = os.open(self.name(name), os.O_RDONLY | _NO_REDIRECTION, dir_fd=self.handle)
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or (CHECKED and status.st_uid != os.geteuid()):
            os.close(handle)
            raise UnsafeFolder(f"{self.path / name} is not a file of this user")
        return handle

    def create(self, name: str) -> int:
        """A handle to write a new file, which only this user may read."""
        return os.open(self.name(name), os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_REDIRECTION, 0o600, dir_fd=self.handle)

    def replace(self, old: str, new: str) -> None:
        """Rename a file; a file that has the new name is replaced."""
        os.replace(self.name(old), self.name(new), src_dir_fd=self.handle, dst_dir_fd=self.handle)

    def unlink(self, name: str) -> None:
        """Remove a file."""
        os.unlink(self.name(name), dir_fd=self.handle)

    def folder(self, name: str, *, create: bool) -> Folder:
        """A folder in this one that other users cannot access.

        Raises:
            OSError: It does not exist and `create` is false, or it is a link or belongs to another user.
        """
        if create:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.name(name), 0o700, dir_fd=self.handle)
        if self.handle is None:
            return Folder(self.path / name, None)
        return _checked(os.open(name, _FOLDER | _NO_REDIRECTION, dir_fd=self.handle), self.path / name, lambda _: True)


def private_folder(path: Path, is_own: Callable[[str], bool], *, create: bool) -> Folder:
    """Open a folder of this user. Other users must not be able to write to it or to change its path.

    Every folder on the path, and on the paths of symbolic links, must belong to this user or to root. No other user may be able
    to write to it, unless it is sticky, as `/tmp` is. The folder itself must belong to this user. If other users can read it,
    and all files in it have names that `is_own` accepts, their permissions are removed.

    Args:
        path: An absolute path.
        is_own: Whether a name is the name of a file that RLX puts into the folder.
        create: Make the folder, and missing folders on the path, for this user alone.

    Raises:
        UnsafeFolder: Another user could change the folder or the path.
        OSError: It does not exist, or cannot be opened or made.
    """
    if not CHECKED:
        if create:
            path.mkdir(parents=True, exist_ok=True)
        return Folder(path, None)
    step = _open_path(path, create)
    try:
        handle = os.open(".", _FOLDER, dir_fd=step)
    finally:
        os.close(step)
    return _checked(handle, path, is_own)


def _open_path(path: Path, create: bool) -> int:
    """A handle of a folder, after a check that only this user and root can change the folders on its path."""
    handle = os.open(path.anchor, _STEP)
    try:
        names, links, place = list(reversed(path.parts[1:])), 0, Path(path.anchor)
        sticky = _check_step(os.fstat(handle), place, False)
        while names:
            name = names.pop()
            target = _link_target(name, handle, place, sticky)
            if target is None:
                next_handle = _step(name, handle, create)
            else:
                links += 1
                if links > _MOST_LINKS:
                    raise UnsafeFolder(f"{path} has too many symbolic links")
                names += reversed([part for part in target.parts if part != target.anchor])
                next_handle = os.open(target.anchor or ".", _STEP, dir_fd=handle)
                name = target.anchor or "."
            os.close(handle)
            handle, place = next_handle, place / name
            sticky = _check_step(os.fstat(handle), place, sticky)
        return handle
    except BaseException:
        os.close(handle)
        raise


def _step(name: str, handle: int, create: bool) -> int:
    """A handle of the next folder on a path. It is created if `create` is true."""
    try:
        return os.open(name, _STEP | _NO_REDIRECTION, dir_fd=handle)
    except FileNotFoundError:
        if not create:
            raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=handle)
    return os.open(name, _STEP | _NO_REDIRECTION, dir_fd=handle)


def _link_target(name: str, handle: int, place: Path, sticky: bool) -> Path | None:
    """The target of a symbolic link, or None if there is no link of this name."""
    try:
        status = os.stat(name, dir_fd=handle, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISLNK(status.st_mode):
        return None
    if not _trusted(status.st_uid, sticky):
        raise UnsafeFolder(f"the link {place / name} belongs to {_user(status.st_uid)}")
    return Path(os.readlink(name, dir_fd=handle))


def _check_step(status: os.stat_result, place: Path, in_sticky: bool) -> bool:
    """Check that only this user and root can replace the files in a folder on the path; returns whether it is sticky.

    Raises:
        UnsafeFolder: Others can change it.
    """
    if not _trusted(status.st_uid, in_sticky):
        raise UnsafeFolder(f"{place} belongs to {_user(status.st_uid)}, who can replace what is in it")
    sticky = bool(status.st_mode & stat.S_ISVTX)
    if _writable_by_others(status) and not sticky:
        raise UnsafeFolder(f"{place} is writable by others, who can replace what is in it")
    return sticky


def _trusted(owner: int, in_sticky: bool) -> bool:
    """Whether files of an owner can be changed only by this user and root.

    In unprivileged containers, root of the host has no user id inside the container: `/` and `/home` belong to the
    overflow user. This owner is treated as root, except in a sticky folder, where every user may create files.
    """
    return owner in (0, os.geteuid()) or (not in_sticky and owner == _unmapped_owner())


@cache
def _unmapped_owner() -> int | None:
    """The overflow user id, which represents all users without an id in this user namespace; None if all have one."""
    try:
        number = int(Path("/proc/sys/kernel/overflowuid").read_text())
        ranges = [list(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    except (OSError, ValueError):
        return None
    return None if any(first <= number < first + count for first, _, count in ranges) else number


def _checked(handle: int, path: Path, is_own: Callable[[str], bool]) -> Folder:
    """An open folder, after a check that it belongs to this user alone."""
    try:
        status = os.fstat(handle)
        if status.st_uid != os.geteuid():
            raise UnsafeFolder(f"{path} belongs to {_user(status.st_uid)}")
        if _writable_by_others(status):
            raise UnsafeFolder(f"{path} is writable by others, who may have put files into it")
        if status.st_mode & _OTHERS and all(map(is_own, os.listdir(handle))):
            with contextlib.suppress(OSError):  # a read-only file system: other users cannot write to it either
                os.fchmod(handle, 0o700)
        return Folder(path, handle)
    except BaseException:
        os.close(handle)
        raise


def _writable_by_others(status: os.stat_result) -> bool:
    others = status.st_mode & _OTHERS_WRITE
    return bool(others) and not (others == stat.S_IWGRP and _is_own_group(status.st_gid))


@cache
def _is_own_group(number: int) -> bool:
    """Whether a group has this user as its only member, and the user's name. Many systems create one for each user."""
    import grp
    import pwd

    try:
        group, user = grp.getgrgid(number), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return group.gr_name == user.pw_name and group.gr_gid == user.pw_gid and set(group.gr_mem) <= {user.pw_name}


def _user(number: int) -> str:
    import pwd

    try:
        return f"the user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"the user {number}"

"""Folders whose files nobody else can have written: what is read from them is run.

A folder is reached step by step from the root, each step through the handle of the one before, so that nobody can put
another in its place meanwhile. Windows has no such handles, and other permissions, which are not checked: there, a user's own
folders are closed to others by default.
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

_MOST_LINKS = 40  # as Linux has it
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_CLOSED = getattr(os, "O_CLOEXEC", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _CLOSED
# A folder on the way may be passed through without being readable.
_STEP = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | _CLOSED
_AS_IT_IS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | _CLOSED


class UnsafeFolder(OSError):
    """Somebody else could have put files into a folder."""

    def __str__(self) -> str:
        return str(self.args[0])


class Folder:
    """An open folder. What is done to its files is done through it, whatever becomes of its name meanwhile."""

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
        """What `os` takes as the path of a file in it, together with `dir_fd=folder.handle`."""
        return name if self.handle is not None else self.path / name

    def names(self) -> list[str]:
        """What is in it."""
        return os.listdir(self.path if self.handle is None else self.handle)

    def open(self, name: str) -> int:
        """A handle to read a file of ours.

        Raises:
            OSError: There is none; or it is a link, a pipe, a device, a folder, or another user's.
        """
        handle = os.open(self.name(name), os.O_RDONLY | _AS_IT_IS, dir_fd=self.handle)
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or (CHECKED and status.st_uid != os.geteuid()):
            os.close(handle)
            raise UnsafeFolder(f"{self.path / name} is no file of this user's")
        return handle

    def create(self, name: str) -> int:
        """A handle to write a file that is not there yet, and that only this user may read."""
        return os.open(self.name(name), os.O_RDWR | os.O_CREAT | os.O_EXCL | _AS_IT_IS, 0o600, dir_fd=self.handle)

    def replace(self, old: str, new: str) -> None:
        """Give a file the name of another, which goes."""
        os.replace(self.name(old), self.name(new), src_dir_fd=self.handle, dst_dir_fd=self.handle)

    def unlink(self, name: str) -> None:
        """Remove a file."""
        os.unlink(self.name(name), dir_fd=self.handle)

    def folder(self, name: str, *, create: bool) -> Folder:
        """A folder in this one, which is closed to others.

        Raises:
            OSError: It is not there and not to be made, or is a link or another user's.
        """
        if create:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.name(name), 0o700, dir_fd=self.handle)
        if self.handle is None:
            return Folder(self.path / name, None)
        return _own(os.open(name, _FOLDER | _AS_IT_IS, dir_fd=self.handle), self.path / name, lambda _: True)


def private_folder(path: Path, ours: Callable[[str], bool], *, create: bool) -> Folder:
    """A folder of this user's in which nobody else can write, on a way that nobody else can change.

    Every folder on the way, also by symbolic links, must belong to this user or to root, and be writable by nobody else
    unless it is sticky, as `/tmp` is. The folder itself must belong to this user. If others may look into it, and all that is
    in it is ours, it is closed to them.

    Args:
        path: An absolute path.
        ours: Whether something of that name is what we put there.
        create: Make it, and what is missing on the way, for this user alone.

    Raises:
        UnsafeFolder: It is none of these.
        OSError: It is not there, or cannot be opened or made.
    """
    if not CHECKED:
        if create:
            path.mkdir(parents=True, exist_ok=True)
        return Folder(path, None)
    step = _walked(path, create)
    try:
        handle = os.open(".", _FOLDER, dir_fd=step)
    finally:
        os.close(step)
    return _own(handle, path, ours)


def _walked(path: Path, create: bool) -> int:
    """A handle of a folder, reached by folders that only this user and root can change."""
    here = os.open(path.anchor, _STEP)
    try:
        names, links, place = list(reversed(path.parts[1:])), 0, Path(path.anchor)
        sticky = _check_step(os.fstat(here), place, False)
        while names:
            name = names.pop()
            target = _link_target(name, here, place, sticky)
            if target is None:
                following = _step(name, here, create)
            else:
                links += 1
                if links > _MOST_LINKS:
                    raise UnsafeFolder(f"{path} has too many symbolic links")
                names += reversed([part for part in target.parts if part != target.anchor])
                following = os.open(target.anchor or ".", _STEP, dir_fd=here)
                name = target.anchor or "."
            os.close(here)
            here, place = following, place / name
            sticky = _check_step(os.fstat(here), place, sticky)
        return here
    except BaseException:
        os.close(here)
        raise


def _step(name: str, here: int, create: bool) -> int:
    try:
        return os.open(name, _STEP | _AS_IT_IS, dir_fd=here)
    except FileNotFoundError:
        if not create:
            raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=here)
    return os.open(name, _STEP | _AS_IT_IS, dir_fd=here)


def _link_target(name: str, here: int, place: Path, sticky: bool) -> Path | None:
    """Where a symbolic link points to; None where there is none."""
    try:
        status = os.stat(name, dir_fd=here, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISLNK(status.st_mode):
        return None
    if not _trusted(status.st_uid, sticky):
        raise UnsafeFolder(f"the link {place / name} belongs to {_user(status.st_uid)}")
    return Path(os.readlink(name, dir_fd=here))


def _check_step(status: os.stat_result, place: Path, in_sticky: bool) -> bool:
    """Whether a folder on the way, which only this user and root can change, is one in which everybody may make things.

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
    """Whether what belongs to a user is not changed by anybody but us and root.

    In containers without privileges, root outside has no number inside: `/` and `/home` belong to "nobody". Such an owner is
    taken for root, except where everybody may make things.
    """
    return owner in (0, os.geteuid()) or (not in_sticky and owner == _unmapped_owner())


@cache
def _unmapped_owner() -> int | None:
    """The number that stands for all users who have none in this user namespace; None where there is no such."""
    try:
        number = int(Path("/proc/sys/kernel/overflowuid").read_text())
        ranges = [list(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    except (OSError, ValueError):
        return None
    return None if any(first <= number < first + count for first, _, count in ranges) else number


def _own(handle: int, path: Path, ours: Callable[[str], bool]) -> Folder:
    """An open folder, if it is this user's alone."""
    try:
        status = os.fstat(handle)
        if status.st_uid != os.geteuid():
            raise UnsafeFolder(f"{path} belongs to {_user(status.st_uid)}")
        if _writable_by_others(status):
            raise UnsafeFolder(f"{path} is writable by others, who may have put files into it")
        if status.st_mode & _OTHERS and all(map(ours, os.listdir(handle))):
            with contextlib.suppress(OSError):  # nothing can be changed: others could not either
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
    """Whether a group is the one that many systems make for each user, with the user's name and nobody else in it."""
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

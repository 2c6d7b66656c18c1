"""The temporary folder of a worker process. It is private, and its name is harmless in a shell.

A compiler may run its linker through a shell without quoting paths. The shell would then execute a folder name such as
``$(…)``, and linking would fail if the name has a space.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tempfile
import time
from pathlib import Path
from typing import IO

from rlx.support.errors import Error
from rlx.support.files import lock

_PREFIX = "rlx-worker-"
_HARMLESS = re.compile(r"[A-Za-z0-9/._+-]+")
_FALLBACKS = ("/tmp", "/var/tmp")
# A younger folder may belong to a process that is about to lock it.
_ABANDONED_AFTER_S = 60.0


def is_harmless(path: str | os.PathLike[str]) -> bool:
    """Whether a shell reads a path without quotes as one word, unchanged."""
    return os.name != "posix" or _HARMLESS.fullmatch(os.fspath(path)) is not None


def make_folder() -> Path:
    """A new folder that only this user can enter, in the system's temporary folder if its name is harmless.

    Raises:
        Error: No suitable folder can be made.
    """
    problems = []
    for parent in _parents():
        try:
            folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        except OSError as problem:
            problems.append(f"{parent}: {problem.strerror}")
            continue
        _remove_abandoned(parent)
        return folder
    reasons = "; ".join(problems) or (
        f"the name of {_system_folder()!r} is not harmless in a shell, and the others are not private"
    )
    raise Error(f"there is no folder for temporary files: {reasons}", hint="set TMPDIR to a folder with a plain name")


def open_stderr(folder: Path) -> IO[bytes]:
    """Open the file for a worker's standard error. It is locked, so the folder is not removed while it is open."""
    file = open(folder / "stderr", "w+b", buffering=0)  # noqa: SIM115
    lock(file.fileno(), wait=False, shared=True)
    return file


def _system_folder() -> str:
    try:
        return tempfile.gettempdir()
    except OSError:  # none of the usual temporary folders is writable
        return ""


def _parents() -> list[str]:
    """The folders in which a worker's folder may be made, best first."""
    preferred = _system_folder()
    chosen = [preferred] if preferred and is_harmless(preferred) else []
    if os.name == "posix":
        chosen += [place for place in _FALLBACKS if place != preferred and _is_safe_parent(place)]
    return chosen


def _is_safe_parent(parent: str) -> bool:
    """Whether no other user can rename or replace files of this user in a folder."""
    try:
        status = os.stat(parent)
    except OSError:
        return False
    shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return status.st_uid in (0, os.geteuid()) and (not shared or bool(status.st_mode & stat.S_ISVTX))


def _remove_abandoned(parent: str) -> None:
    """Remove the folders of workers that were killed together with their parents."""
    if os.name != "posix":
        return
    with contextlib.suppress(OSError):
        for entry in os.scandir(parent):
            if entry.name.startswith(_PREFIX):
                with contextlib.suppress(OSError):
                    _remove_if_abandoned(Path(entry.path))


def _remove_if_abandoned(folder: Path) -> None:
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        return
    if time.time() - status.st_mtime < _ABANDONED_AFTER_S:
        return
    with open(folder / "stderr", "rb") as file:
        if lock(file.fileno(), wait=False):  # not possible while the worker or its parent runs
            shutil.rmtree(folder, ignore_errors=True)

"""Tests of the installed jaxlib for known defects, in a separate process."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import sys
from functools import cache
from importlib import metadata
from pathlib import Path

import rlx
from rlx.support.errors import Error, ExecutionError
from rlx.targets.cache import DiskCache
from rlx.targets.hashes import fingerprint
from rlx.targets.worker.pool import WorkerPool
from rlx.targets.worker.process import Command, HandlerFailed, WorkerDied
from rlx.targets.xla import soundness_worker
from rlx.targets.xla.defects import DEFECTS, Defect

_TIMEOUT_S = 60.0
_pool = WorkerPool(1)


def version() -> str:
    """Return the version of jaxlib.

    Raises:
        Error: jaxlib is not installed.
    """
    if importlib.util.find_spec("jaxlib") is None:
        raise Error("XLA needs JAX, which is not installed", hint="pip install 'rlx[jax]'")
    return metadata.version("jaxlib")


def shows(defect: Defect, *, workaround: bool = True) -> bool:
    """Run the program of a defect in another process, and return whether the defect occurs.

    Args:
        defect: The defect.
        workaround: Whether to compile with the options of the workaround, if jaxlib has them.

    Raises:
        Error: The process cannot be started, or was killed.
    """
    request = {"kind": "defect", "name": defect.name, "workaround": workaround}
    try:
        return _pool.request(_command(), request, timeout_s=_TIMEOUT_S).header["shows"]
    except HandlerFailed as problem:
        raise Error(f"jaxlib {version()} cannot be checked: {problem!s:.1200}") from None
    except WorkerDied as problem:
        if problem.killed_from_outside:
            raise Error(f"jaxlib {version()} cannot be checked: the process {problem.reason}") from None
        return True


def found(*, again: bool = False) -> list[Defect]:
    """Return the defects that occur despite the workarounds. The result is cached on disk by jaxlib version and machine.

    Args:
        again: Ignore the cached result.

    Raises:
        Error: jaxlib is not installed, or the process cannot be started.
    """
    cached, key = DiskCache(), _key()
    stored = None if again else cached.get(key)
    if stored is not None:
        names = json.loads(stored)
        return [defect for defect in DEFECTS if defect.name in names]
    result = [defect for defect in DEFECTS if shows(defect)]
    cached.put(key, json.dumps([defect.name for defect in result]).encode())
    return result


def expect_sound() -> None:
    """Check that this jaxlib has no defects that its options do not avoid.

    Raises:
        ExecutionError: It has some.
    """
    if problem := refusal(found()):
        raise problem


def refusal(defects: list[Defect]) -> ExecutionError | None:
    """Return the error that names the defects of this jaxlib; None if there are none."""
    if not defects:
        return None
    listed = "; ".join(f"{defect.what} ({defect.name})" for defect in defects)
    return ExecutionError(
        f"jaxlib {version()} is not sound, and no option of it avoids this: {listed}",
        hint=f"install another version: pip install 'jaxlib!={version()}' 'jax!={version()}'; `rlx doctor` checks it",
    )


def _key() -> str:
    machine = (platform.node(), platform.machine(), os.environ.get("XLA_FLAGS", ""))
    programs = [repr((d.name, d.program, d.workaround, d.expected)) for d in DEFECTS]
    return fingerprint("soundness of jaxlib", version(), *machine, *programs)


@cache
def _command() -> Command:
    folders = (str(Path(rlx.__file__).parents[1]), *sys.path)
    return Command(soundness_worker.__file__, (), tuple(folder for folder in folders if folder))

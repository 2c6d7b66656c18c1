"""The worker process for libtpu."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from typing import Any

from rlx.support.errors import CompileError
from rlx.targets.tpu import worker
from rlx.targets.worker.pool import WorkerPool
from rlx.targets.worker.process import Command, HandlerFailed, WorkerDied

_HINT = "pip install 'rlx[tpu]', for Linux on x86-64"
_LONGEST = 1_200
default_pool = WorkerPool(1)


def version() -> str:
    """Return the versions of libtpu and JAX.

    Raises:
        CompileError: One of them is not installed.
    """
    for package in ("jax", "libtpu"):
        if importlib.util.find_spec(package) is None:
            raise CompileError(f"the target tpu needs the package '{package}', which is not installed", hint=_HINT)
    return " ".join(f"{name} {metadata.version(name)}" for name in ("libtpu", "jax", "jaxlib"))


def compiled(program: bytes, header: Mapping[str, Any], timeout_s: float | None = None) -> tuple[dict[str, Any], bytes]:
    """Compile a program. Returns the facts that the compiler reports, and the executable.

    Args:
        program: A portable StableHLO artifact.
        header: See `worker`.
        timeout_s: The time limit in seconds.

    Raises:
        CompileError: libtpu is not installed, rejects the program, crashes, or takes too long.
    """
    version()
    try:
        reply = default_pool.request(_command(), dict(header), program, timeout_s=timeout_s)
    except HandlerFailed as problem:
        raise CompileError(f"libtpu failed: {problem!s:.{_LONGEST}}", hint=_HINT) from None
    except WorkerDied as problem:
        why = f"took longer than {timeout_s} s" if problem.timed_out else problem.reason
        raise CompileError(f"libtpu's process {why}") from None
    if reply.header["outcome"] != "ok":
        raise CompileError(f"libtpu refuses the program: {reply.header['message']:.{_LONGEST}}")
    return dict(reply.header["facts"]), reply.body


@cache
def _command() -> Command:
    # JAX finds libtpu in the folders of packages.
    return Command(worker.__file__, (), tuple(folder for folder in sys.path if folder))

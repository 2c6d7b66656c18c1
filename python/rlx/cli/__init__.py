"""The commands `rlx`, `rlx-opt` and `rlx-run`."""

import atexit
import contextlib
import importlib
import itertools
import os
import signal
import sys
from collections.abc import Generator
from typing import Any

INTERRUPTED = 130  # a shell's exit code for a program that was ended by SIGINT


def _is_command() -> bool:
    """Return whether this process is only a command."""
    name = os.path.splitext(os.path.basename(sys.argv[0] if sys.argv else ""))[0]
    return name in ("rlx", "rlx-opt", "rlx-run") or any(
        option == "-m" and (module == "rlx" or module.startswith("rlx.cli."))
        for option, module in itertools.pairwise(sys.orig_argv)
    )


def _quit(*_: Any) -> None:
    os._exit(INTERRUPTED)


# An interrupt during the imports of a command would print a traceback. Nothing has started yet, so the process exits at
# once.
_early = _is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler
_was_interrupted = False


def _leave() -> None:
    if _was_interrupted:
        os._exit(INTERRUPTED)


if _early:
    signal.signal(signal.SIGINT, _quit)
    atexit.register(_leave)  # exit handlers run in reverse order of registration


def interrupted() -> int:
    """Return the exit code after a `KeyboardInterrupt`.

    If the interrupt occurs inside `exec` of a text, as in `dataclass`, Python would end the process with the signal
    although the exception was caught.
    """
    global _was_interrupted
    _was_interrupted = _early
    return INTERRUPTED


def heed_interrupts() -> None:
    """From here on, an interrupt raises `KeyboardInterrupt`, because there may be something to clean up.

    The modules that most commands need are imported first. NumPy and MLIR's bindings crash if an import in their C code
    raises an exception.
    """
    if not _early:
        return
    for name in ("numpy", "ml_dtypes", "rlx.mlir", "rlx.ops"):
        with contextlib.suppress(Exception):  # a command reports missing packages that it needs
            importlib.import_module(name)
    signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def ended_by_interrupts() -> Generator[None]:
    """In this context, an interrupt kills the process: Python handles signals only after compiled code returns."""
    before = signal.signal(signal.SIGINT, signal.SIG_DFL) if _early else None
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def ignore_interrupts() -> None:
    """Ignore interrupts after the command. Python cleans up now, and must not print errors if it is interrupted."""
    if _early:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

"""The commands `rlx` and `rlx-opt`."""

import atexit
import contextlib
import importlib
import itertools
import os
import signal
import sys
from typing import Any

INTERRUPTED = 130  # what a shell reports of a program that died of SIGINT


def _is_command() -> bool:
    """Whether this process is a command, and nothing else."""
    name = os.path.splitext(os.path.basename(sys.argv[0] if sys.argv else ""))[0]
    return name in ("rlx", "rlx-opt") or any(
        option == "-m" and module.startswith("rlx.cli.") for option, module in itertools.pairwise(sys.orig_argv)
    )


def _quit(*_: Any) -> None:
    os._exit(INTERRUPTED)


# An interrupt while a command is being imported would show where: nothing has begun, so it may end at once.
_early = _is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler
_was_interrupted = False


def _leave() -> None:
    if _was_interrupted:
        os._exit(INTERRUPTED)


if _early:
    signal.signal(signal.SIGINT, _quit)
    atexit.register(_leave)  # the first that is registered runs last


def interrupted() -> int:
    """The exit code after a `KeyboardInterrupt`.

    Where that came through the `exec` of a text, as it does in `dataclass`, Python would end itself by the signal instead, even
    though it was caught.
    """
    global _was_interrupted
    _was_interrupted = _early
    return INTERRUPTED


def heed_interrupts() -> None:
    """From here on an interrupt is a `KeyboardInterrupt`: there may be something to clean up.

    What most of the work needs is imported first. NumPy and the bindings of MLIR crash when an exception comes out of the
    Python modules that their C code imports.
    """
    if not _early:
        return
    for name in ("numpy", "ml_dtypes", "rlx.mlir", "rlx.ops"):
        with contextlib.suppress(Exception):  # the command itself says what is missing, if it needs it
            importlib.import_module(name)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def ignore_interrupts() -> None:
    """The command is over: what follows is Python's own tidying, which must not be seen failing."""
    if _early:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

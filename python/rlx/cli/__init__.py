"""The commands `rlx` and `rlx-opt`."""

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
if _early:
    signal.signal(signal.SIGINT, _quit)


def heed_interrupts() -> None:
    """From here on an interrupt is a `KeyboardInterrupt`: there may be something to clean up."""
    if _early:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def ignore_interrupts() -> None:
    """The command is over: what follows is Python's own tidying, which must not be seen failing."""
    if _early:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

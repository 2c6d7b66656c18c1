"""Exit codes and error messages of the commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from rlx.cli import ignore_interrupts, interrupted
from rlx.cli.streams import prepare_streams, reader_has_gone, say


def exit_code(program: str, run: Callable[[Sequence[str]], int], argv: Sequence[str] | None) -> int:
    """Run a command line and return its exit code.

    User errors are printed to standard error as one message, without a traceback unless `RLX_TRACEBACK=1`.

    Args:
        program: The name of the command, for messages.
        run: Runs the words of the command line and returns the exit code.
        argv: The words; None for those of this process.
    """
    prepare_streams()
    try:
        return run(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt:
        if wants_traceback():
            raise
        return interrupted()
    except BrokenPipeError:
        return reader_has_gone()
    except Exception as problem:
        from rlx.support.errors import Error

        if wants_traceback() or not isinstance(problem, (Error, OSError)):
            raise
        say(f"{program}: error: {problem}", stream=sys.stderr)
        return 1
    finally:
        ignore_interrupts()


def wants_traceback() -> bool:
    """Return whether `RLX_TRACEBACK` requests tracebacks."""
    return os.environ.get("RLX_TRACEBACK", "") not in ("", "0")

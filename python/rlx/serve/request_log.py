"""The log of a server: a line for each request on standard error, and failures with their traceback."""

from __future__ import annotations

import logging
import traceback

from rlx.support.printable import printable

LOGGER = logging.getLogger("rlx.serve")
_LONGEST = 200  # characters of a path


def log_request(client: str, method: str, path: str, status: int | str, seconds: float) -> None:
    """Write a line for a request."""
    shown = path if len(path) <= _LONGEST else f"{path[:_LONGEST]}…"
    LOGGER.info("%s", printable(f"{client} {method} {shown} {status} {seconds:.3f} s", keep=""))


def log_problem(problem: BaseException) -> None:
    """Write a failure that is not a mistake of the client."""
    LOGGER.error("%s", printable("".join(traceback.format_exception(problem)).rstrip()))

"""Check of a grammar in another process.

The library compiles a grammar with recursion and without a limit of time, so that a hostile one could exhaust the stack
or the time of this process. The other process has a small stack and limits of time and memory. A grammar that it
compiles is safe here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from rlx.llm.grammar.library_messages import library_error
from rlx.support.errors import Error, UnsupportedError
from rlx.support.packages import import_package

_SECONDS, _WAITING_SECONDS = 5, 30  # of processor time, and of time where that cannot be limited
_MOST_BYTES = 4 << 30
LIMITS = {"max_items_in_row": 20_000, "step_max_items": 5_000_000, "verbose_errors": False}
_SCRIPT = Path(__file__).with_name("isolated_check.py")


def llguidance() -> Any:
    """Return the package `llguidance`.

    Raises:
        Error: It is not installed.
    """
    return import_package("llguidance", "a grammar or a schema")


def isolated_problem(source: str, name: str, *, has_places: bool) -> Error | None:
    """Return the mistake of a grammar that is not valid or does not compile within limits; None if there is none.

    Args:
        source: The grammar in Lark.
        name: The option that it is from, for messages.
        has_places: Whether the lines of the grammar are those of the option.

    Raises:
        Error: The other process cannot be started.
        UnsupportedError: The path of Python is not known.
    """
    folder = str(Path(llguidance().__file__).parents[1])
    if not sys.executable:
        raise UnsupportedError("a grammar is checked in another process, and the path of Python is not known")
    words = [sys.executable, "-I", str(_SCRIPT), folder, str(_SECONDS), str(_MOST_BYTES), json.dumps(LIMITS)]
    try:
        result = subprocess.run(
            words, input=source.encode(), capture_output=True, timeout=_WAITING_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return Error(f"{name} is too complex: compiling it takes more than {_WAITING_SECONDS} seconds")
    except OSError as problem:
        raise Error(f"cannot check {name} in another process: {problem}") from None
    if result.returncode:
        return Error(f"{name} is too complex: it exhausts the stack, the time or the memory of a compilation")
    if message := result.stdout.decode("utf-8", "replace").strip():
        return library_error(message, source, name, has_places=has_places)
    return None

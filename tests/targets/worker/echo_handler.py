"""The handler of the tests' worker processes: it returns its request, or misbehaves."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any


def make(*arguments: str) -> Callable[[dict[str, Any], bytes], tuple[dict[str, Any], bytes]]:
    def answer(header: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        if header["kind"] == "hang":
            time.sleep(60)
        if header["kind"] == "exit":
            os._exit(3)
        if header["kind"] == "raise":
            raise ValueError("not this one")
        return {"arguments": arguments, "folder": os.environ["TMPDIR"]}, body

    return answer

"""The handler for `rlx.targets.worker` that runs the programs of `defects.py`, which may end the process.

A request is ``{"kind": "defect", "name": …, "workaround": true}``. The reply's header has the entry ``shows``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


def make(*_: str) -> Callable[[dict[str, Any], bytes], tuple[dict[str, Any], bytes]]:
    """The function that answers requests."""
    numpy: Any = importlib.import_module("numpy")
    client: Any = importlib.import_module("rlx.targets.xla.client")
    defects: Any = importlib.import_module("rlx.targets.xla.defects")
    errors: Any = importlib.import_module("rlx.support.errors")
    by_name = {defect.name: defect for defect in defects.DEFECTS}
    client.jax()

    def shows(defect: Any, workaround: bool) -> bool:
        options = client.known_options(defects.WORKAROUNDS) if workaround else ()
        try:
            executable = client.XlaExecutable(defect.program, workarounds=options)
            (result,) = executable(client.to_device(list(defect.arguments())))
            values = client.to_host(result).ravel()
        except (errors.CompileError, errors.ExecutionError):
            return True
        return bool(numpy.float64(values[-1]) != defect.expected)

    def answer(header: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        return {"outcome": "ok", "shows": shows(by_name[header["name"]], header["workaround"])}, b""

    return answer

"""Dialects that RLX emits and that MLIR's bindings do not know: those of IREE's compiler, CIRCT and Shardy."""

from __future__ import annotations

import re
from typing import Any

_EMITTED = ("flow", "hal", "stream", "util", "comb", "hw", "seq", "sv", "sdy")
_EMITTED_OPS = re.compile(rf'["#!](?:{"|".join(_EMITTED)})\.'.encode())


def has_emitted_ops(data: bytes) -> bool:
    """Return whether a module, as text, has ops, types or attributes of these dialects."""
    return _EMITTED_OPS.search(data) is not None


def check_dialects(module: Any) -> None:
    """Check that the ops of a module are of these dialects, or known to MLIR.

    Raises:
        Error: An op is unknown.
    """
    from rlx import mlir
    from rlx.ir.location import describe
    from rlx.support.errors import Error

    context = mlir.context()
    unknown: list[Any] = []

    def check(op: Any) -> Any:  # an exception here would not keep its type
        if op.name.partition(".")[0] not in _EMITTED and not context.is_registered_operation(op.name):
            unknown.append(op)
            return mlir.ir.WalkResult.INTERRUPT
        return mlir.ir.WalkResult.ADVANCE

    if context.allow_unregistered_dialects:
        module.operation.walk(check)
    if unknown:
        hint = "correct it, or allow ops of any dialect by --allow-unregistered-dialect"
        raise Error(f"there is no op '{unknown[0].name}'", location=describe(unknown[0].location), hint=hint)

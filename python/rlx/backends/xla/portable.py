"""Portable StableHLO artifacts: bytecode that other versions of StableHLO, and so XLA, IREE and JAX, can read."""

from __future__ import annotations

from typing import Any

from rlx import mlir
from rlx.ir.text import verify_module

# The version that added the newest op that the lowering emits (tan): readers of this and later versions accept artifacts.
VERSION = "1.4.0"


def to_portable(lowered: Any) -> bytes:
    """A StableHLO module as a portable artifact.

    The module cannot be used afterwards: serialising turns it into another dialect, in place.
    """
    verify_module(lowered)
    return mlir.stablehlo().serialize_portable_artifact(lowered, VERSION)

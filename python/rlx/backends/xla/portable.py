"""Portable StableHLO artifacts: the bytecode that XLA, IREE and JAX read, of other versions than ours too."""

from __future__ import annotations

from typing import Any

from rlx import mlir
from rlx.ir.text import verify_module

# The newest op that the lowering emits, tan, is of this version: every reader since then takes an artifact.
VERSION = "1.4.0"


def to_portable(lowered: Any) -> bytes:
    """A StableHLO module as a portable artifact.

    The module is used up: serialising turns it into another dialect, in place.
    """
    verify_module(lowered)
    return mlir.stablehlo().serialize_portable_artifact(lowered, VERSION)

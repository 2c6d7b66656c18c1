"""`rlx-copies-to-loops`: converts copies between memrefs to loops. They would otherwise become library calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.passes.base import Pass


@dataclass(frozen=True)
class CopiesToLoops(Pass, name="rlx-copies-to-loops"):
    """Convert `memref.copy` to `linalg.copy`, so that copies of parts need no library.

    Run it after one-shot-bufferize, before convert-linalg-to-loops.
    """

    def run(self, module: mlir.Module) -> None:
        copies: list[Any] = []

        def visit(op: mlir.Operation) -> Any:
            if op.name == "memref.copy":
                copies.append(op)
            return mlir.ir.WalkResult.ADVANCE

        mlir.walk(module, visit)
        for op in copies:
            source, target = op.operands
            with op.location, mlir.ir.InsertionPoint(op):
                mlir.dialect("linalg").copy(source, outs=[target])
            op.erase()

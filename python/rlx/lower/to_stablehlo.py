"""`rlx-to-stablehlo`: rlx ops into StableHLO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.lower.stablehlo import lower_module
from rlx.passes.base import Pass


@dataclass(frozen=True)
class ToStablehlo(Pass, name="rlx-to-stablehlo"):
    """Lower rlx ops to StableHLO.

    Every op must be one that the lowering claims: run rlx-lower-blocks and rlx-decompose first. Every size must be
    static: run rlx-bind.
    """

    def run(self, module: Any) -> None:
        lowered = lower_module(module)
        for op in list(module.body.operations):
            op.operation.erase()
        with mlir.ir.InsertionPoint(module.body):
            for op in list(lowered.body.operations):
                op.operation.detach_from_parent()
                mlir.ir.InsertionPoint(module.body).insert(op)
        attributes = module.operation.attributes
        if "rlx.stage" in attributes:
            del attributes["rlx.stage"]

"""`rlx-to-linalg`: rlx ops into linalg, tensor, arith and math."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.lower.linalg import lower_module
from rlx.passes.base import Pass, option


@dataclass(frozen=True)
class ToLinalg(Pass, name="rlx-to-linalg"):
    """Lower rlx ops to linalg, tensor, arith and math.

    Every op must be one that the lowering claims: run rlx-lower-blocks and rlx-decompose first.
    """

    for_iree: bool = option(False, "use IREE's util dialect: weights and states become globals instead of arguments")

    def run(self, module: Any) -> None:
        lowered = lower_module(module, for_iree=self.for_iree)
        for op in list(module.body.operations):
            op.operation.erase()
        with mlir.ir.InsertionPoint(module.body):
            for op in list(lowered.body.operations):
                op.operation.detach_from_parent()
                mlir.ir.InsertionPoint(module.body).insert(op)
        attributes = module.operation.attributes
        if "rlx.stage" in attributes:
            del attributes["rlx.stage"]

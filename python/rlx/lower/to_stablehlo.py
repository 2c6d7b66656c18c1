"""`rlx-to-stablehlo`: rlx ops into StableHLO."""

from __future__ import annotations

from dataclasses import dataclass

from rlx import mlir
from rlx.lower.stablehlo import claimed_ops, lower_module
from rlx.passes.base import Pass
from rlx.passes.rewrite import replace_body


@dataclass(frozen=True)
class ToStablehlo(Pass, name="rlx-to-stablehlo"):
    """Lower rlx ops to StableHLO.

    Every op must be one that the lowering claims: run rlx-lower-blocks and rlx-decompose{for=rlx-to-stablehlo} first.
    Every size must be static: run rlx-bind.
    """

    @classmethod
    def lowered_ops(cls) -> frozenset[str]:
        return claimed_ops()

    def run(self, module: mlir.Module) -> None:
        replace_body(module, lower_module(module))

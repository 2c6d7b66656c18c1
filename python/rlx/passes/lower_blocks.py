"""`rlx-lower-blocks`: lowering from HIR to MIR."""

from __future__ import annotations

from dataclasses import dataclass

from rlx import mlir
from rlx.passes.base import Pass
from rlx.passes.rewrite import block_names, decompose_all, set_stage


@dataclass(frozen=True)
class LowerBlocks(Pass, name="rlx-lower-blocks", exact=True, idempotent=True):
    """Replace every HIR block by primitives and set the stage to MIR. `rlx-fuse` creates fused ops from primitives."""

    def run(self, module: mlir.Module) -> None:
        decompose_all(module, block_names())
        set_stage(module, "mir")

"""`rlx-lower-blocks`: from HIR to MIR."""

from __future__ import annotations

from dataclasses import dataclass

from rlx import mlir
from rlx.passes.base import Pass
from rlx.passes.rewrite import block_names, decompose_all, set_stage


@dataclass(frozen=True)
class LowerBlocks(Pass, name="rlx-lower-blocks", exact=True, idempotent=True):
    """Replace every HIR block by primitives; then the module is at stage mir. `rlx-fuse` makes fused ops of primitives."""

    def run(self, module: mlir.Module) -> None:
        decompose_all(module, block_names())
        set_stage(module, "mir")

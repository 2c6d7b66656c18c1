"""`rlx-lower-blocks`: from HIR to MIR."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx.passes.base import Pass, option
from rlx.passes.rewrite import block_names, decompose_all, set_stage

# Module attribute: the policy that the author of a HIR module chose (`GraphModule.with_fusion_policy`).
POLICY = "rlx.fusion_policy"
POLICIES = ("direct", "fusable")


@dataclass(frozen=True)
class LowerBlocks(Pass, name="rlx-lower-blocks"):
    """Replace every HIR block by tensor ops; the module is at stage mir then.

    Under the policy `direct` blocks become fused ops, under `fusable` primitives, which transforms such as autodiff
    and the fusion passes see through.
    """

    policy: str | None = option(None, "fused ops or primitives; by default what the module says, else direct", choices=POLICIES)

    def run(self, module: Any) -> None:
        attributes = module.operation.attributes
        declared = attributes[POLICY].value if POLICY in attributes else "direct"
        decompose_all(module, block_names(), fusion_policy=self.policy or declared)
        if POLICY in attributes:
            del attributes[POLICY]
        set_stage(module, "mir")

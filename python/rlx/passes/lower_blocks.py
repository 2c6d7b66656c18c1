"""`rlx-lower-blocks`: from HIR to MIR."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx.ir.signature import POLICIES, POLICY_ATTRIBUTE, policy_of
from rlx.passes.base import Pass, option
from rlx.passes.rewrite import block_names, decompose_all, set_stage


@dataclass(frozen=True)
class LowerBlocks(Pass, name="rlx-lower-blocks"):
    """Replace every HIR block by tensor ops; the module is at stage mir then.

    Under the policy `direct` blocks become fused ops, under `fusable` primitives, which transforms such as
    autodiff and the fusion passes see through.
    """

    policy: str | None = option(
        None, "fused ops or primitives; by default what the module says, else direct", choices=POLICIES
    )

    def run(self, module: Any) -> None:
        attributes = module.operation.attributes
        declared = policy_of(module.operation) or "direct"
        decompose_all(module, block_names(), fusion_policy=self.policy or declared)
        if POLICY_ATTRIBUTE in attributes:
            del attributes[POLICY_ATTRIBUTE]
        set_stage(module, "mir")

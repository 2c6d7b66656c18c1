"""`rlx-to-linalg`: rlx ops into linalg, tensor, arith and math."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx.lower.linalg import claimed_ops, lower_module
from rlx.passes.base import Pass, option
from rlx.passes.rewrite import replace_body


@dataclass(frozen=True)
class ToLinalg(Pass, name="rlx-to-linalg"):
    """Lower rlx ops to linalg, tensor, arith and math.

    Every op must be one that the lowering claims: run rlx-lower-blocks and rlx-decompose{for=rlx-to-linalg} first.
    """

    for_iree: bool = option(False, "use IREE's util dialect: weights and states become globals instead of arguments")

    @classmethod
    def lowered_ops(cls) -> frozenset[str]:
        return claimed_ops()

    def run(self, module: Any) -> None:
        replace_body(module, lower_module(module, for_iree=self.for_iree))

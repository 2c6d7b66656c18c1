"""`rlx-to-stablehlo`: lowering of rlx ops to StableHLO."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.passes.base import Pass, option
from rlx.passes.rewrite import replace_body
from rlx.support.errors import PassError
from rlx.targets.stablehlo import lower_module
from rlx.targets.stablehlo.rules import RULES


@dataclass(frozen=True)
class ToStablehlo(Pass, name="rlx-to-stablehlo"):
    """Lower rlx ops to StableHLO.

    Every op must have a lowering rule: run rlx-lower-blocks and rlx-decompose{for=rlx-to-stablehlo} first.
    Every size must be static: run rlx-bind.
    """

    shardings: bool = option(
        False, "write the mesh and shardings in the dialect sdy (Shardy), which needs --allow-unregistered-dialect"
    )

    @classmethod
    def rules(cls) -> Mapping[str, Callable[..., Any]]:
        return RULES

    def run(self, module: mlir.Module) -> None:
        if self.shardings and not mlir.context().allow_unregistered_dialects:
            raise PassError(
                "shardings=true emits ops of the dialect sdy, which is not registered here",
                hint="rlx-opt takes them with --allow-unregistered-dialect",
            )
        replace_body(module, lower_module(module, "sdy" if self.shardings else None))

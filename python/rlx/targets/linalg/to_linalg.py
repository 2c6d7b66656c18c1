"""`rlx-to-linalg`: lowering of rlx ops to linalg, tensor, scf, arith, math and complex."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.passes.base import Pass
from rlx.passes.rewrite import replace_body
from rlx.targets.linalg import lower_module
from rlx.targets.linalg.rules import RULES


@dataclass(frozen=True)
class ToLinalg(Pass, name="rlx-to-linalg"):
    """Lower rlx ops to linalg, tensor, scf, arith, math and complex.

    Every op must have a lowering rule: run rlx-lower-blocks and rlx-decompose{for=rlx-to-linalg} first. All result ops are
    upstream MLIR. Parameters and states stay arguments of their functions, marked by attributes.
    """

    @classmethod
    def rules(cls) -> Mapping[str, Callable[..., Any]]:
        return RULES

    def run(self, module: mlir.Module) -> None:
        replace_body(module, lower_module(module))

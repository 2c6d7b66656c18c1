"""`rlx-to-linalg`: rlx ops into linalg, tensor, scf, arith, math and complex."""

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

    Every op must be one that the lowering claims: run rlx-lower-blocks and rlx-decompose{for=rlx-to-linalg} first. All ops
    are upstream MLIR's; parameters and states stay arguments of their functions, told apart by their attributes.
    """

    @classmethod
    def rules(cls) -> Mapping[str, Callable[..., Any]]:
        return RULES

    def run(self, module: mlir.Module) -> None:
        replace_body(module, lower_module(module))

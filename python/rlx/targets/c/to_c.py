"""`rlx-to-c`: lowering of rlx ops to C, as text in the module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir.graph.graph import Graph
from rlx.passes.base import Pass
from rlx.passes.rewrite import replace_body
from rlx.targets.c.lower.files import files_of
from rlx.targets.c.lower.program import CSource
from rlx.targets.c.lower.rules import RULES
from rlx.targets.lowering.table import empty_module


@dataclass(frozen=True)
class ToC(Pass, name="rlx-to-c"):
    """Lower rlx ops to C99, as one `emitc.verbatim` in the module for each file.

    Every op must have a lowering rule: run rlx-lower-blocks and rlx-decompose{for=rlx-to-c} first.
    """

    @classmethod
    def rules(cls) -> Mapping[str, Callable[..., Any]]:
        return RULES

    def run(self, module: mlir.Module) -> None:
        texts = files_of(CSource(Graph.from_module(module)))
        with mlir.entered():
            ir, emitc = mlir.ir, mlir.dialect("emitc")
            lowered = empty_module(module)
            with ir.InsertionPoint(lowered.body), ir.Location.unknown():
                for name, text in texts.items():
                    emitc.VerbatimOp(f"// {name}\n{text}", [])
        replace_body(module, lowered)

"""`rlx-to-stablehlo`: lowering of rlx ops to StableHLO."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from rlx import mlir
from rlx.ir.op.signature import functions, is_public
from rlx.passes.base import Pass, option
from rlx.passes.rewrite import replace_body
from rlx.targets.stablehlo import lower_module
from rlx.targets.stablehlo.rules import RULES
from rlx.targets.stablehlo.sharding import Form


@dataclass(frozen=True)
class ToStablehlo(Pass, name="rlx-to-stablehlo"):
    """Lower rlx ops to StableHLO.

    Every op must have a lowering rule: run rlx-lower-blocks and rlx-decompose{for=rlx-to-stablehlo} first.
    Every size must be static: run rlx-bind.
    """

    shardings: str = option(
        "none",
        "how the mesh and shardings are written: in the dialect sdy (Shardy), or as text, which is all that portable "
        "artifacts hold",
        choices=("none", "sdy", "text"),
    )
    entry: str = option("", "the name that the public function gets, if there is only one")
    cpu: bool = option(
        False, "whether to emit the forms that XLA's CPU client runs fastest, instead of those for every reader"
    )

    @property
    def emits_unregistered(self) -> bool:
        return self.shardings == "sdy"

    @classmethod
    def rules(cls) -> Mapping[str, Callable[..., Any]]:
        return RULES

    def run(self, module: mlir.Module) -> None:
        form = None if self.shardings == "none" else cast(Form, self.shardings)
        replace_body(module, lower_module(module, form, cpu=self.cpu))
        public = [function for function in functions(module) if is_public(function)]
        if self.entry and len(public) == 1:
            public[0].attributes["sym_name"] = mlir.ir.StringAttr.get(self.entry)

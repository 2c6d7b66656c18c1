"""`rlx-simplify`: removes arithmetic and shape ops that do nothing."""

from __future__ import annotations

from dataclasses import dataclass

from rlx import mlir
from rlx.passes import simplify_rules
from rlx.passes.base import Pass
from rlx.passes.pattern import patterns_in, rewrite

_PATTERNS = patterns_in(simplify_rules)


@dataclass(frozen=True)
class Simplify(Pass, name="rlx-simplify", exact=True, idempotent=True):
    """Remove ops that do nothing and join ops that undo each other.

    Exact up to the sign of a zero (`x + 0` is `x`). An op whose removal could lose a NaN stays, so `x·0` becomes 0
    only for integers.
    """

    def run(self, module: mlir.Module) -> None:
        rewrite(module, _PATTERNS, self.name)

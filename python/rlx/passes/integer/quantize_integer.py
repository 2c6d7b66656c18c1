"""`rlx-quantize-integer`: integer ops from ops on dequantised values."""

from __future__ import annotations

from dataclasses import dataclass

from rlx import mlir
from rlx.passes.base import Pass
from rlx.passes.integer import arithmetic, moves, products
from rlx.passes.pattern import patterns_in, rewrite

# Products with a bias come before other sums.
_PATTERNS = (*patterns_in(products), *patterns_in(moves), *patterns_in(arithmetic))


@dataclass(frozen=True)
class QuantizeInteger(Pass, name="rlx-quantize-integer", idempotent=True):
    """Replace ops on dequantised values whose result is quantised by integer ops: i32 products, fixed-point numbers, tables.

    Scales, zero points and weights must be constants: run `rlx-bind-params` first, and not `rlx-constant-fold`. Ops
    without an integer form stay between rlx.dequantize and rlx.quantize.
    """

    # A result halfway between two integers may be rounded to the other one.
    preserves_results = False

    def run(self, module: mlir.Module) -> None:
        rewrite(module, _PATTERNS, self.name)

"""`rlx-quantize-integer`: ops on integers, out of ops on what these were made floats."""

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
    """Make integer ops of what reads dequantised and is quantised: products in i32, fixed-point numbers, tables.

    Scales, zero points and weights depend on constants alone: run `rlx-bind-params` first, and not `rlx-constant-fold`. What
    has no form in integers stays, between an rlx.dequantize and an rlx.quantize.
    """

    # A result that lies in the middle of two integers may be rounded to the other one.
    preserves_results = False

    def run(self, module: mlir.Module) -> None:
        rewrite(module, _PATTERNS, self.name)

"""`rlx-drop-fake-quantize`: removal of fake quantisation of activations in models trained for quantisation."""

from __future__ import annotations

from dataclasses import dataclass

from rlx import mlir
from rlx.ir.op import opview
from rlx.passes.base import Pass
from rlx.passes.rewrite import collect
from rlx.passes.simplification.invariants import depends_on_weights


@dataclass(frozen=True)
class DropFakeQuantize(Pass, name="rlx-drop-fake-quantize", idempotent=True):
    """Remove rlx.fake_quantize and rlx.fake_quantize_lsq of activations, but not those of weights.

    The scales of weights are used later. `rlx-quantize-values` rounds activations by calibrated ranges.
    """

    preserves_results = False

    def run(self, module: mlir.Module) -> None:
        for op in collect(module, ("fake_quantize", "fake_quantize_lsq")):
            if depends_on_weights(op.operands[0]):
                continue
            op.results[0].replace_all_uses_with(op.operands[0])
            if not any(opview.is_used(r) for r in op.results):
                op.erase()

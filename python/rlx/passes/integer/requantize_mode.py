"""`rlx-requantize-mode`: conversion of fixed-point multipliers to another mode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.op import views
from rlx.ops.quantization.requantize import BITS, fixed_point
from rlx.passes.base import Pass, option
from rlx.passes.integer.operands import constant
from rlx.passes.rewrite import builder_before, collect, replace


@dataclass(frozen=True)
class RequantizeMode(Pass, name="rlx-requantize-mode", idempotent=True):
    """Convert the constant multipliers of rlx.requantize to another mode, with 16 instead of 32 bits or with a single rounding.

    Ops with a shift that the mode does not support, or with multipliers that are not constants, are not changed.
    """

    preserves_results = False  # a result halfway between two integers may be rounded to the other one

    mode: str = option("short", "the mode of rlx.requantize", choices=tuple(BITS))

    def run(self, module: mlir.Module) -> None:
        for op in collect(module, ("requantize",)):
            self._rewrite(views.Requantize(op))

    def _rewrite(self, op: views.Requantize) -> None:
        multiplier, shift = constant(op.multiplier), constant(op.shift)
        if op.mode == self.mode or multiplier is None or shift is None:
            return
        real = multiplier.astype(np.float64) * np.exp2(shift.astype(np.float64) - BITS[op.mode])
        if not np.all((real >= 0) & (real < 2.0 ** (BITS[self.mode] - 1))):
            return
        b = builder_before(op.operation, self.name)
        factors: Any = map(b.constant, fixed_point(real, self.mode))
        result = b.requantize(b.tensor(op.x), *factors, zero_point=op.zero_point, mode=self.mode, dtype=op.dtype)
        replace(op.operation, [result.value])

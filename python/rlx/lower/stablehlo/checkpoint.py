"""What is computed again is computed late."""

from __future__ import annotations

from rlx.ir.shape import Shape
from rlx.lower.stablehlo.emitter import Emitter
from rlx.lower.stablehlo.rules import Lowered, lowers


@lowers("optimization_barrier")
def optimization_barrier(emit: Emitter, results: list[Shape], inputs: list[Lowered]) -> tuple[Lowered, ...]:
    return emit.op("optimization_barrier", inputs, results)

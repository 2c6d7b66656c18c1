"""`rlx-iree-loop-slices`: writes tensors to memory if the steps of a loop read slices of them.

Otherwise IREE computes the slice of a step in that step: a product before the loop becomes many products inside it.
Quirk: `loop-slices`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.targets.iree.passes.base import IreePass, every, in_memory, maker_of
from rlx.targets.iree.passes.sizes import is_inside


@dataclass(frozen=True)
class LoopSlices(IreePass, name="rlx-iree-loop-slices"):
    """Write tensors to memory before a loop if its steps read slices of them, for IREE."""

    def run(self, module: mlir.Module) -> None:
        for loop in reversed(every(module, lambda op: op.name == "scf.for")):  # outer loops first
            _compute_before(loop)


def _compute_before(loop: Any) -> None:
    rows: dict[Any, list[Any]] = {}
    for op in every(loop, lambda op: op.name == "tensor.extract_slice"):
        source = op.operands[0]
        is_of_step = any(is_inside(offset, loop) for offset in op.opview.offsets)
        if is_of_step and not is_inside(source, loop) and not _is_in_memory(source):
            rows.setdefault(source, []).append(op)
    for source, ops in rows.items():
        with loop.location, mlir.ir.InsertionPoint(loop):
            fenced = in_memory(source)
        for op in ops:
            op.operands[0] = fenced


def _is_in_memory(value: Any) -> bool:
    maker = maker_of(value)
    return maker is not None and maker.name in ("util.optimization_barrier", "flow.tensor.tie_shape")

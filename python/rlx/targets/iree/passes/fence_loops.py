"""`rlx-iree-fence-loops`: waits for the carries of a loop at the end of each step.

Otherwise IREE submits the steps of a loop without waiting, and the semaphores of its Vulkan driver are signalled in another
order than they are waited for. Mesa then reports a lost device. Quirk: `steps-overtaken`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.targets.iree.passes.base import IreePass, every, in_memory, maker_of

_BRANCHES = ("cf.br", "cf.cond_br")
_AVAILABLE = ("util.optimization_barrier", "flow.tensor.tie_shape", "arith.constant", "util.global.load")


@dataclass(frozen=True)
class FenceLoops(IreePass, name="rlx-iree-fence-loops"):
    """Wait for the tensors that a branch passes on, for IREE's Vulkan driver."""

    def run(self, module: mlir.Module) -> None:
        for branch in every(module, lambda op: op.name in _BRANCHES):
            with branch.location, mlir.ir.InsertionPoint(branch):
                fenced: dict[Any, Any] = {}
                for number, value in enumerate(branch.operands):
                    if isinstance(value.type, mlir.ir.RankedTensorType) and _is_computed(value):
                        if value not in fenced:
                            fenced[value] = in_memory(value)
                        branch.operands[number] = fenced[value]


def _is_computed(value: Any) -> bool:
    """Whether a value is computed by an op that the branch does not wait for."""
    maker = maker_of(value)
    return maker is not None and maker.name not in _AVAILABLE

"""`rlx-iree-splats`: makes reductions of splat tensors read them from memory.

IREE's CPU code replaces the sum or product of a splat vector by the splat constant, so the mean of n ones becomes 1/n. Quirk:
`splats-reduced`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.targets.iree.passes.base import IreePass, every, in_memory, maker_of
from rlx.targets.iree.passes.fence_reductions import reduces

_MOVES = (
    "tensor.expand_shape",
    "tensor.collapse_shape",
    "tensor.extract_slice",
    "linalg.transpose",
    "linalg.broadcast",
)


@dataclass(frozen=True)
class Splats(IreePass, name="rlx-iree-splats"):
    """Make reductions of splat tensors read them from memory, for IREE."""

    def run(self, module: mlir.Module) -> None:
        known: dict[Any, bool] = {}
        for op in every(module, reduces):
            inputs = list(op.operands)[: len(op.operands) - len(op.results)]
            if inputs and all(_is_same_everywhere(value, known) for value in inputs):
                with op.location, mlir.ir.InsertionPoint(op):
                    op.operands[0] = in_memory(inputs[0])


def _is_same_everywhere(value: Any, known: dict[Any, bool]) -> bool:
    """Whether all elements of a value are known to be equal, or to be irrelevant."""
    maker = maker_of(value)
    if maker is None:
        return False
    if maker not in known:
        known[maker] = False
        known[maker] = _gives_one_number(maker, known)
    return known[maker]


def _gives_one_number(op: Any, known: dict[Any, bool]) -> bool:
    if op.name in ("linalg.fill", "tensor.empty", "tensor.splat"):
        return True
    if op.name == "arith.constant":
        value = op.attributes["value"]
        return isinstance(value, mlir.ir.DenseElementsAttr) and value.is_splat
    if op.name in _MOVES:
        return _is_same_everywhere(op.operands[0], known)
    if op.name != "linalg.generic" or reduces(op) or any(_is_position(i.operation) for i in op.regions[0].blocks[0]):
        return False
    inputs = list(op.operands)[: len(op.operands) - len(op.results)]
    return all(_is_same_everywhere(v, known) for v in inputs)


def _is_position(op: Any) -> bool:
    return op.name in ("linalg.index", "tensor.extract")

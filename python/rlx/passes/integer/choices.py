"""Choices between functions of one tensor, such as `where(x > 0, x, exp(x) - 1)`: detection of their intermediate values."""

from __future__ import annotations

from rlx import mlir
from rlx.ir.dtype import f32
from rlx.ir.op import opview, registry
from rlx.ir.shape import shape_of
from rlx.passes.simplification.invariants import depends_on_weights

_CHOICE = "rlx.where"


def parts_of_choices(operations: list[mlir.Operation]) -> set[mlir.Value]:
    """Return the values of a block that are elementwise functions of one tensor and only used by a choice.

    An op that combines choices of one tensor is treated as a choice. These values are not rounded separately: their user
    becomes one table, indexed by that tensor.
    """
    position = {op: i for i, op in enumerate(operations)}
    found: set[mlir.Value] = set()
    for op in operations:
        if (_is_elementwise(op) and len(_read(op)) > 1) or op.name == _CHOICE:
            parts = _parts(op, position)
            if op.name == _CHOICE or any(v.owner.operation.name == _CHOICE for v in parts):
                found |= parts
    return found


def _parts(choice: mlir.Operation, position: dict[mlir.Operation, int]) -> set[mlir.Value]:
    """Return the values between an op and the only tensor that it depends on; empty if there is no such tensor."""
    dims = shape_of(choice.results[0]).dims
    pending, parts = _read(choice), set[mlir.Value]()
    while len(pending) != 1 or not _is_tensor(next(iter(pending)), dims):
        made = [v for v in pending if isinstance(v, mlir.ir.OpResult)]
        last = max(made, key=lambda v: position.get(v.owner.operation, -1), default=None)
        if last is None or not _is_elementwise(last.owner.operation) or shape_of(last).dims != dims:
            return set()
        parts.add(last)
        pending = (pending - {last}) | _read(last.owner.operation)
    makers = {v.owner.operation for v in parts} | {choice}
    return parts if all(use.owner.operation in makers for v in parts for use in v.uses) else set()


def _read(op: mlir.Operation) -> set[mlir.Value]:
    return {v for v in op.operands if not depends_on_weights(v)}


def _is_tensor(value: mlir.Value, dims: object) -> bool:
    return shape_of(value).dtype is f32 and shape_of(value).dims == dims


def _is_elementwise(op: mlir.Operation) -> bool:
    return registry.is_ours(op) and opview.has_trait(op, "elementwise") and len(op.results) == 1 and not len(op.regions)

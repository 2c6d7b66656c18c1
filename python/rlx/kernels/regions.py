"""Regions of elementwise ops that become kernels: which ops they have, and how they are made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.graph.builder import Builder
from rlx.ir.op import opview, registry
from rlx.ir.shape import shape_of
from rlx.kernels.elementwise import has_code
from rlx.kernels.pulled import number_of
from rlx.passes.fusion.fuse_elementwise_regions import clusters, fuse_region, is_fusable

REGION = "elementwise_region"
# Ops whose operands IREE computes before them, and ops whose results it stores.
_APART_READERS = ("matmul", "dot_general", "conv", "elementwise_region")
_APART_MAKERS = ("concat", "constant", "elementwise_region")


def make_regions(block: mlir.Block, note: str) -> Iterator[mlir.Operation]:
    """Join elementwise ops of a block that a compiler of tensors would not fuse with others, and yield the regions.

    Args:
        block: The block.
        note: The name of the pass.
    """
    constants = _constants(block)
    groups = [*clusters(block, _is_member, with_reductions=False)]
    for members in [m for m in groups if not all(op.results[0] in constants for op in m)]:
        if not _is_apart(members):
            continue
        for op in members:
            _read_numbers(op)
        region = fuse_region(block, members, note, copies_constants=False)
        if region is not None:
            yield region


def _is_member(op: mlir.Operation) -> bool:
    return is_fusable(op) and opview.kernel_of(op) is None and has_code(op)


def _read_numbers(op: mlir.Operation) -> None:
    """Make the constants that an op reads tensors without axes, so that regions with other numbers share code."""
    for i, value in enumerate(op.operands):
        if isinstance(value, mlir.ir.OpResult) and _is_number(value.owner.operation) and shape_of(value).rank:
            builder = Builder(mlir.ir.InsertionPoint(op), op.location)
            number = np.asarray(number_of(value.owner.operation))
            op.operands[i] = builder.emit("constant", (), value=number).value


def _is_apart(members: Iterable[mlir.Operation]) -> bool:
    """Whether IREE would not fuse a group of ops with others: around it are kernels, products that read it, and arguments."""
    inside = {op.results[0] for op in members}
    for op in members:
        if any(type(d) is not int for d in shape_of(op.results[0]).dims):
            return False
        users = [use.owner for v in op.results for use in v.uses]
        outside = [user for user in users if not (user.results and user.results[0] in inside)]
        if not all(map(_is_stored, [v for v in op.operands if v not in inside])) or not all(
            map(_reads_stored, outside)
        ):
            return False
    return True


def _is_stored(value: mlir.Value) -> bool:
    """Whether IREE would store a value, instead of fusing what computes it with elementwise ops that read it."""
    if not isinstance(value, mlir.ir.OpResult):
        return True
    op = value.owner.operation
    if op.name == "rlx.reshape":
        return _is_stored(op.operands[0])
    return registry.is_ours(op) and (opview.name_of(op) in _APART_MAKERS or _is_apart_op(op))


def _reads_stored(owner: Any) -> bool:
    """Whether IREE would not fuse an op with elementwise ops that compute its operands."""
    op = owner.operation
    if op.name == "rlx.reshape":
        return all(_reads_stored(use.owner) for use in op.results[0].uses)
    return registry.is_ours(op) and (opview.name_of(op) in _APART_READERS or _is_apart_op(op))


def _is_apart_op(op: mlir.Operation) -> bool:
    return opview.kernel_of(op) is not None or _is_member(op)


def _constants(block: mlir.Block) -> set[mlir.Value]:
    """Return the values of a block that depend on no argument: IREE computes them once."""
    found: set[mlir.Value] = set()
    for op in (o.operation for o in block.operations):
        if not len(op.regions) and all(v in found for v in op.operands):
            found.update(op.results)
    return found


def _is_number(op: mlir.Operation) -> bool:
    return opview.name_of(op) == "constant" and has_code(op)

"""`rlx-iree-bindings`: limits the number of tensors that a kernel reads and writes, and the size of its code.

IREE fuses chains of elementwise ops into one kernel, and adjacent ops on tensors of one element into another one, regardless of
the number of tensors. A program with a kernel of more than 32 tensors cannot be loaded. Quirk: `many-bindings`.

The time to compile a kernel grows faster than the number of its scalar ops, and to store a tensor takes much less time than to
compute its elements by hundreds of ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.targets.iree.passes.base import RESHAPES, IreePass, every, is_elementwise, keep_in_memory, maker_of

# The limit for tensors that a kernel reads. The tensors that it writes are additional, including intermediate results for
# other kernels.
_MOST = 16
# The limit for the scalar ops of a chain of elementwise ops.
_LONGEST = 1000
_VIEWS = (*RESHAPES, "tensor.extract_slice", "tensor.concat")
_FREE = ("tensor.empty", "arith.constant", "linalg.fill")


@dataclass(frozen=True)
class Bindings(IreePass, name="rlx-iree-bindings"):
    """Split chains of ops that IREE would fuse into a kernel with too many tensors, by storing intermediate tensors."""

    def run(self, module: mlir.Module) -> None:
        _shorten_chains(module)
        _split_chains(module)
        for op in every(module, lambda op: len(op.regions) > 0 and not op.name.startswith("linalg.")):
            for region in op.regions:
                for block in region.blocks:
                    _split_scalars([inner.operation for inner in block.operations])


def _shorten_chains(module: Any) -> None:
    lengths: dict[
        Any, int
    ] = {}  # the number of scalar ops that compute an element of each value that is fused into its users
    for op in every(module, _is_fused):
        own = len(op.regions[0].blocks[0].operations) if is_elementwise(op) else 0
        inside = {v for v in op.operands if v in lengths}
        while own + sum(lengths[v] for v in inside) > _LONGEST:
            longest = max(filter(_is_only_read, inside), key=lengths.__getitem__, default=None)
            if longest is None or lengths[longest] < _LONGEST // 4:
                break
            keep_in_memory(longest)
            inside.remove(longest)
            del lengths[longest]
        lengths.update(dict.fromkeys(op.results, own + sum(lengths[v] for v in inside)))


def _split_chains(module: Any) -> None:
    read: dict[Any, frozenset[Any]] = {}  # the tensors read by each value that is fused into its users
    for op in every(module, _is_fused):
        found = _read_by(op, read)
        while len(found) > _MOST:
            inside = (v for v in op.operands if v in read and _is_only_read(v))
            largest = max(inside, key=lambda v: len(read[v]), default=None)
            if largest is None or len(read[largest]) < 2:
                break
            del read[largest]
            keep_in_memory(largest)
            found = _read_by(op, read)
        read.update(dict.fromkeys(op.results, found))


def _is_fused(op: Any) -> bool:
    return op.name in _VIEWS or is_elementwise(op)


def _read_by(op: Any, read: dict[Any, frozenset[Any]]) -> frozenset[Any]:
    """Return the tensors that a kernel for an op reads, and the intermediate tensors that it may write for other readers."""
    found: set[Any] = set()
    for operand in op.operands:
        maker = maker_of(operand)
        if maker is None or maker.name not in _FREE:
            found |= read.get(operand, {operand})
            if operand in read and any(not _is_fused(use.owner.operation) for use in operand.uses):
                found.add(operand)
    return frozenset(found)


def _is_only_read(value: Any) -> bool:
    """Whether no op writes into a tensor. IREE would allow the write even if other ops read the tensor from memory."""
    for use in value.uses:
        reader, number = use.owner.operation, use.operand_number
        if reader.name in ("linalg.generic", "tensor.insert_slice"):
            inputs = reader.attributes["operandSegmentSizes"][0] if reader.name == "linalg.generic" else 1
            if number >= inputs:
                return False
        elif reader.name not in (*_VIEWS, "func.return", "scf.yield"):
            return False
    return True


def _split_scalars(ops: Sequence[Any]) -> None:
    """Split the kernel for ops on single elements of a block at the limit. An op after a stored result is in another kernel."""
    inside: set[Any] = set()  # the results of the ops of this kernel
    bindings: set[Any] = set()
    for op in ops:
        if not _is_on_single_elements(op):
            continue
        inside.update(op.results)
        bindings.update(v for v in (*op.operands, *op.results) if not _is_within(v, inside))
        if len(bindings) > _MOST and _is_only_read(op.results[0]):
            keep_in_memory(op.results[0])
            inside, bindings = set(), set()


def _is_within(value: Any, inside: set[Any]) -> bool:
    """Whether a value needs no binding: it is a constant or similar, or the kernel both computes it and is its only reader."""
    maker = maker_of(value)
    if maker is not None and maker.name in _FREE:
        return True
    readers = [use.owner.operation for use in value.uses]
    return value in inside and len(readers) == 1 and _is_on_single_elements(readers[0])


def _is_on_single_elements(op: Any) -> bool:
    return is_elementwise(op) and all(map(_is_single, (*op.operands, *op.results)))


def _is_single(value: Any) -> bool:
    type_ = value.type
    if not isinstance(type_, mlir.ir.RankedTensorType):
        return True
    return type_.has_static_shape and all(size == 1 for size in type_.shape)

"""`rlx-iree-loop-buffers`: gives separate memory to tensors that loops carry or read.

Quirks: `loop-buffers`, `loop-slices`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.backends.iree.passes.base import IreePass, every, in_memory, maker_of, source_of
from rlx.backends.iree.passes.copies import copied, in_own_buffer, zeros
from rlx.backends.iree.passes.sizes import is_inside

_LOOPS = ("scf.for", "scf.while")


@dataclass(frozen=True)
class LoopBuffers(IreePass, name="rlx-iree-loop-buffers"):
    """Give each carry of a loop a separate buffer, and compute tensors that a loop reads before the loop, for IREE."""

    def apply(self, module: Any) -> None:
        loops = every(module, lambda op: op.name in _LOOPS)
        for loop in reversed(loops):  # outer loops first
            if loop.name == "scf.for":
                _compute_before(loop)
            _separate(loop)
        for op in every(module, lambda op: op.name in (*_LOOPS, "scf.if")):
            for block in (b for region in op.regions for b in region.blocks):
                _pass_on_once(block.operations[len(block.operations) - 1].operation)


# --- what a loop reads ---------------------------------------------------------------------------


def _compute_before(loop: Any) -> None:
    """Compute in memory the tensors of which the steps of a loop read rows.

    Otherwise IREE computes the slice that a step reads in that step: a product before the loop becomes many products inside.
    """
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


# --- what a loop carries --------------------------------------------------------------------------


def _separate(loop: Any) -> None:
    """Give separate buffers to the initial values of a loop with several carries.

    IREE puts values with the same lifetime into one buffer. A loop then passes this buffer on several times, and the VM may
    have moved the reference away before the last time: such a program fails when it runs.
    """
    first = 3 if loop.name == "scf.for" else 0
    carried = [i for i, v in enumerate(loop.operands) if i >= first and isinstance(v.type, mlir.ir.RankedTensorType)]
    if len(carried) < 2 or _is_one_kernel(loop, [loop.operands[i] for i in carried]):
        return
    for i in carried:
        value = loop.operands[i]
        if not _is_carry_of_outer_loop(value, loop):
            with loop.location, mlir.ir.InsertionPoint(loop):
                loop.operands[i] = in_own_buffer(zeros(value) if _is_empty(value) else copied(value))
            if _is_empty(value) and not list(value.uses):
                value.owner.operation.erase()


def _pass_on_once(end: Any) -> None:
    """Let a terminator pass on each tensor once: each repetition is replaced with a copy in a separate buffer.

    Otherwise the VM may keep the reference in place for one of the carries, and move it away for the next.
    """
    passed: set[Any] = set()
    for i, value in enumerate(end.operands):
        if not isinstance(value.type, mlir.ir.RankedTensorType):
            continue
        source = source_of(value)
        if source in passed:
            with end.location, mlir.ir.InsertionPoint(end):
                end.operands[i] = in_own_buffer(copied(value))
        passed.add(source)


def _is_one_kernel(loop: Any, initial: Sequence[Any]) -> bool:
    """Whether one kernel computes all initial values, and one kernel all next values: then they may share a buffer."""
    block = loop.regions[-1].blocks[0]
    following = block.operations[len(block.operations) - 1].operands
    kernels = [{_kernel_of(v) for v in values} for values in (initial, following)]
    return all(len(each) == 1 and None not in each for each in kernels)


def _kernel_of(value: Any) -> Any:
    maker = maker_of(source_of(value))
    return maker if maker is not None and maker.name == "linalg.generic" else None


def _is_carry_of_outer_loop(value: Any, loop: Any) -> bool:
    """Whether a value is a carry of the enclosing loop and only used by this loop: then it has a separate buffer."""
    if isinstance(value, mlir.ir.OpResult) or value.owner.owner.operation.name not in _LOOPS:
        return False
    return [use.owner.operation for use in value.uses] == [loop]


def _is_empty(value: Any) -> bool:
    maker = maker_of(value)
    return maker is not None and maker.name == "tensor.empty"

"""`rlx-iree-loop-buffers`: gives separate memory to tensors that loops carry or read.

Quirks: `loop-buffers`, `loop-slices`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.backends.iree.passes.base import IreePass, create, elementwise, every, hidden, in_memory, maker_of
from rlx.backends.iree.passes.sizes import dynamic_sizes, is_inside

_LOOPS = ("scf.for", "scf.while")
_VIEWS = ("tensor.expand_shape", "tensor.collapse_shape", "tensor.extract_slice")


@dataclass(frozen=True)
class LoopBuffers(IreePass, name="rlx-iree-loop-buffers"):
    """Give each carry of a loop a separate buffer, and compute tensors that a loop reads before the loop, for IREE."""

    def apply(self, module: Any) -> None:
        loops = every(module, lambda op: op.name in _LOOPS)
        for loop in reversed(loops):  # outer loops first
            if loop.name == "scf.for":
                _compute_before(loop)
            _separate(loop)


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
                loop.operands[i] = _in_own_buffer(_zeros(value) if _is_empty(value) else _copied(value))
            if _is_empty(value) and not list(value.uses):
                value.owner.operation.erase()


def _is_one_kernel(loop: Any, initial: Sequence[Any]) -> bool:
    """Whether one kernel computes all initial values, and one kernel all next values: then they may share a buffer."""
    block = loop.regions[-1].blocks[0]
    following = block.operations[len(block.operations) - 1].operands
    return all(len({_kernel_of(v) for v in values} | {None}) == 2 for values in (initial, following))


def _kernel_of(value: Any) -> Any:
    maker = maker_of(value)
    while maker is not None and maker.name in _VIEWS:
        maker = maker_of(maker.operands[0])
    return maker if maker is not None and maker.name == "linalg.generic" else None


def _is_carry_of_outer_loop(value: Any, loop: Any) -> bool:
    """Whether a value is a carry of the enclosing loop and only used by this loop: then it has a separate buffer."""
    if isinstance(value, mlir.ir.OpResult) or value.owner.owner.operation.name not in _LOOPS:
        return False
    return [use.owner.operation for use in value.uses] == [loop]


def _is_empty(value: Any) -> bool:
    maker = maker_of(value)
    return maker is not None and maker.name == "tensor.empty"


def _copied(value: Any) -> Any:
    """A copy that the compiler cannot remove, because it does not know that the condition is true."""
    is_true = _true()
    return _filled(value, [value], lambda element, _: _selected(is_true, element, 0))


def _zeros(value: Any) -> Any:
    """Zeros instead of a tensor with undefined elements."""
    is_true = _true()
    return _filled(value, [], lambda unset: _selected(is_true, _number(unset.type, 0), 1))


def _true() -> Any:
    """A scalar that is true, which the compiler does not know."""
    return hidden(_number(mlir.ir.IntegerType.get_signless(1), 1))


def _selected(condition: Any, value: Any, other: int) -> Any:
    return mlir.dialect("arith").select(condition, value, _number(value.type, other))


def _number(element: Any, value: int) -> Any:
    ir, arith = mlir.ir, mlir.dialect("arith")
    if isinstance(element, ir.ComplexType):
        part = element.element_type
        parts = [ir.FloatAttr.get(part, float(value)), ir.FloatAttr.get(part, 0.0)]
        return mlir.dialect("complex").constant(element, ir.ArrayAttr.get(parts))
    if isinstance(element, ir.FloatType):
        return arith.constant(element, ir.FloatAttr.get(element, float(value)))
    # A single bit that is set is -1 as a signed number.
    stored = -value if getattr(element, "width", 64) == 1 else value
    return arith.constant(element, ir.IntegerAttr.get(element, stored))


def _filled(like: Any, inputs: Sequence[Any], body: Callable[..., Any]) -> Any:
    """A tensor of the type of another. `body` emits an element from the elements of `inputs` and an undefined element."""
    type_, sizes = like.type, iter(dynamic_sizes(like))
    dims = [next(sizes) if type_.is_dynamic_dim(i) else type_.get_dim_size(i) for i in range(type_.rank)]
    out = mlir.dialect("tensor").empty(dims, type_.element_type)
    identity = mlir.ir.AffineMap.get_identity(type_.rank)
    return elementwise([(v, identity) for v in inputs], [out], lambda block: [body(*block.arguments)])[0]


def _in_own_buffer(value: Any) -> Any:
    """A value in a separate buffer: it is exported from the program, and imported again."""
    ir = mlir.ir
    view, encoding, sizes = ir.Type.parse("!hal.buffer_view"), ir.TypeAttr.get(value.type), dynamic_sizes(value)
    exported = create("hal.tensor.export", [view], [value, *sizes], {"source_encoding": encoding}).result
    groups = ir.DenseI32ArrayAttr.get([1, len(sizes), 0, 0])
    attributes = {"target_encoding": encoding, "operandSegmentSizes": groups}
    return create("hal.tensor.import", [value.type], [hidden(exported), *sizes], attributes).result

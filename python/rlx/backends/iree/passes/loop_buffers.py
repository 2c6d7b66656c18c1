"""`rlx-iree-loop-buffers`: what loops carry and read gets memory that nobody else has a part in.

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
    """Give each tensor that a loop carries a buffer of its own, and compute what it reads before it, for IREE."""

    def apply(self, module: Any) -> None:
        loops = every(module, lambda op: op.name in _LOOPS)
        for loop in reversed(loops):  # those around others first
            if loop.name == "scf.for":
                _compute_before(loop)
            _separate(loop)


# --- what a loop reads ---------------------------------------------------------------------------


def _compute_before(loop: Any) -> None:
    """Have the rows that the steps of a loop read be rows of something in memory.

    Else IREE computes the slice that a step reads in that step: a product before the loop becomes many inside.
    """
    rows: dict[Any, list[Any]] = {}
    for op in every(loop, lambda op: op.name == "tensor.extract_slice"):
        source = op.operands[0]
        inside = any(is_inside(offset, loop) for offset in op.opview.offsets)
        if inside and not is_inside(source, loop) and not _is_in_memory(source):
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
    """Give what several carries of a loop start with buffers of their own.

    IREE lays out values that live equally long in one buffer. A loop then passes that on several times, and its VM may have
    moved the reference away before the last time: such a program fails when it runs.
    """
    first = 3 if loop.name == "scf.for" else 0
    carried = [i for i, v in enumerate(loop.operands) if i >= first and isinstance(v.type, mlir.ir.RankedTensorType)]
    if len(carried) < 2 or _is_one_kernel(loop, [loop.operands[i] for i in carried]):
        return
    for i in carried:
        value = loop.operands[i]
        if not _is_handed_on(value, loop):
            with loop.location, mlir.ir.InsertionPoint(loop):
                loop.operands[i] = _owned(_emptied(value) if _is_empty(value) else _copied(value))
            if _is_empty(value) and not list(value.uses):
                value.owner.operation.erase()


def _is_one_kernel(loop: Any, initial: Sequence[Any]) -> bool:
    """Whether one kernel makes all that a loop starts with, and one all that it carries on: they are passed on together."""
    block = loop.regions[-1].blocks[0]
    following = block.operations[len(block.operations) - 1].operands
    return all(len({_kernel_of(v) for v in values} | {None}) == 2 for values in (initial, following))


def _kernel_of(value: Any) -> Any:
    maker = maker_of(value)
    while maker is not None and maker.name in _VIEWS:
        maker = maker_of(maker.operands[0])
    return maker if maker is not None and maker.name == "linalg.generic" else None


def _is_handed_on(value: Any, loop: Any) -> bool:
    """Whether a value is a carry of the loop around this one, which nothing else reads: it has a buffer of its own."""
    if isinstance(value, mlir.ir.OpResult) or value.owner.owner.operation.name not in _LOOPS:
        return False
    return [use.owner.operation for use in value.uses] == [loop]


def _is_empty(value: Any) -> bool:
    maker = maker_of(value)
    return maker is not None and maker.name == "tensor.empty"


def _copied(value: Any) -> Any:
    """A copy that the compiler cannot see to be one: it does not know that the condition holds."""
    holds = _true()
    return _filled(value, [value], lambda element, _: _selected(holds, element, 0))


def _emptied(value: Any) -> Any:
    """Zeros in place of what does not matter."""
    holds = _true()
    return _filled(value, [], lambda unset: _selected(holds, _number(unset.type, 0), 1))


def _true() -> Any:
    """A scalar that is true, which the compiler cannot see."""
    return hidden(_number(mlir.ir.IntegerType.get_signless(1), 1))


def _selected(holds: Any, value: Any, other: int) -> Any:
    return mlir.dialect("arith").select(holds, value, _number(value.type, other))


def _number(element: Any, value: int) -> Any:
    ir, arith = mlir.ir, mlir.dialect("arith")
    if isinstance(element, ir.ComplexType):
        part = element.element_type
        parts = [ir.FloatAttr.get(part, float(value)), ir.FloatAttr.get(part, 0.0)]
        return mlir.dialect("complex").constant(element, ir.ArrayAttr.get(parts))
    if isinstance(element, ir.FloatType):
        return arith.constant(element, ir.FloatAttr.get(element, float(value)))
    # One bit that is set is -1, read as a signed number.
    stored = -value if getattr(element, "width", 64) == 1 else value
    return arith.constant(element, ir.IntegerAttr.get(element, stored))


def _filled(like: Any, inputs: Sequence[Any], body: Callable[..., Any]) -> Any:
    """A tensor of the type of another, whose elements `body` emits from those of inputs and of nothing in particular."""
    type_, sizes = like.type, iter(dynamic_sizes(like))
    dims = [next(sizes) if type_.is_dynamic_dim(i) else type_.get_dim_size(i) for i in range(type_.rank)]
    out = mlir.dialect("tensor").empty(dims, type_.element_type)
    identity = mlir.ir.AffineMap.get_identity(type_.rank)
    return elementwise([(v, identity) for v in inputs], [out], lambda block: [body(*block.arguments)])[0]


def _owned(value: Any) -> Any:
    """A value that nobody else has, in a buffer of its own: it is handed out of the program, and back in."""
    ir = mlir.ir
    view, encoding, sizes = ir.Type.parse("!hal.buffer_view"), ir.TypeAttr.get(value.type), dynamic_sizes(value)
    exported = create("hal.tensor.export", [view], [value, *sizes], {"source_encoding": encoding}).result
    groups = ir.DenseI32ArrayAttr.get([1, len(sizes), 0, 0])
    attributes = {"target_encoding": encoding, "operandSegmentSizes": groups}
    return create("hal.tensor.import", [value.type], [hidden(exported), *sizes], attributes).result

"""Shared helpers of the passes for IREE. They emit ops of IREE's dialects, which MLIR's bindings do not know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from rlx import mlir
from rlx.passes.base import Pass
from rlx.targets.iree.passes.sizes import dynamic_sizes

for _name in ("util", "flow", "hal", "iree_linalg_ext", "iree_tensor_ext"):
    mlir.provide_dialect(_name, ModuleType(_name))  # an empty module, because its ops have no classes

RESHAPES = ("tensor.expand_shape", "tensor.collapse_shape")
_VIEWS = (*RESHAPES, "tensor.extract_slice")


class IreePass(Pass, abstract=True):
    """A pass that emits ops of IREE's dialects."""

    @property
    def emits_unregistered(self) -> bool:
        return True


def create(
    name: str,
    results: Sequence[Any] = (),
    operands: Sequence[Any] = (),
    attributes: dict[str, Any] | None = None,
    **more: Any,
) -> Any:
    """Create an op by its name, at the insertion point."""
    return mlir.ir.Operation.create(
        name, results=list(results), operands=list(operands), attributes=attributes or {}, **more
    )


def behind_barrier(value: Any) -> Any:
    """Return the result of an optimization barrier on a value. The compiler does not know its value."""
    return create("util.optimization_barrier", [value.type], [value]).result


def in_memory(value: Any) -> Any:
    """Return the same tensor, written to memory first: its users are not fused with the op that computes it."""
    sizes = dynamic_sizes(value)
    fenced = behind_barrier(value)
    return create("flow.tensor.tie_shape", [value.type], [fenced, *sizes]).result if sizes else fenced


def empty(type_: Any, like: Any, element: Any) -> Any:
    """Return an empty tensor with the sizes of a type and another element type. Dynamic sizes are those of `like`."""
    sizes = iter(dynamic_sizes(like)) if like is not None else iter(())
    dims = [next(sizes) if type_.is_dynamic_dim(i) else type_.get_dim_size(i) for i in range(type_.rank)]
    return mlir.dialect("tensor").empty(dims, element)


def elementwise(inputs: Sequence[tuple[Any, Any]], outs: Sequence[Any], body: Callable[[Any], list[Any]]) -> list[Any]:
    """Emit an elementwise loop over tensors, each with its map. `body` emits ops into a block and returns yielded values."""
    ir, linalg, rank = mlir.ir, mlir.dialect("linalg"), outs[0].type.rank
    maps = [m for _, m in inputs] + [ir.AffineMap.get_identity(rank)] * len(outs)
    parallel = [ir.Attribute.parse("#linalg.iterator_type<parallel>")] * rank
    values = [v for v, _ in inputs]
    maps = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps])
    op = linalg.GenericOp([o.type for o in outs], values, list(outs), maps, ir.ArrayAttr.get(parallel))
    block = op.regions[0].blocks.append(*[v.type.element_type for v in (*values, *outs)])
    with ir.InsertionPoint(block):
        linalg.yield_(body(block))
    return list(op.results)


def keep_in_memory(value: Any) -> None:
    """Make all users of a value read it from memory."""
    uses, maker = list(value.uses), value.owner.operation
    with maker.location, mlir.ir.InsertionPoint.after(maker):
        replace_uses(uses, in_memory(value))


def every(module: Any, condition: Callable[[Any], bool]) -> list[Any]:
    """Return the ops of a module that satisfy a condition, in post-order: the ops in the regions of an op come before it."""
    matching: list[Any] = []

    def visit(op: Any) -> Any:
        if condition(op):
            matching.append(op)
        return mlir.ir.WalkResult.ADVANCE

    mlir.walk(module, visit)
    return matching


def is_elementwise(op: Any) -> bool:
    """Whether an op computes each element of one tensor from elements of others."""
    if op.name != "linalg.generic" or len(op.results) != 1:
        return False
    return all("parallel" in str(i) for i in op.attributes["iterator_types"])


def is_fused_with_readers(op: Any) -> bool:
    """Whether IREE may compute an op in the kernel that reads its result: elementwise ops, reshapes and transpositions."""
    return op.name in (*RESHAPES, "linalg.transpose") or is_elementwise(op)


def maker_of(value: Any) -> Any:
    """Return the op that defines a value, or None for a block argument."""
    return value.owner.operation if isinstance(value, mlir.ir.OpResult) else None


def source_of(value: Any) -> Any:
    """Return the value that a value is a view of."""
    maker = maker_of(value)
    while maker is not None and maker.name in _VIEWS:
        value = maker.operands[0]
        maker = maker_of(value)
    return value


def replace_uses(uses: Sequence[Any], value: Any) -> None:
    """Replace the value in some uses from `value.uses` by another value."""
    for use in uses:
        use.owner.operation.operands[use.operand_number] = value

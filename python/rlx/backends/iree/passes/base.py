"""What the passes for IREE have in common: ops of its dialects, which MLIR's bindings do not know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from rlx import mlir
from rlx.backends.iree.passes.sizes import dynamic_sizes
from rlx.ir.errors import PassError
from rlx.passes.base import Pass

for _name in ("util", "flow", "hal", "iree_linalg_ext", "iree_tensor_ext"):
    mlir.provide_dialect(_name, ModuleType(_name))  # without classes for its ops, which there are none of


class IreePass(Pass):
    """A pass that emits ops of IREE's dialects."""

    def run(self, module: Any) -> None:
        if not mlir.context().allow_unregistered_dialects:
            raise PassError(
                "emits ops of IREE's dialects, which are not registered here",
                hint="rlx-opt takes them with --allow-unregistered-dialect",
            )
        self.apply(module)

    def apply(self, module: Any) -> None:
        """Edit a module in place."""
        raise NotImplementedError


def create(
    name: str,
    results: Sequence[Any] = (),
    operands: Sequence[Any] = (),
    attributes: dict[str, Any] | None = None,
    **more: Any,
) -> Any:
    """An op by its name, at the insertion point."""
    return mlir.ir.Operation.create(
        name, results=list(results), operands=list(operands), attributes=attributes or {}, **more
    )


def hidden(value: Any) -> Any:
    """A value that the compiler knows nothing about."""
    return create("util.optimization_barrier", [value.type], [value]).result


def in_memory(value: Any) -> Any:
    """A tensor computed in memory before anything that follows: nothing is fused across this."""
    sizes = dynamic_sizes(value)
    fenced = hidden(value)
    return create("flow.tensor.tie_shape", [value.type], [fenced, *sizes]).result if sizes else fenced


def elementwise(inputs: Sequence[tuple[Any, Any]], outs: Sequence[Any], body: Callable[[Any], list[Any]]) -> list[Any]:
    """An elementwise loop over tensors and their maps; `body` emits what it yields into a block."""
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
    """Have all that reads a value read it from memory."""
    uses, maker = list(value.uses), value.owner.operation
    with maker.location, mlir.ir.InsertionPoint.after(maker):
        replace_uses(uses, in_memory(value))


def every(module: Any, wanted: Callable[[Any], bool]) -> list[Any]:
    """The ops of a module for which something holds, those in the regions of an op before it."""
    matching: list[Any] = []

    def visit(op: Any) -> Any:
        if wanted(op):
            matching.append(op)
        return mlir.ir.WalkResult.ADVANCE

    mlir.walk(module, visit)
    return matching


def maker_of(value: Any) -> Any:
    """The op that gives a value; None for an argument of a block."""
    return value.owner.operation if isinstance(value, mlir.ir.OpResult) else None


def replace_uses(uses: Sequence[Any], value: Any) -> None:
    """Have uses, as `value.uses` listed them, use another value."""
    for use in uses:
        use.owner.operation.operands[use.operand_number] = value

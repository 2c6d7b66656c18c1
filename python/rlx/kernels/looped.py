"""`LoopOp`: an op with a region, and the values from outside that the region uses, for kernels of loops."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rlx import mlir
from rlx.ir.op import opview
from rlx.ir.shape import Shape, shape_of
from rlx.transforms.scope import captures

_FUNCTION = "loop"


@dataclass(frozen=True, eq=False)
class LoopOp:
    """An op whose kernel has the code of its region.

    Attributes:
        op: The op.
        captures: The values from outside that its region uses.
        module: The module that has only this op, if it is a copy.
    """

    op: mlir.Operation
    captures: tuple[mlir.Value, ...]
    module: Any = field(default=None, repr=False)

    @classmethod
    def of(cls, op: mlir.Operation) -> LoopOp | None:
        """Return an op of a module with its captures; None if it has no regions."""
        return cls(op, tuple(captures(op))) if len(op.regions) else None

    @property
    def captured_shapes(self) -> tuple[Shape, ...]:
        return tuple(map(shape_of, self.captures))

    def text(self) -> str:
        """Return a module with a function of a copy of the op: its arguments are the operands, then the captures."""
        ir, func = mlir.ir, mlir.dialect("func")
        given = [*self.op.operands, *self.captures]
        with ir.Location.unknown():
            module = ir.Module.create()
            signature = ir.FunctionType.get([v.type for v in given], [r.type for r in self.op.results])
            function = func.FuncOp(_FUNCTION, signature, ip=ir.InsertionPoint(module.body))
            entry = function.add_entry_block()
            arguments = list(entry.arguments)
            copied = self.op.operation.clone(ir.InsertionPoint(entry))
            func.ReturnOp(copied.operation.results, ip=ir.InsertionPoint(entry))
        count = len(self.op.operands)
        for i in range(count):
            copied.operation.operands[i] = arguments[i]
        _replace(copied.operation, dict(zip(self.captures, arguments[count:], strict=True)))
        return module.operation.get_asm(enable_debug_info=False)

    @classmethod
    def parse(cls, text: str) -> LoopOp:
        """Return the op of a text that `text` returned."""
        module = mlir.ir.Module.parse(text)
        entry = module.body.operations[0].operation.regions[0].blocks[0]
        op = entry.operations[0].operation
        return cls(op, tuple(entry.arguments)[len(op.operands) :], module)


def _replace(op: mlir.Operation, values: dict[mlir.Value, mlir.Value]) -> None:
    """Replace operands of all ops in the regions of an op, and remove the marks of kernels, which are not called there."""
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                nested = inner.operation
                if opview.KERNEL in nested.attributes:
                    del nested.attributes[opview.KERNEL]
                for i, operand in enumerate(nested.operands):
                    if operand in values:
                        nested.operands[i] = values[operand]
                _replace(nested, values)

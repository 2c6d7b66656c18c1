"""Copies that IREE does not remove."""

from __future__ import annotations

from typing import Any

from rlx import mlir
from rlx.targets.iree.passes.base import behind_barrier, elementwise
from rlx.targets.iree.passes.sizes import dynamic_sizes


def opaque_copy(value: Any) -> Any:
    """Return a copy that the compiler cannot remove, because it does not know that the condition is true."""
    ir, arith, type_, sizes = mlir.ir, mlir.dialect("arith"), value.type, iter(dynamic_sizes(value))
    bit = ir.IntegerType.get_signless(1)
    is_true = behind_barrier(arith.constant(bit, ir.IntegerAttr.get(bit, -1)))  # -1: the signed value of a set bit
    dims = [next(sizes) if type_.is_dynamic_dim(i) else type_.get_dim_size(i) for i in range(type_.rank)]
    out = mlir.dialect("tensor").empty(dims, type_.element_type)
    identity = ir.AffineMap.get_identity(type_.rank)

    def selected(block: Any) -> list[Any]:
        element = block.arguments[0]
        return [arith.select(is_true, element, _zero(element.type))]

    return elementwise([(value, identity)], [out], selected)[0]


def _zero(element: Any) -> Any:
    ir, arith = mlir.ir, mlir.dialect("arith")
    if isinstance(element, ir.ComplexType):
        part = ir.FloatAttr.get(element.element_type, 0.0)
        return mlir.dialect("complex").constant(element, ir.ArrayAttr.get([part, part]))
    zero = ir.FloatAttr.get(element, 0.0) if isinstance(element, ir.FloatType) else ir.IntegerAttr.get(element, 0)
    return arith.constant(element, zero)

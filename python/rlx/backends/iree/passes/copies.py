"""Copies of tensors that IREE does not remove."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlx import mlir
from rlx.backends.iree.passes.base import elementwise, hidden
from rlx.backends.iree.passes.sizes import dynamic_sizes


def copied(value: Any) -> Any:
    """A copy that the compiler cannot remove, because it does not know that the condition is true."""
    is_true = _true()
    return _filled(value, [value], lambda element, _: _selected(is_true, element, 0))


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

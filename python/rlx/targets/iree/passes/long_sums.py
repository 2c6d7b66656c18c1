"""`rlx-iree-long-sums`: accumulates long f32 sums in f64.

On the CPU, IREE adds the elements of a sum sequentially in f32, so the error grows with their number: the sum of 20 million
ones is 16,777,216, and the sum of a million times 0.1 is 100,958. Quirk: `sums-in-order`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

from rlx import mlir
from rlx.passes.base import Pass, option
from rlx.targets.iree.passes.base import elementwise, empty, every, maker_of

_PRODUCTS = ("linalg.matmul", "linalg.batch_matmul")
_ADDS = ("arith.addf", "complex.add")


@dataclass(frozen=True)
class LongSums(Pass, name="rlx-iree-long-sums"):
    """Accumulate long sums of f32, and of complex numbers of f32, in f64, for IREE on the CPU.

    A sum over a dynamic axis counts as long. Sums of products (of matrices, in convolutions) stay in f32 up to a greater
    length, which must be static: they are bound by arithmetic, and f64 has half the throughput per instruction.
    """

    shortest: int = option(1024, "the fewest elements of a sum that is accumulated in f64", least=1)
    shortest_product: int = option(65536, "the fewest products of a sum that is accumulated in f64", least=1)

    def run(self, module: mlir.Module) -> None:
        for op in every(module, lambda op: _is_sum(op) and _is_narrow(op)):
            if op.name in _PRODUCTS:
                if self.shortest_product <= _size(op.operands[0], op.operands[0].type.rank - 1) < inf:
                    _replace(op, _wide_product)
            elif self.shortest_product <= _length(op) < inf or (len(op.operands) == 2 and _length(op) >= self.shortest):
                _replace(op, _wide_loop)


def _is_sum(op: Any) -> bool:
    """Whether an op is a sum, and no op in its body has a region, which might use values from outside."""
    if op.name in _PRODUCTS:
        return True
    if op.name != "linalg.generic" or len(op.results) != 1 or "reduction" not in str(op.attributes["iterator_types"]):
        return False
    block = op.regions[0].blocks[0]
    *_, end = block.operations
    added = maker_of(end.operands[0])
    total = block.arguments[len(block.arguments) - 1]
    if added is None or added.name not in _ADDS or len(list(total.uses)) != 1:
        return False
    return total in list(added.operands) and all(len(inner.operation.regions) == 0 for inner in block.operations)


def _is_narrow(op: Any) -> bool:
    element, ir = op.results[0].type.element_type, mlir.ir
    return isinstance(element.element_type if isinstance(element, ir.ComplexType) else element, ir.F32Type)


def _length(op: Any) -> float:
    """Return the number of elements in each sum of a loop; infinite if it is dynamic."""
    ir = mlir.ir
    sizes: dict[int, float] = {}
    for value, attribute in zip(op.operands, op.attributes["indexing_maps"], strict=True):
        for axis, expression in enumerate(ir.AffineMapAttr(attribute).value.results):
            if isinstance(expression, ir.AffineDimExpr):
                sizes[expression.position] = _size(value, axis)
    length = 1.0
    for axis, iterator in enumerate(op.attributes["iterator_types"]):
        length *= sizes.get(axis, 1.0) if "reduction" in str(iterator) else 1.0
    return length


def _size(value: Any, axis: int) -> float:
    return inf if value.type.is_dynamic_dim(axis) else value.type.get_dim_size(axis)


def _replace(op: Any, wide: Callable[[Any, Any], Any]) -> None:
    """Replace a sum by a sum in f64 with the same initial value, which is rounded at the end."""
    narrow = op.results[0].type.element_type
    with op.location, mlir.ir.InsertionPoint(op):
        total = wide(op, _start(op.operands[len(op.operands) - 1]))
        op.results[0].replace_all_uses_with(_converted(total, narrow))
    op.erase()


def _wide(element: Any) -> Any:
    ir = mlir.ir
    return ir.ComplexType.get(ir.F64Type.get()) if isinstance(element, ir.ComplexType) else ir.F64Type.get()


def _cast(scalar: Any, element: Any) -> Any:
    """Convert a float or a complex number to another width."""
    arith, complex_, ir = mlir.dialect("arith"), mlir.dialect("complex"), mlir.ir
    if isinstance(element, ir.ComplexType):
        parts = (_cast(part(scalar), element.element_type) for part in (complex_.re, complex_.im))
        return complex_.create_(element, *parts)
    return (arith.extf if isinstance(element, ir.F64Type) else arith.truncf)(element, scalar)


def _converted(value: Any, element: Any) -> Any:
    identity = mlir.ir.AffineMap.get_identity(value.type.rank)
    return elementwise(
        [(value, identity)], [empty(value.type, value, element)], lambda b: [_cast(b.arguments[0], element)]
    )[0]


def _start(value: Any) -> Any:
    """Return the initial value of a sum in f64. A fill stays a fill, so that it is part of the kernel."""
    element, maker = _wide(value.type.element_type), maker_of(value)
    if maker is None or maker.name != "linalg.fill":
        return _converted(value, element)
    return mlir.dialect("linalg").fill(_cast(maker.operands[0], element), outs=[empty(value.type, value, element)])


def _wide_product(op: Any, start: Any) -> Any:
    linalg = mlir.dialect("linalg")
    product = linalg.matmul if op.name == "linalg.matmul" else linalg.batch_matmul
    return product(op.operands[0], op.operands[1], outs=[start])


def _wide_loop(op: Any, start: Any) -> Any:
    ir, linalg = mlir.ir, mlir.dialect("linalg")
    *inputs, _ = op.operands
    maps, iterators = op.attributes["indexing_maps"], op.attributes["iterator_types"]
    loop = linalg.GenericOp([start.type], inputs, [start], maps, iterators)
    before = op.regions[0].blocks[0]
    block = loop.regions[0].blocks.append(*[v.type.element_type for v in (*inputs, start)])
    made = dict(zip(before.arguments, block.arguments, strict=True))
    *body, end = (inner.operation for inner in before.operations)
    added = maker_of(end.operands[0])
    total = before.arguments[len(before.arguments) - 1]
    with ir.InsertionPoint(block):
        for inner in body:
            if inner == added:
                term = next(v for v in inner.operands if v != total)
                term = _cast(made.get(term, term), start.type.element_type)
                dialect, _, name = inner.name.partition(".")
                linalg.yield_([getattr(mlir.dialect(dialect), name)(made[total], term)])
                break
            copy = inner.clone()
            for i, operand in enumerate(inner.operands):
                copy.operands[i] = made.get(operand, operand)
            made.update(zip(inner.results, copy.results, strict=True))
    return loop.results[0]

"""`rlx-float-products`: exact integer products as products of floats."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import f32, i32
from rlx.ir.op import opview, views
from rlx.ir.shape import shape_of
from rlx.passes.base import Pass
from rlx.passes.pattern import Rewriter, pattern, producer, rewrite

# All integers up to this magnitude are f32 numbers.
_EXACT = 1 << 24
# Dtypes of more bits have ranges that no product is exact for.
_MOST_BITS = 16
# The maximal number of products that one is split into.
_MOST_PARTS = 8

Range = tuple[int, int]
Product = views.Matmul | views.DotGeneral | views.Conv


@dataclass(frozen=True)
class FloatProducts(Pass, name="rlx-float-products", exact=True, idempotent=True):
    """Compute i32 products and convolutions of small integers in f32, where all sums are exact.

    The operands must be casts of narrow integers, less zero points. XLA's CPU client has no fast code for products of integers:
    that of two 512×512 matrices of bytes takes four times as long. A long sum is split into several, which are added in i32.
    """

    def run(self, module: mlir.Module) -> None:
        rewrite(module, (exact_matmul, exact_product, exact_convolution), self.name)


@pattern
def exact_matmul(op: views.Matmul, rewriter: Rewriter) -> Any:
    """A product of matrices, split into parts if its sums may be too long."""
    lhs, rhs = shape_of(op.lhs), shape_of(op.rhs)
    length, largest = lhs.dims[-1], _largest_product(op)
    if largest is None or type(length) is not int or length == 0:
        return None
    most = _EXACT // max(largest, 1)
    if length <= most:
        return _in_f32(rewriter, op)
    if most * _MOST_PARTS < length:
        return None
    total = None
    for start in range(0, length, most):
        size = min(most, length - start)
        parts = [
            rewriter.emit("narrow", [value], axis=axis, start=(start,), length=(size,))
            for value, axis in ((op.lhs, lhs.rank - 1), (op.rhs, rhs.rank - 2))
        ]
        product = _in_f32(rewriter, op, parts)
        total = product if total is None else rewriter.emit("binary", [total, product], kind="add")
    return total


@pattern
def exact_product(op: views.DotGeneral, rewriter: Rewriter) -> Any:
    """A product over any axes."""
    return _in_f32(rewriter, op) if _is_exact(op, [shape_of(op.lhs).dims[a] for a in op.lhs_contracting]) else None


@pattern
def exact_convolution(op: views.Conv, rewriter: Rewriter) -> Any:
    """A convolution."""
    return _in_f32(rewriter, op) if _is_exact(op, shape_of(op.w).dims[1:]) else None


def _in_f32(rewriter: Rewriter, op: Product, operands: Sequence[mlir.Value] = ()) -> mlir.Value:
    floats = [rewriter.emit("cast", [value], dtype=f32) for value in operands or op.operation.operands]
    return rewriter.emit("cast", [rewriter.emit(opview.name_of(op.operation), floats, **op.attributes)], dtype=i32)


def _is_exact(op: Product, summed: Sequence[Dim]) -> bool:
    largest, length = _largest_product(op), 1
    for dim in summed:
        if type(dim) is not int:
            return False
        length *= dim
    return largest is not None and length * largest <= _EXACT


def _largest_product(op: Product) -> int | None:
    """The largest magnitude of a product of two elements; None if it is unknown, or the op is not of i32."""
    lhs, rhs = op.operation.operands
    if shape_of(op.result).dtype is not i32:
        return None
    ranges = _range(lhs), _range(rhs)
    if ranges[0] is None or ranges[1] is None:
        return None
    return max(map(abs, ranges[0])) * max(map(abs, ranges[1]))


def _range(value: mlir.Value) -> Range | None:
    """The least and the greatest number that an integer value may have; None if they are unknown."""
    while (op := producer(value)) is not None and opview.has_trait(op.operation, "rearranges"):
        value = op.operation.operands[0]
    if cast := producer(value, views.Cast):
        return _range_of_dtype(cast.x)
    if constant := producer(value, views.Constant):
        return (int(constant.value.min()), int(constant.value.max())) if constant.value.size else (0, 0)
    total = producer(value, views.Binary)
    if total is None or total.kind not in ("add", "sub"):
        return None
    return _of_two(_range(total.lhs), _range(total.rhs), total.kind)


def _range_of_dtype(value: mlir.Value) -> Range | None:
    kind = shape_of(value).dtype
    if kind.is_bool:
        return 0, 1
    return (int(kind.min), int(kind.max)) if kind.is_integer and kind.bits <= _MOST_BITS else None


def _of_two(a: Range | None, b: Range | None, kind: str) -> Range | None:
    if a is None or b is None:
        return None
    join = operator.add if kind == "add" else operator.sub
    ends = [join(x, y) for x in a for y in b]
    low, high = min(ends), max(ends)
    return (low, high) if i32.min <= low and high <= i32.max else None  # otherwise it may wrap

"""Sorting by the comparator region of the op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx import mlir
from rlx.importers.stablehlo.rules import imports
from rlx.importers.stablehlo.values import defining_op, direction_of, ending
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.support.errors import UnsupportedError

# The largest number of elements that are compared in all pairs.
_MOST_PAIRS = 512
_DESCENDING = {"LT": False, "LE": False, "GT": True, "GE": True}


@imports("sort")
def sort(g: Graph, *xs: Tensor, dimension: int = -1, is_stable: bool = False, regions: Sequence[Any]) -> list[Tensor]:
    """Sort. Use `argsort` if the region compares a key function of one operand, else compare all pairs."""
    if xs[0].rank == 0 or xs[0].shape.static[dimension] < 2:
        return list(xs)
    axis = dimension % xs[0].rank
    order = _by_key(g, xs, axis, regions[0])
    if order is None:
        order = _by_pairs(g, xs, axis, regions[0])
    return [g.take_along_axis(x, order, axis) for x in xs]


def _by_key(g: Graph, xs: Sequence[Tensor], axis: int, region: Any) -> Tensor | None:
    """Return the order by one key, which is the same function of both elements; None for another region."""
    arguments = list(region.block.arguments)
    compare = defining_op(ending(region.block)[0], "stablehlo.compare")
    if compare is None:
        return None
    direction = direction_of(compare)
    if direction not in _DESCENDING:
        return None
    left, right = compare.operands
    sides = [_read(value, arguments) for value in (left, right)]
    if any(len(side) != 1 for side in sides):
        return None
    (first,), (second,) = sides
    if first // 2 != second // 2 or first == second or not _alike(left, right, arguments):
        return None
    # Both elements of each pair are equal, so both sides of the comparison are the keys.
    pairs = [x for x in xs for _ in range(2)]
    key = region.value(left, *pairs)
    kinds = compare.attributes
    total = "compare_type" in kinds and "TOTALORDER" in str(kinds["compare_type"])
    if total and key.dtype.is_float:
        key = total_order(g, key)
    descending = _DESCENDING[direction] ^ (first > second)
    return g.argsort(g.cast(key, "u8") if key.dtype.is_bool else key, axis, descending)


def _read(value: mlir.Value, arguments: list[mlir.Value]) -> set[int]:
    """Return the numbers of the region arguments that a value depends on."""
    found, waiting, seen = set(), [value], set()
    while waiting:
        value = waiting.pop()
        if value in arguments:
            found.add(arguments.index(value))
        elif isinstance(value, mlir.OpResult) and value not in seen:
            seen.add(value)
            waiting.extend(value.owner.operation.operands)
    return found


def _alike(first: mlir.Value, second: mlir.Value, arguments: list[mlir.Value]) -> bool:
    """Return whether two values of a region are the same function of its arguments.

    Each pair of values is compared once, so shared operands cost no additional time. Ops with regions are never equal.
    """
    waiting, seen = [(first, second)], set()
    while waiting:
        pair = waiting.pop()
        one, other = pair
        if pair in seen or one == other or (one in arguments and other in arguments):
            continue
        seen.add(pair)
        if not isinstance(one, mlir.OpResult) or not isinstance(other, mlir.OpResult) or _kind(one) != _kind(other):
            return False
        waiting.extend(zip(one.owner.operation.operands, other.owner.operation.operands, strict=True))
    return True


def _kind(value: mlir.OpResult) -> Any:
    """Return the properties, besides operands, that ops of the same function share; for ops with regions, the value."""
    op = value.owner.operation
    names = [getattr(n, "name", n) for n in op.attributes]
    attributes = {name: op.attributes[name] for name in names}
    own = value if len(op.regions) else None
    return op.name, attributes, value.type, value.result_number, len(op.operands), own


def _by_pairs(g: Graph, xs: Sequence[Tensor], axis: int, region: Any) -> Tensor:
    """Return the order from the number of elements that come before each. Equal elements keep their order."""
    size = xs[0].shape.static[axis]
    if size > _MOST_PAIRS:
        raise UnsupportedError(
            f"of {size} elements by such a function cannot be imported",
            hint=f"more than {_MOST_PAIRS} are sorted by one key: a comparison of the same function of two elements",
        )
    turned = [g.moveaxis(x, axis, -1) for x in xs]
    columns, rows = [g.expand_dims(x, -1) for x in turned], [g.expand_dims(x, -2) for x in turned]
    (before,) = region.lifted(*(v for pair in zip(rows, columns, strict=True) for v in pair))
    before = g.expand(before, (*turned[0].shape.dims, size))  # [i, j]: whether element j comes before element i
    earlier = g.constant(np.tri(size, k=-1, dtype=bool))
    after = g.swapaxes(before, -1, -2)
    rank = g.sum(g.cast(before | (earlier & ~after), "i32"), axis=-1)
    return g.moveaxis(g.argsort(rank, -1), -1, axis)


def total_order(g: Graph, x: Tensor) -> Tensor:
    """Integers in the order of floats in which -NaN is least, -0 is below 0 and NaN is greatest.

    Formats without a negative zero (`fnuz`) have a single NaN, which is the largest, as documented for JAX's sort. The
    bit in its sign position does not make it negative. Formats without a sign are in the order of their codes.
    """
    x = g.cast(x, "f32") if x.dtype.packed else x
    layout = x.dtype.float_format
    assert layout is not None
    if not layout.signed:
        return g.bitcast(x, x.dtype.unsigned_word)
    bits = g.bitcast(x, x.dtype.signed_word)
    key = g.where(bits < 0, g.bitwise_xor(bits, g.constant(np.array(bits.dtype.max, bits.dtype.numpy))), bits)
    # One above the code of the largest number. In these formats, the bits of that code are all ones.
    return key if layout.special != "fnuz" else g.where(g.isnan(x), bits.dtype.max + 1, g.cast(key, "i16"))


@imports("chlo.top_k")
def top_k(g: Graph, x: Tensor, *, k: int) -> list[Tensor]:
    """Return the largest elements in the total order of floats. NaN is greater than all numbers in this order."""
    if not x.dtype.is_float and not x.dtype.is_bool:
        return list(g.topk(x, k))
    _, places = g.topk(g.cast(x, "u8") if x.dtype.is_bool else total_order(g, x), k)
    return [g.take_along_axis(x, places, -1), places]

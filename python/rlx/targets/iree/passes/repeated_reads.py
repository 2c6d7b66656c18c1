"""Tensors that one op reads at two positions, such as `s[i] + s[j]`. Quirk: `two-positions`.

IREE computes a tile of the tensor for a tile of the op that reads it. If the op reads it at two positions, directly or through
elementwise ops, IREE computes the tile for one of them and uses it for both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlx import mlir
from rlx.targets.iree.passes.base import RESHAPES, is_fused_with_readers

# The index into a tensor, one expression for each axis, as a function of the index into another one. If it is not known, a
# text that only the same index has.
Index = tuple[Any, ...] | str


def are_read_at_two_positions(values: Sequence[Any], order: Mapping[Any, int]) -> bool:
    """Whether an op reads elements of the results of one op with different indices, directly or through elementwise ops.

    Args:
        values: The results of the op, tensors.
        order: The number of each op of the module. An op has a larger one than those that compute its operands.
    """
    found: dict[Any, set[Index]] = {value: {_start(value)} for value in values if value.type.rank}
    pending = {order[op]: op for value in found for op in _readers(value)}
    while pending:
        op = pending.pop(min(pending))  # after all ops that compute its operands
        indices = _indices_of_reads(op, found)
        if len(indices) > 1 and op.name == "linalg.generic":
            return True
        if is_fused_with_readers(op):
            found[op.results[0]] = {_inverted(op, index) for index in indices}
            pending |= {order[reader]: reader for reader in _readers(op.results[0])}
    return False


def _readers(value: Any) -> list[Any]:
    return [use.owner.operation for use in value.uses]


def _start(value: Any) -> Index:
    """Return the index of a tensor into itself. An axis of size 1 has only the index 0."""
    ir = mlir.ir
    axes = enumerate(value.type.shape)
    return tuple(ir.AffineConstantExpr.get(0) if n == 1 else ir.AffineDimExpr.get(i) for i, n in axes)


def _indices_of_reads(op: Any, found: Mapping[Any, set[Index]]) -> set[Index]:
    """Return the indices with which an op reads the tensor, as functions of its loops; for reshapes, of its operand."""
    maps = op.attributes["indexing_maps"] if op.name == "linalg.generic" else None
    return {
        index if maps is None else _composed(index, maps[number].value)
        for number, operand in enumerate(op.operands)
        for index in found.get(operand, ())
    }


def _inverted(op: Any, index: Index) -> Index:
    """Return an index of `_indices_of_reads` as a function of the index into the result."""
    ir, rank = mlir.ir, op.results[0].type.rank
    if op.name == "linalg.transpose":
        permutation = list(op.attributes["permutation"])  # of the operand's axes, for each axis of the result
        inverse: list[Any] | None = [ir.AffineDimExpr.get(permutation.index(axis)) for axis in range(rank)]
    elif op.name in RESHAPES:
        inverse = _reshaped(op)
    else:
        inverse = _loops(op)
    return _unknown(op) if inverse is None else _composed(index, ir.AffineMap.get(rank, 0, inverse))


def _loops(op: Any) -> list[Any] | None:
    """Return the loops of an elementwise op as functions of the index into its result; None if that is not a permutation."""
    ir = mlir.ir
    axes: dict[int, int] = {}
    for axis, expression in enumerate(list(op.attributes["indexing_maps"])[-1].value.results):
        if not isinstance(expression, ir.AffineDimExpr):
            return None
        axes[expression.position] = axis
    return [ir.AffineDimExpr.get(axes[loop]) for loop in range(len(axes))]


def _composed(index: Index, inner: Any) -> Index:
    """Return an index as a function of the dimensions of an affine map, whose results are those of the index."""
    if isinstance(index, str):
        return f"{index} at {inner}"
    return tuple(expression.compose(inner) for expression in index)


def _unknown(op: Any) -> str:
    return f"unknown {hash(op)}"


def _reshaped(op: Any) -> list[Any] | None:
    """Return the index into the operand of a reshape as a function of that into its result; None if sizes are not known."""
    groups = [[int(axis) for axis in group] for group in op.attributes["reassociation"]]
    is_expanded = op.name == "tensor.expand_shape"
    sizes = list((op.results[0] if is_expanded else op.operands[0]).type.shape)  # negative if they are not known
    parts = [_of_parts(group, sizes) if is_expanded else _into_parts(i, group, sizes) for i, group in enumerate(groups)]
    if any(part is None for part in parts):
        return None
    return [expression for part in parts for expression in (part or ())]


def _of_parts(group: list[int], sizes: list[int]) -> list[Any] | None:
    """Return the index of an axis from those of the axes into which it is split."""
    ir = mlir.ir
    large = [axis for axis in group if sizes[axis] != 1]
    if any(sizes[axis] < 0 for axis in large[1:]):
        return None
    expression: Any = ir.AffineConstantExpr.get(0)
    for axis in large:
        expression = expression * sizes[axis] if axis != large[0] else expression
        expression = expression + ir.AffineDimExpr.get(axis)
    return [expression]


def _into_parts(axis: int, group: list[int], sizes: list[int]) -> list[Any] | None:
    """Return the indices of axes from that of the axis into which they are joined."""
    ir = mlir.ir
    large = [part for part in group if sizes[part] != 1]
    if any(sizes[part] < 0 for part in large[1:]):
        return None
    rest: Any = ir.AffineDimExpr.get(axis)
    expressions: dict[int, Any] = {}
    for part in reversed(large[1:]):
        size = ir.AffineConstantExpr.get(sizes[part])
        expressions[part] = ir.AffineExpr.get_mod(rest, size)
        rest = ir.AffineExpr.get_floor_div(rest, size)
    expressions |= dict.fromkeys(large[:1], rest)
    return [expressions.get(part, ir.AffineConstantExpr.get(0)) for part in group]

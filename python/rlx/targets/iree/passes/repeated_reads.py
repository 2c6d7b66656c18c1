"""Tensors that one op reads at two positions, such as `s[i] + s[j]`. Quirk: `two-positions`.

IREE computes a tile of the tensor for a tile of the op that reads it. If the op reads it at two positions, directly or through
elementwise ops, IREE computes the tile for one of them and uses it for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx import mlir
from rlx.targets.iree.passes.base import RESHAPES, is_elementwise

# The index into a tensor, one expression for each axis, as a function of the index into another one. If it is not known, a
# text that only the same index has.
Index = tuple[Any, ...] | str


def are_read_at_two_positions(values: Sequence[Any]) -> bool:
    """Whether an op reads elements of the results of one op with different indices, directly or through elementwise ops."""
    found: dict[Any, set[Index]] = {value: {_start(value)} for value in values if value.type.rank}
    for op in _following(list(found)):
        indices = _indices_of_reads(op, found)
        if len(indices) > 1 and op.name == "linalg.generic":
            return True
        if indices and (result := _result(op)) is not None:
            found[result] = {_inverted(op, index) for index in indices}
    return False


def _start(value: Any) -> Index:
    """Return the index of a tensor into itself. An axis of size 1 has only the index 0."""
    ir = mlir.ir
    axes = enumerate(_sizes(value))
    return tuple(ir.AffineConstantExpr.get(0) if n == 1 else ir.AffineDimExpr.get(i) for i, n in axes)


def _sizes(value: Any) -> list[int]:
    """Return the sizes of a tensor, -1 for those that are not known."""
    type_ = value.type
    return [-1 if type_.is_dynamic_dim(i) else type_.get_dim_size(i) for i in range(type_.rank)]


def _following(values: Sequence[Any]) -> list[Any]:
    """Return the ops that read values, directly or through others that IREE fuses, each after those that it reads."""
    pending, users = list(values), set[Any]()
    while pending:
        for use in pending.pop().uses:
            op = use.owner.operation
            if op not in users:
                users.add(op)
                if (result := _result(op)) is not None:
                    pending.append(result)
    return _in_order(users)


def _in_order(users: set[Any]) -> list[Any]:
    """Sort ops such that each is after the makers of its operands."""
    done, result = set[Any](), list[Any]()

    def visit(op: Any) -> None:
        if op in done:
            return
        done.add(op)
        for operand in op.operands:
            if isinstance(operand, mlir.ir.OpResult) and operand.owner.operation in users:
                visit(operand.owner.operation)
        result.append(op)

    for op in users:
        visit(op)
    return result


def _result(op: Any) -> Any:
    """Return the result of an op that IREE may fuse with the op that reads it; None for others."""
    is_fused = op.name in (*RESHAPES, "linalg.transpose") or is_elementwise(op)
    return op.results[0] if is_fused else None


def _indices_of_reads(op: Any, found: dict[Any, set[Index]]) -> set[Index]:
    """Return the indices with which an op reads the tensor, as functions of its loops; for reshapes, of its operand."""
    maps = op.attributes["indexing_maps"] if op.name == "linalg.generic" else None
    indices: set[Index] = set()
    for number, operand in enumerate(op.operands):
        for index in found.get(operand, ()):
            indices.add(index if maps is None else _composed(index, list(maps[number].value.results)))
    return indices


def _inverted(op: Any, index: Index) -> Index:
    """Return an index of `_indices_of_reads` as a function of the index into the result."""
    ir = mlir.ir
    if op.name == "linalg.transpose":
        permutation = list(op.attributes["permutation"])  # of the operand's axes, for each axis of the result
        return _composed(index, [ir.AffineDimExpr.get(permutation.index(axis)) for axis in range(len(permutation))])
    if op.name in RESHAPES:
        reshaped = _reshaped(op)
        return _unknown(op) if reshaped is None else _composed(index, reshaped)
    written = list(op.attributes["indexing_maps"])[-1].value.results
    axes: dict[int, int] = {}
    for axis, expression in enumerate(written):
        if not isinstance(expression, ir.AffineDimExpr):
            return _unknown(op)
        axes[expression.position] = axis
    return _composed(index, [ir.AffineDimExpr.get(axes[loop]) for loop in range(len(axes))])


def _composed(index: Index, inner: list[Any]) -> Index:
    """Return an index with the dimensions of its expressions replaced by other expressions."""
    if isinstance(index, str):
        return f"{index} at {', '.join(map(str, inner))}"
    dims = 1 + max((_last_dim(e) for e in inner), default=-1)
    substitution = mlir.ir.AffineMap.get(dims, 0, inner)
    return tuple(expression.compose(substitution) for expression in index)


def _last_dim(expression: Any) -> int:
    ir = mlir.ir
    if isinstance(expression, ir.AffineDimExpr):
        return expression.position
    if isinstance(expression, ir.AffineBinaryExpr):
        return max(_last_dim(expression.lhs), _last_dim(expression.rhs))
    return -1


def _unknown(op: Any) -> str:
    return f"unknown {hash(op)}"


def _reshaped(op: Any) -> list[Any] | None:
    """Return the index into the operand of a reshape as a function of that into its result; None if sizes are not known."""
    groups = [[int(axis) for axis in group] for group in op.attributes["reassociation"]]
    is_expanded = op.name == "tensor.expand_shape"
    sizes = _sizes(op.results[0] if is_expanded else op.operands[0])
    parts = [_of_parts(group, sizes) if is_expanded else _into_parts(i, group, sizes) for i, group in enumerate(groups)]
    if any(part is None for part in parts):
        return None
    return [expression for part in parts for expression in (part or ())]


def _of_parts(group: list[int], sizes: list[int]) -> list[Any] | None:
    """Return the index of an axis from those of the axes into which it is split."""
    ir = mlir.ir
    large = [axis for axis in group if sizes[axis] != 1]
    expression: Any = ir.AffineConstantExpr.get(0)
    for axis in large:
        if axis != large[0] and sizes[axis] < 0:
            return None
        expression = (
            expression * sizes[axis] + ir.AffineDimExpr.get(axis) if axis != large[0] else ir.AffineDimExpr.get(axis)
        )
    return [expression]


def _into_parts(axis: int, group: list[int], sizes: list[int]) -> list[Any] | None:
    """Return the indices of axes from that of the axis into which they are joined."""
    ir = mlir.ir
    large = [part for part in group if sizes[part] != 1]
    rest: Any = ir.AffineDimExpr.get(axis)
    expressions: dict[int, Any] = {}
    for part in reversed(large):
        if part == large[0]:
            expressions[part] = rest
        elif sizes[part] < 0:
            return None
        else:
            size = ir.AffineConstantExpr.get(sizes[part])
            expressions[part] = ir.AffineExpr.get_mod(rest, size)
            rest = ir.AffineExpr.get_floor_div(rest, size)
    return [expressions.get(part, ir.AffineConstantExpr.get(0)) for part in group]

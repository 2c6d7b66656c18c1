"""The sizes of a tensor, from existing values if possible.

IREE cannot always determine the size of an intermediate value, in particular of the results of `scf.if` and loops. A function
lowered by `rlx-to-linalg` computes all sizes at its start.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir.op import opview


@dataclass(frozen=True)
class _Dim:
    """A size that must be read from a tensor at run time: `tensor.dim`."""

    value: Any
    axis: int


@dataclass(frozen=True)
class _Combined:
    """A sum or a product of sizes: `addi` or `muli`."""

    operation: str
    parts: tuple[Any, ...]


# A number, an index value, or a description of how to compute one.
Size = Any


def dynamic_sizes(value: Any) -> list[Any]:
    """Return an index value for each dynamic dimension of a tensor. Missing values are emitted at the insertion point.

    As in rlx, the sizes of loop carries do not change, and both branches of an `scf.if` have results of the same sizes.
    """
    return [_emitted(size_of(value, i)) for i in range(value.type.rank) if value.type.is_dynamic_dim(i)]


def size_of(value: Any, axis: int) -> Size:
    """Return the size of a tensor along an axis. If two results are equal, the sizes are equal."""
    type_ = value.type
    if not type_.is_dynamic_dim(axis):
        return type_.get_dim_size(axis)
    if not isinstance(value, mlir.ir.OpResult):
        initial = _initial(value)
        return _Dim(value, axis) if initial is None else size_of(initial, axis)
    op = value.owner.operation
    if op.name.startswith("linalg.") or op.name == "iree_linalg_ext.scatter":
        return size_of(list(op.operands)[value.result_number - len(op.results)], axis)
    rule = _RULES.get(op.name)
    return _Dim(value, axis) if rule is None else rule(op.opview, value, axis)


def _emitted(size: Size) -> Any:
    arith = mlir.dialect("arith")
    if isinstance(size, int):
        return arith.constant(mlir.ir.IndexType.get(), size)
    if isinstance(size, _Dim):
        return mlir.dialect("tensor").dim(size.value, _emitted(size.axis))
    if isinstance(size, _Combined):
        first, *others = map(_emitted, size.parts)
        for other in others:
            first = getattr(arith, size.operation)(first, other)
        return first
    return size


def _initial(argument: Any) -> Any:
    """Return the initial value of a loop carry; None for other arguments."""
    op = argument.owner.owner.operation
    if op.name == "scf.for":
        return op.operands[2 + argument.arg_number]  # bounds and step come first; argument 0 is the induction variable
    if op.name == "scf.while":
        return op.operands[argument.arg_number]
    return None


def _mixed(static: Any, dynamic: Any, axis: int) -> Size:
    """Return an entry of a list of static sizes, or its value in `dynamic` if it is not static."""
    unknown, static = mlir.ir.ShapedType.get_dynamic_size(), list(static)
    return static[axis] if static[axis] != unknown else list(dynamic)[static[:axis].count(unknown)]


def _of_slice(op: Any, value: Any, axis: int) -> Size:
    """Return the size of a slice. Axes of size 1 may be dropped; the other axes do not depend on the choice."""
    static, dropped = list(op.static_sizes), len(op.static_sizes) - value.type.rank
    axes = []
    for i, size in enumerate(static):
        if size == 1 and dropped:
            dropped -= 1
        else:
            axes.append(i)
    return _mixed(static, op.sizes, axes[axis])


def _of_joined(op: Any, value: Any, axis: int) -> Size:
    if axis != op.dim.value:
        return size_of(op.inputs[0], axis)
    return _Combined("addi", tuple(size_of(part, axis) for part in op.inputs))


def _of_padded(op: Any, value: Any, axis: int) -> Size:
    edges = _mixed(op.static_low, op.low, axis), _mixed(op.static_high, op.high, axis)
    return _Combined("addi", (size_of(op.source, axis), *edges))


def _of_collapsed(op: Any, value: Any, axis: int) -> Size:
    return _Combined("muli", tuple(size_of(op.src, i.value) for i in op.reassociation[axis]))


def _of_chosen(op: Any, value: Any, axis: int) -> Size:
    """Return the size of a result of `scf.if` if it is computed outside. Values from inside cannot be used after the op."""
    operations = op.regions[0].blocks[0].operations
    size = size_of(operations[len(operations) - 1].operands[value.result_number], axis)
    return _Dim(value, axis) if any(is_inside(v, op.operation) for v in _values(size)) else size


def _values(size: Size) -> Iterator[Any]:
    if isinstance(size, _Combined):
        for part in size.parts:
            yield from _values(part)
    elif isinstance(size, _Dim):
        yield size.value
    elif not isinstance(size, int):
        yield size


def is_inside(value: Any, op: Any) -> bool:
    """Whether a value is computed in a region of an op, or is an argument of a region."""
    enclosing = opview.home_of(value).owner.operation
    while enclosing is not None and enclosing != op:
        enclosing = enclosing.parent and enclosing.parent.operation
    return enclosing is not None


_RULES = {
    "tensor.empty": lambda op, value, axis: _mixed(value.type.shape, op.dynamicSizes, axis),
    "tensor.extract_slice": _of_slice,
    "tensor.expand_shape": lambda op, value, axis: _mixed(op.static_output_shape, op.output_shape, axis),
    "tensor.collapse_shape": _of_collapsed,
    "tensor.pad": _of_padded,
    "tensor.concat": _of_joined,
    "tensor.insert_slice": lambda op, value, axis: size_of(op.dest, axis),
    "flow.tensor.tie_shape": lambda op, value, axis: _mixed(value.type.shape, list(op.operands)[1:], axis),
    "scf.for": lambda op, value, axis: size_of(op.operands[3 + value.result_number], axis),
    "scf.while": lambda op, value, axis: size_of(op.operands[value.result_number], axis),
    "scf.if": _of_chosen,
}

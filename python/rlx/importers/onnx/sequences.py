"""Sequences of known length, and optional values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.importers.onnx.rules import (
    element_count,
    static_dims,
    structural,
)
from rlx.importers.onnx.scope import OnnxScope, OnnxValue
from rlx.support.errors import UnsupportedError

if TYPE_CHECKING:
    from onnx import NodeProto

_WHAT = "an operand of a sequence's op"
_MOST_PARTS = 10_000


def _items(value: OnnxValue | None) -> list[OnnxValue]:
    if value is None or value.items is None:
        raise UnsupportedError("of what is no sequence cannot be imported")
    return value.items


def _position(value: OnnxValue | None, end: int) -> int:
    """Return a known position; `end` if it is omitted."""
    if value is None:
        return end
    if value.known is None:
        raise UnsupportedError("whose position depends on the inputs cannot be imported")
    position = int(value.known.reshape(()))
    if not -end <= position <= end:
        raise UnsupportedError(f"at {position}, beyond the {end} items, has no meaning")
    return position % end if position < 0 else position


def _known(array: Any) -> list[OnnxValue]:
    return [OnnxValue(known=np.asarray(array))]


@structural("SequenceEmpty")
def sequence_empty(scope: OnnxScope, node: NodeProto) -> list[OnnxValue]:
    return [OnnxValue(items=[])]


@structural("SequenceConstruct")
def sequence_construct(scope: OnnxScope, node: NodeProto) -> list[OnnxValue]:
    return [OnnxValue(items=[v for v in scope.operands(node) if v is not None])]


@structural("SequenceInsert")
def sequence_insert(scope: OnnxScope, node: NodeProto) -> list[OnnxValue]:
    sequence, item, *position = scope.operands(node)
    items = list(_items(sequence))
    assert item is not None
    items.insert(_position(position[0] if position else None, len(items)), item)
    return [OnnxValue(items=items)]


@structural("SequenceAt")
def sequence_at(scope: OnnxScope, node: NodeProto) -> list[OnnxValue]:
    sequence, position = scope.operands(node)
    items = _items(sequence)
    return [items[_position(position, len(items))]]


@structural("SequenceErase")
def sequence_erase(scope: OnnxScope, node: NodeProto) -> list[OnnxValue]:
    sequence, *position = scope.operands(node)
    items = list(_items(sequence))
    del items[_position(position[0], len(items)) if position else -1]
    return [OnnxValue(items=items)]


@structural("SequenceLength")
def sequence_length(scope: OnnxScope, node: NodeProto) -> list[OnnxValue]:
    return _known(np.int64(len(_items(scope.operands(node)[0]))))


@structural("ConcatFromSequence")
def concat_from_sequence(scope: OnnxScope, node: NodeProto) -> list[OnnxValue]:
    attributes = scope.attributes(node)
    tensors = [scope.tensor(v, _WHAT) for v in _items(scope.operands(node)[0])]
    join = scope.g.stack if attributes.get("new_axis") else scope.g.concat
    return [OnnxValue(tensor=join(tensors, attributes["axis"]))]


@structural("SplitToSequence")
def split_to_sequence(scope: OnnxScope, node: NodeProto) -> list[OnnxValue]:
    operand, *sizes = scope.operands(node)
    assert operand is not None
    attributes, g = scope.attributes(node), scope.g
    x = scope.tensor(operand, _WHAT)
    axis = attributes.get("axis", 0) % x.shape.rank
    (whole,) = static_dims(x, axis)
    if not sizes or sizes[0] is None:
        parts = [g.narrow(x, axis, i, 1) for i in range(element_count(whole, "parts", _MOST_PARTS))]
        parts = parts if attributes.get("keepdims", 1) else [g.squeeze(p, axis) for p in parts]
        return [OnnxValue(items=[OnnxValue(tensor=p) for p in parts])]
    known = sizes[0].known
    if known is None:
        raise UnsupportedError("whose sizes depend on the inputs cannot be imported")
    if known.ndim:
        lengths = [int(n) for n in known]
    else:
        size = int(known)
        if size < 1:
            raise UnsupportedError(f"into parts of {size} has no meaning")
        element_count(whole // size, "parts", _MOST_PARTS)
        lengths = [min(size, whole - start) for start in range(0, whole, size)]
    starts = np.cumsum([0, *lengths]).tolist()
    return [OnnxValue(items=[OnnxValue(tensor=g.narrow(x, axis, s, n)) for s, n in zip(starts, lengths, strict=False)])]


@structural("SequenceMap")
def sequence_map(scope: OnnxScope, node: NodeProto) -> list[OnnxValue]:
    """Apply the body to each item of the first sequence, with items of other sequences at the same index."""
    first, *others = scope.operands(node)
    body = scope.attributes(node)["body"]
    columns: list[list[OnnxValue]] = []
    for place, item in enumerate(_items(first)):
        arguments = [item, *(v.items[place] if v.items is not None else v for v in others if v is not None)]
        columns.append(scope.inside(body, arguments))
    return [OnnxValue(items=[column[i] for column in columns]) for i in range(len(node.output))]


@structural("Optional")
def optional(scope: OnnxScope, node: NodeProto) -> list[OnnxValue]:
    values = scope.operands(node)
    return [values[0] if values and values[0] is not None else OnnxValue(is_none=True)]


@structural("OptionalHasElement")
def optional_has_element(scope: OnnxScope, node: NodeProto) -> list[OnnxValue]:
    values = scope.operands(node)
    return _known(np.bool_(bool(values) and values[0] is not None and not values[0].is_none))


@structural("OptionalGetElement")
def optional_get_element(scope: OnnxScope, node: NodeProto) -> list[OnnxValue]:
    value = scope.operands(node)[0]
    if value is None or value.is_none:
        raise UnsupportedError("of an optional value that is not there has no meaning")
    return [value]


@structural("Identity")
def identity(scope: OnnxScope, node: NodeProto) -> list[OnnxValue]:
    """Return the operand itself, so that weights and known values are preserved."""
    value = scope.operands(node)[0]
    assert value is not None
    return [value]

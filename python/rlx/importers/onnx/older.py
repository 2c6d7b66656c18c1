"""Ops of versions 1 to 6 of the ONNX op set, converted to version 7."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.ir.graph.graph import Graph
from rlx.support.errors import UnsupportedError

NEWEST = 6
# Hints to a runtime, and export modes. They do not change the results in inference.
_NOTES = frozenset(("consumed_inputs", "is_test", "output_sequence"))
_BROADCAST = frozenset(("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Less", "Greater"))


def newer(
    g: Graph, op: str, operands: Sequence[Any], attributes: dict[str, Any]
) -> tuple[Sequence[Any], dict[str, Any]]:
    """The operands and the attributes that version 7 has for an op of a version before.

    Raises:
        UnsupportedError: Version 7 has no equivalent.
    """
    given = {n: v for n, v in attributes.items() if n not in _NOTES}
    if op in _BROADCAST:
        axis, is_broadcast = given.pop("axis", None), given.pop("broadcast", 0)
        return (_aligned(g, operands, axis) if is_broadcast else operands), given
    if op == "Gemm":
        given.pop("broadcast", None)
    elif op == "PRelu":
        return _per_channel(g, operands), given
    elif op == "Pad" and "paddings" in given:
        given["pads"] = given.pop("paddings")
    elif op == "Upsample" and "height_scale" in given:
        given["scales"] = (1.0, 1.0, given.pop("height_scale"), given.pop("width_scale"))
    elif op == "Tile" and len(operands) == 3:
        raise UnsupportedError(
            "along one axis cannot be imported", hint="onnx.version_converter makes a newer one of it"
        )
    return operands, given


def _aligned(g: Graph, operands: Sequence[Any], axis: int | None) -> Sequence[Any]:
    """Align the second operand with the axes of the first from `axis` on, or with its last axes if `axis` is None."""
    x, y = operands
    if axis is None or y.shape.rank == 0:
        return operands
    behind = x.shape.rank - axis % x.shape.rank - y.shape.rank
    if behind < 0:
        raise UnsupportedError(f"from axis {axis} on, of shapes {x.shape} and {y.shape}, has no meaning")
    return x, g.reshape(y, (*y.shape.dims, *(1,) * behind))


def _per_channel(g: Graph, operands: Sequence[Any]) -> Sequence[Any]:
    x, slope = operands
    is_one = slope.shape.dims in ((), (1,))
    return (x, slope) if is_one or slope.shape.rank > 1 else (x, g.reshape(slope, (-1, *(1,) * (x.shape.rank - 2))))

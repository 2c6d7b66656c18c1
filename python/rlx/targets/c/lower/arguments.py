"""The arrays that a caller of a program passes: names, shapes, layouts, scales and zero points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.dtype import DType
from rlx.ir.interface import Argument, Output
from rlx.ir.op.opview import yielded
from rlx.ir.op.quantization import quantization_of
from rlx.ir.shape import Shape
from rlx.support.errors import UnsupportedError
from rlx.targets.c.lower.grouping import is_view
from rlx.targets.c.lower.program import CSource

_KINDS = ("input", "output", "param", "state")
# Ops whose first operand has the layout batch, channels, spatial axes.
_SPATIAL = frozenset({"rlx.q_conv2d", "rlx.conv", "rlx.pool"})
_LAYOUTS = {3: "NCW", 4: "NCHW", 5: "NCDHW"}
# Ops that compute each element from the element at the same index, so that the layout stays.
_SAME_LAYOUT = frozenset({"rlx.binary", "rlx.activation", "rlx.requantize", "rlx.cast", "rlx.pad", "rlx.where"})
_MOST_BITS = 16


@dataclass(frozen=True)
class CArgument:
    """An array that a caller passes.

    Attributes:
        entry: The argument or output of the graph.
        kind: `"input"`, `"output"`, `"param"` or `"state"`.
        name: The name in C.
        macro: The beginning of the names of its macros, such as `NET_IMAGE` of `NET_IMAGE_SIZE`.
        scale: The scale of its integers, which represent `(value - zero_point)·scale`; None if they are plain numbers.
        zero_point: The zero point.
        layout: The names of the axes, such as `"NCHW"`; empty if they are not known.
    """

    entry: Argument | Output
    kind: str
    name: str
    macro: str
    scale: float | None
    zero_point: int
    layout: str

    @property
    def shape(self) -> Shape:
        return self.entry.shape

    @property
    def dtype(self) -> DType:
        return self.entry.shape.dtype

    @property
    def rounds(self) -> bool:
        """Whether numbers are rounded to its integers. Those of more than 16 bits have no function for that: f32 has 24."""
        return self.scale is not None and self.dtype.bits <= _MOST_BITS

    @property
    def range(self) -> tuple[float, float] | None:
        """The least and greatest number that its integers represent."""
        if self.scale is None:
            return None
        low, high = int(self.dtype.min), int(self.dtype.max)
        return (low - self.zero_point) * self.scale, (high - self.zero_point) * self.scale


def arguments_of(program: CSource) -> list[CArgument]:
    """Return the arguments and outputs of a program: inputs, outputs, parameters, states.

    Raises:
        UnsupportedError: A scale or zero point is not valid.
    """
    graph = program.graph
    with mlir.entered():
        known = quantization_of(graph.function)
    found = [
        _argument(program, a, a.kind, program.names[value], known.get(a.name), _layout(value))
        for a, value in program.arguments
    ]
    results = [
        _argument(program, o, "output", name, known.get(o.name), _made_in_layout(value))
        for o, name, value in zip(graph.results, program.outputs, yielded(graph.function.entry_block), strict=True)
        if o.updates is None
    ]
    return sorted([*found, *results], key=lambda argument: _KINDS.index(argument.kind))


def by_kind(arguments: Sequence[CArgument]) -> dict[str, list[CArgument]]:
    """Return the arguments of each kind, in order."""
    return {kind: [a for a in arguments if a.kind == kind] for kind in _KINDS}


def _argument(
    program: CSource, entry: Argument | Output, kind: str, name: str, known: tuple[float, int] | None, layout: str
) -> CArgument:
    dtype, macro = entry.shape.dtype, f"{program.name}_{name}".upper()
    if known is None or not dtype.is_integer:
        return CArgument(entry, kind, name, macro, None, 0, layout)
    scale, zero_point = float(np.float32(known[0])), known[1]
    if not (math.isfinite(scale) and scale > 0):
        raise UnsupportedError(f"the scale of '{entry.name}' is {known[0]}, which is not a positive number of f32")
    if not int(dtype.min) <= zero_point <= int(dtype.max):
        raise UnsupportedError(f"the zero point of '{entry.name}' is {zero_point}, which {dtype.name} does not have")
    return CArgument(entry, kind, name, macro, scale, zero_point, layout)


def _layout(value: Any) -> str:
    """The layout of a value by the first convolution or pooling that reads it."""
    rank = len(value.type.shape)
    if rank not in _LAYOUTS:
        return ""
    for use in value.uses:
        op = use.owner.operation
        if op.name in _SPATIAL and op.operands[0] == value:
            return _LAYOUTS[rank]
        if op.name in _SAME_LAYOUT and len(op.results[0].type.shape) == rank and (found := _layout(op.results[0])):
            return found
    return ""


def _made_in_layout(value: Any) -> str:
    """The layout of a value by the convolution or pooling that computes it."""
    rank = len(value.type.shape)
    while rank in _LAYOUTS and isinstance(value, mlir.ir.OpResult):
        op = value.owner.operation
        if op.name in _SPATIAL:
            return _LAYOUTS[rank]
        if op.name not in _SAME_LAYOUT or is_view(op):
            return ""
        value = op.operands[0]
    return ""

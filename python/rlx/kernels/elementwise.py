"""`ElementwisePlan`: the code of a region of elementwise ops, without the sizes of its tensors.

Tensors are viewed with fewer axes: axes of size 1 are dropped, and neighbouring ones are joined if each tensor either varies
along all of them or along none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rlx import mlir
from rlx.ir.op import opview
from rlx.ir.shape import Shape, shape_of
from rlx.kernels.looped import LoopOp
from rlx.kernels.pulled import POINTWISE, is_pulled, number_of

# An op, its attributes and dtypes, and the numbers of the values that it reads; those of the region's inputs are the first.
Step = tuple[str, str, tuple[int, ...]]


@dataclass(frozen=True)
class ElementwisePlan:
    """The code of a region.

    Attributes:
        steps: The ops.
        results: The numbers of the values that are results.
        varies: For each tensor, inputs first, whether it varies along each of the joined axes.
        ops: The ops as they are in the region.
    """

    steps: tuple[Step, ...]
    results: tuple[int, ...]
    varies: tuple[tuple[bool, ...], ...]
    ops: tuple[mlir.Operation, ...] = field(compare=False)

    @staticmethod
    def of(loop: LoopOp) -> ElementwisePlan:
        """Return the plan of a region whose tensors have known sizes."""
        block = loop.op.regions[0].blocks[0]
        *body, end = (op.operation for op in block.operations)
        numbers: dict[Any, int] = {value: i for i, value in enumerate(block.arguments)}
        steps: list[Step] = []
        for op in body:
            steps.append((opview.name_of(op), _key(op), tuple(numbers[v] for v in op.operands)))
            numbers[op.results[0]] = len(numbers)
        shapes = [shape_of(v) for v in (*block.arguments, *end.operands)]
        varies, _ = joined_axes(shapes)
        return ElementwisePlan(tuple(steps), tuple(numbers[v] for v in end.operands), varies, tuple(body))


def joined_axes(shapes: Sequence[Shape]) -> tuple[tuple[tuple[bool, ...], ...], tuple[int, ...]]:
    """Return, for each shape, whether it varies along each joined axis; and the sizes of these axes.

    Args:
        shapes: The shapes, whose sizes are known. The last one is the result, to which the others broadcast.
    """
    result = shapes[-1].static
    padded = [(1,) * (len(result) - shape.rank) + shape.static for shape in shapes]
    columns: list[tuple[bool, ...]] = []
    sizes: list[int] = []
    for axis, size in enumerate(result):
        if size == 1:
            continue
        column = tuple(dims[axis] != 1 for dims in padded)
        if columns and columns[-1] == column:
            sizes[-1] *= size
        else:
            columns.append(column)
            sizes.append(size)
    if not columns:
        columns, sizes = [(True,) * len(shapes)], [1]
    return tuple(zip(*columns, strict=True)), tuple(sizes)


def has_code(op: mlir.Operation) -> bool:
    """Whether kernels have code for an op of a region: an elementwise one of f32, or a constant of one number."""
    name = opview.name_of(op)
    if name == "constant":
        return is_pulled(op) and shape_of(op.results[0]).dtype.name in ("f32", "bool")
    dtypes = {shape_of(v).dtype.name for v in (*op.operands, *op.results)}
    return name in POINTWISE and dtypes <= {"f32", "bool"} and is_pulled(op)


def _key(op: mlir.Operation) -> str:
    """The dtypes and attributes of an op, on which its code depends."""
    dtypes = [shape_of(v).dtype.name for v in (*op.operands, *op.results)]
    if opview.name_of(op) == "constant":
        return f"{dtypes} {number_of(op).tobytes().hex()}"
    return f"{dtypes} {sorted(opview.attributes_of(op).items())}"

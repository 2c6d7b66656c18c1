"""Quantised element types. RLX lacks them, so a value is represented in the dtype of its stored integers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.dtype import DType
from rlx.ir.dtype import from_mlir as dtype_from_mlir
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.location import describe
from rlx.ir.op.attributes import elements_from_mlir
from rlx.ir.shape import Shape, shape_of_type
from rlx.support.errors import Error

_QUANTISED = re.compile(
    r"!quant\.uniform<(?P<storage>[iu]+\d+)(?:<(?P<least>-?\d+):(?P<most>-?\d+)>)?:(?P<expressed>\w+)(?::(?P<axis>\d+))?, "
    r"(?P<numbers>[^<>]+)>"
)


@dataclass(frozen=True)
class Quantised:
    """An element type with the values `(q - zero point)·scale` for stored integers q.

    Attributes:
        storage: The dtype of the stored integers.
        expressed: The dtype of the values.
        scales: One for each position of an axis, or a single one.
        zero_points: The same number of zero points.
        axis: The axis; None for a single scale.
        least, most: The smallest and the largest stored integer.
    """

    storage: DType
    expressed: DType
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None
    least: int
    most: int

    def numbers(self, g: Graph, stored: Tensor) -> Tensor:
        """Return the values of stored integers."""
        scale, zero_point = self._along(g, stored)
        return (g.cast(stored, self.expressed) - zero_point) * scale

    def stored(self, g: Graph, numbers: Tensor) -> Tensor:
        """Return the stored integers nearest to values, ties to even."""
        scale, zero_point = self._along(g, numbers)
        steps = g.round(g.cast(numbers, self.expressed) / scale) + zero_point
        return g.cast(g.minimum(g.maximum(steps, float(self.least)), float(self.most)), self.storage)

    def _along(self, g: Graph, x: Tensor) -> list[Tensor]:
        dims = [len(self.scales) if axis == self.axis else 1 for axis in range(x.rank)]
        values = (np.array(v, self.expressed.numpy) for v in (self.scales, self.zero_points))
        return [g.constant(v.reshape(dims if self.axis is not None else ())) for v in values]


def is_quantised(type_: Any) -> bool:
    """Return whether the element type of a tensor is quantised."""
    return "!quant." in str(type_)


def quantised(type_: Any) -> Quantised | None:
    """Return the quantised element type of a tensor; None for another tensor.

    Raises:
        Error: The kind of quantisation is not supported.
    """
    text = str(type_)
    return _quantised(text[text.index("!quant") :].removesuffix(">")) if is_quantised(type_) else None


@cache
def _quantised(text: str) -> Quantised:
    parts = _QUANTISED.fullmatch(text)
    if parts is None:
        raise Error(
            f"{text} is none of the quantised types that can be imported: one scale, or one for each position of an axis"
        )
    storage = dtype_from_mlir(parts["storage"].replace("u", "ui"))
    pairs = [pair.partition(":") for pair in parts["numbers"].strip("{}").split(",")]
    return Quantised(
        storage,
        dtype_from_mlir(parts["expressed"]),
        tuple(float(scale) for scale, _, _ in pairs),
        tuple(int(zero_point or 0) for _, _, zero_point in pairs),
        None if parts["axis"] is None else int(parts["axis"]),
        int(parts["least"] or storage.min),
        int(parts["most"] or storage.max),
    )


def shape_held(value: mlir.Value, location: mlir.Location) -> Shape:
    """Return the shape and dtype that represent a value.

    Raises:
        Error: Its element type is not supported, or a size is dynamic.
    """
    try:
        return _shape_held(value.type)
    except Error as problem:
        hint = "export it with static sizes" if "?" in str(value.type) else problem.hint
        raise Error(
            f"{value.type} cannot be imported: {problem.message}", location=describe(location), hint=hint
        ) from None


def _shape_held(type_: Any) -> Shape:
    number_type = quantised(type_)
    if number_type is None:
        return shape_of_type(type_)
    ranked = mlir.ir.RankedTensorType(type_)
    signless = mlir.ir.IntegerType.get_signless(64)
    return shape_of_type(mlir.ir.RankedTensorType.get(ranked.shape, signless)).with_dtype(number_type.storage)


def elements_held(attribute: Any) -> np.ndarray:
    """Return the elements of a dense attribute.

    Raises:
        Error: RLX does not have their type.
    """
    shape_of_type(attribute.type)  # raises for a dtype that RLX does not have
    return elements_from_mlir(attribute)


def one_of(attribute: Any) -> bytes:
    """Return the bytes of the element of a splat.

    Raises:
        Error: RLX does not have its type.
    """
    return elements_held(attribute).reshape(-1)[:1].tobytes()


def of_stored(type_: Any, stored: Any) -> tuple[DType, Callable[[], Any]]:
    """Return the dtype of the elements of a tensor type, and a function that returns their bytes.

    Args:
        type_: The type.
        stored: The elements in MLIR's format: at least one byte each, or eight booleans per byte in bytecode.

    Raises:
        Error: RLX does not have their type, or their number differs from the type.
    """
    held = _shape_held(type_)
    count = math.prod(held.static)
    expected = count * held.dtype.itemsize
    packed = held.dtype.is_bool and len(stored) == -(-count // 8)
    if len(stored) != expected and not packed:
        raise Error(f"the elements have {len(stored)} bytes, and {type_} has {expected}")
    if packed:
        return held.dtype, lambda: np.unpackbits(np.frombuffer(stored, np.uint8), count=count, bitorder="little")
    return held.dtype, lambda: stored

"""Element types that RLX does not have, and the dtypes in which their values are held: unsigned and quantised integers.

ui64 is held in i64, by its bits; ui16 in u32, by its numbers; a quantised number in the dtype of what is stored of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.attributes import elements_from_mlir
from rlx.ir.builder import Tensor
from rlx.ir.dtype import DType, i64, u32
from rlx.ir.dtype import from_mlir as dtype_from_mlir
from rlx.ir.errors import Error
from rlx.ir.location import describe
from rlx.ir.shape import Shape, shape_of_type

_HELD = {"ui64": i64, "ui16": u32}
_FOREIGN = re.compile(r"(?<=[<x])(?:ui64|ui16|!quant)\b")
_QUANTISED = re.compile(
    r"!quant\.uniform<(?P<storage>[iu]+\d+)(?:<(?P<least>-?\d+):(?P<most>-?\d+)>)?:(?P<expressed>\w+)(?::(?P<axis>\d+))?, "
    r"(?P<numbers>[^<>]+)>"
)


@dataclass(frozen=True)
class Quantised:
    """An element type whose numbers are `(q - zero point)·scale` for stored integers q.

    Attributes:
        storage: The dtype of the stored integers.
        expressed: The dtype of the numbers.
        scales: One for each position of an axis, or a single one.
        zero_points: As many.
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

    def numbers(self, g: Any, stored: Tensor) -> Tensor:
        """What stored integers stand for."""
        scale, zero_point = self._along(g, stored)
        return (g.cast(stored, self.expressed) - zero_point) * scale

    def stored(self, g: Any, numbers: Tensor) -> Tensor:
        """The stored integers that are nearest to numbers, even at a tie."""
        scale, zero_point = self._along(g, numbers)
        steps = g.round(g.cast(numbers, self.expressed) / scale) + zero_point
        return g.cast(g.minimum(g.maximum(steps, float(self.least)), float(self.most)), self.storage)

    def _along(self, g: Any, x: Tensor) -> list[Tensor]:
        dims = [len(self.scales) if axis == self.axis else 1 for axis in range(x.rank)]
        values = (np.array(v, self.expressed.numpy) for v in (self.scales, self.zero_points))
        return [g.constant(v.reshape(dims if self.axis is not None else ())) for v in values]


def foreign(type_: Any) -> str | None:
    """The element type of a tensor if RLX does not have it, but holds it in another: `ui64`, `ui16` or `!quant`."""
    found = _FOREIGN.search(str(type_))
    return found[0] if found else None


def quantised(type_: Any) -> Quantised | None:
    """The quantised element type of a tensor; None of another tensor.

    Raises:
        Error: It is quantised in a way that is not imported.
    """
    text = str(type_)
    return _quantised(text[text.index("!quant") :].removesuffix(">")) if foreign(type_) == "!quant" else None


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
    """The shape in which a value is held.

    Raises:
        Error: Its element type is not held, or a size is dynamic.
    """
    try:
        return _shape_held(value.type)
    except Error as problem:
        hint = "export it with static sizes" if "?" in str(value.type) else problem.hint
        raise Error(
            f"{value.type} cannot be imported: {problem.message}", location=describe(location), hint=hint
        ) from None


def _shape_held(type_: Any) -> Shape:
    kind = foreign(type_)
    if kind is None:
        return shape_of_type(type_)
    number_type = quantised(type_)
    held = _HELD[kind] if number_type is None else number_type.storage
    ranked = mlir.ir.RankedTensorType(type_)
    signless = mlir.ir.IntegerType.get_signless(64)
    return shape_of_type(mlir.ir.RankedTensorType.get(ranked.shape, signless)).with_dtype(held)


def as_held(value: np.ndarray | None) -> np.ndarray | None:
    """The value of a parameter in the dtype that holds it."""
    if value is None or value.dtype not in (np.uint16, np.uint64):
        return value
    return value.astype(np.uint32) if value.dtype == np.uint16 else value.view(np.int64)


def elements_held(attribute: Any) -> np.ndarray:
    """The elements of a dense attribute as they are held.

    Raises:
        Error: Their type is not held.
    """
    kind = foreign(attribute.type)
    if kind is None:
        shape_of_type(attribute.type)  # raises for a dtype that RLX does not have
        return elements_from_mlir(attribute)
    if attribute.is_splat:  # a view of one element, however many there are
        single = np.array(attribute.get_splat_value().value & (2**64 - 1), np.uint64)
        held = single.view(np.int64) if kind == "ui64" else single.astype(np.uint32)
        return np.broadcast_to(held, tuple(attribute.type.shape))
    return np.array(attribute).view(np.int64) if kind == "ui64" else np.array(attribute).astype(np.uint32)


def one_of(attribute: Any) -> bytes:
    """The bytes of the element of a splat.

    Raises:
        Error: Its type is not held.
    """
    if foreign(attribute.type) is None:
        return elements_from_mlir(attribute).reshape(-1)[:1].tobytes()
    bits = mlir.ir.IntegerType(attribute.type.element_type).width
    return (attribute.get_splat_value().value & (2**bits - 1)).to_bytes(bits // 8, "little")


def of_stored(type_: Any, stored: Any) -> tuple[DType, Callable[[], Any]]:
    """The dtype in which the elements of a tensor type are held, and a function that gives their bytes.

    Args:
        type_: The type.
        stored: The elements as MLIR stores them: truth values as bytes, or in bytecode eight in a byte.

    Raises:
        Error: Their type is not held, or they are not so many.
    """
    kind, held = foreign(type_), _shape_held(type_)
    count = math.prod(held.static)
    expected = count * (2 if kind == "ui16" else held.dtype.itemsize)
    packed = held.dtype.is_bool and len(stored) == -(-count // 8)
    if len(stored) != expected and not packed:
        raise Error(f"the elements have {len(stored)} bytes, and {type_} has {expected}")
    if packed:
        return held.dtype, lambda: np.unpackbits(np.frombuffer(stored, np.uint8), count=count, bitorder="little")
    if kind == "ui16":
        return held.dtype, lambda: np.frombuffer(stored, np.uint16).astype(np.uint32).view(np.uint8)
    return held.dtype, lambda: stored


def flipped(g: Any, x: Tensor) -> Tensor:
    """Signed numbers in the order of the ui64 that x holds, and the other way round."""
    return g.bitwise_xor(x, g.constant(np.int64(-(2**63))))

"""Packing of tensors with elements of less than 8 bits into bytes, for parameters and large constants."""

from __future__ import annotations

from math import prod

import numpy as np

from rlx import mlir
from rlx.ir.interface import Argument
from rlx.ir.op.attributes import elements_to_mlir
from rlx.ir.packing import pack as packed_array
from rlx.ir.shape import Shape
from rlx.numerics.scalars import constant as scalar
from rlx.targets.linalg.loops import PARALLEL, LoopEmitter, sized_tensor_type

# Function attribute: the names of the parameters that are packed.
PACKED = "rlx.packed"
# The least number of elements of a constant that is packed.
_LARGE = 1024


def is_packed(argument: Argument) -> bool:
    """Whether a lowered function takes an argument in packed form: a parameter of known sizes."""
    return argument.kind == "param" and argument.shape.dtype.packed and argument.shape.is_static


def packed_type(shape: Shape) -> mlir.Type:
    """The type of a packed tensor: bytes along the last axis if a row fills whole bytes, else one axis of bytes."""
    return sized_tensor_type(_dims(shape), mlir.ir.IntegerType.get_signless(8, context=mlir.context()))


def _dims(shape: Shape) -> tuple[int, ...]:
    dims, count = shape.static, 8 // shape.dtype.bits
    if dims and dims[-1] % count == 0:
        return (*dims[:-1], dims[-1] // count)
    return (shape.dtype.nbytes(prod(dims)),)


def unpack_tensor(low: LoopEmitter, value: mlir.Value, shape: Shape) -> mlir.Value:
    """Unpack a tensor, in one loop nest that can be fused with the tensor's readers."""
    dims, bits, byte = shape.static, shape.dtype.bits, value.type.element_type
    if 0 in dims:
        return low.empty(dims, byte)
    arith, in_byte = low.arith, low.size((8 // bits).bit_length() - 1)
    is_by_row = len(value.type.shape) == len(dims) and _dims(shape)[:-1] == dims[:-1]

    def body(_: mlir.Value) -> mlir.Value:
        place = [low.scalar_index(axis) for axis in range(len(dims))]
        *before, last = place if is_by_row else [_flat(low, place, dims)]
        code = low.tensor.extract(value, [*before, arith.shrui(last, in_byte)])
        number = arith.index_cast(byte, arith.andi(last, low.size(8 // bits - 1)))
        code = arith.shrui(code, arith.muli(number, scalar(bits, byte)))
        return arith.andi(code, scalar((1 << bits) - 1, byte))

    out = (low.empty(dims, byte), tuple(range(len(dims))))
    return low.generic([], [out], [PARALLEL] * len(dims), body)


def _flat(low: LoopEmitter, place: list[mlir.Value], dims: tuple[int, ...]) -> mlir.Value:
    """The flat index of an element of a tensor with these sizes."""
    number = low.size(0)
    for index, size in zip(place, dims, strict=True):
        number = low.arith.addi(low.arith.muli(number, low.size(size)), index)
    return number


def pack_tensor(low: LoopEmitter, value: mlir.Value, shape: Shape) -> mlir.Value:
    """Pack a tensor."""
    dims, bits, byte = shape.static, shape.dtype.bits, value.type.element_type
    target, count, size = _dims(shape), 8 // bits, prod(dims)
    if not size:
        return low.empty(target, byte)
    arith, flat = low.arith, low.reshape(value, dims, (size,))

    def body(_: mlir.Value) -> mlir.Value:
        first = arith.muli(low.scalar_index(0), low.size(count))
        found = scalar(0, byte)
        for i in range(count):
            at = arith.addi(first, low.size(i))
            is_inside = arith.cmpi(arith.CmpIPredicate.ult, at, low.size(size))
            code = low.tensor.extract(flat, [arith.minui(at, low.size(size - 1))])
            code = arith.shli(arith.andi(code, scalar((1 << bits) - 1, byte)), scalar(i * bits, byte))
            found = arith.ori(found, arith.select(is_inside, code, scalar(0, byte)))
        return found

    out = (low.empty((prod(target),), byte), (0,))
    return low.reshape(low.generic([], [out], [PARALLEL], body), (prod(target),), target)


def packed_constant(low: LoopEmitter, value: np.ndarray, shape: Shape) -> mlir.Value | None:
    """Emit a constant that is packed in the program; None for a small constant or a splat."""
    if not shape.dtype.packed or value.size < _LARGE or (value == value.flat[0]).all():
        return None
    content = packed_array(value).view(np.int8).reshape(_dims(shape))
    return unpack_tensor(low, low.arith.constant(packed_type(shape), elements_to_mlir(content)), shape)

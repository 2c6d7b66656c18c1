"""Buffers of 16-bit floats, read and written as f32."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rlx.ir.dtype import bf16, f16, u16
from rlx.kernels.buffer import Buffer, Position, Size
from rlx.kernels.functions import of_bf16, of_f16, to_bf16
from rlx.kernels.values import Value


@dataclass(frozen=True)
class NarrowFloats:
    """A buffer of bf16 or f16.

    Attributes:
        bits: Its numbers as u16.
        widened: Returns the numbers of bits as f32.
        narrowed: Returns the bits of numbers; None if they are only read.
    """

    bits: Buffer
    widened: Callable[[Value], Value]
    narrowed: Callable[[Value], Value] | None

    @property
    def shape(self) -> tuple[Size, ...]:
        return self.bits.shape

    def __getitem__(self, place: Position | tuple[Position, ...]) -> Value:
        return self.widened(self.bits[place])

    def __setitem__(self, place: Position | tuple[Position, ...], value: Value) -> None:
        assert self.narrowed is not None
        self.bits[place] = self.narrowed(value)


Floats = Buffer | NarrowFloats


def floats(buffer: Buffer) -> Floats:
    """The elements of a buffer of f32, bf16 or f16, as f32. Those of f16 are only read."""
    if buffer.element is bf16:
        return NarrowFloats(buffer.bits(u16), of_bf16, to_bf16)
    if buffer.element is f16:
        return NarrowFloats(buffer.bits(u16), of_f16, None)
    return buffer

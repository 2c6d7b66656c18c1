"""Lowering rule for random bits: the generator as integer arithmetic, instead of a device-specific generator."""

from __future__ import annotations

import math

from rlx.ir.dtype import i64, u32
from rlx.ir.shape import Shape
from rlx.ops.random import philox
from rlx.targets.stablehlo.emitter import HloEmitter
from rlx.targets.stablehlo.rules import Lowered, lowers


class _TensorWords:
    """Arithmetic on 32-bit words as tensors; see `rlx.ops.random.WordArithmetic`."""

    def __init__(self, emit: HloEmitter):
        self.emit = emit

    def product(self, x: Lowered, factor: int) -> tuple[Lowered, Lowered]:
        return self.halves(self.emit.mul(self.emit.convert(x, i64), factor))

    def flipped(self, x: Lowered, y: Lowered) -> Lowered:
        return self.emit.elementwise("xor", x, y)

    def increased(self, x: Lowered, step: int) -> Lowered:
        return self.emit.add(x, step)

    def halves(self, x: Lowered) -> tuple[Lowered, Lowered]:
        """Low and high word of 64-bit integers."""
        upper = self.emit.elementwise("shift_right_logical", x, 32)
        return self.emit.convert(x, u32), self.emit.convert(upper, u32)


@lowers("random_bits")
def random_bits(emit: HloEmitter, results: list[Shape], seed: Lowered, *, shape: tuple[int, ...]) -> Lowered:
    dims, count = results[0].static, math.prod(results[0].static)
    if not count:
        return emit.full(dims, u32, 0)
    words, blocks = _TensorWords(emit), -(-count // 4)
    zero = emit.full((blocks,), u32, 0)
    key = [emit.broadcast(half, (blocks,)) for half in words.halves(emit.convert(seed, i64))]
    drawn = philox(words, (*words.halves(emit.iota((blocks,), 0, i64)), zero, zero), key)
    stream = emit.concatenate([emit.reshape(word, (blocks, 1)) for word in drawn], 1)
    return emit.reshape(emit.slice(emit.reshape(stream, (4 * blocks,)), (0,), (count,)), dims)

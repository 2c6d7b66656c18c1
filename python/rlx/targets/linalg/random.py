"""Lowering rule for random bits: the generator as integer arithmetic, in one loop over its blocks."""

from __future__ import annotations

from collections.abc import Sequence

from rlx import mlir
from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import DType, u32
from rlx.ir.shape import Shape
from rlx.numerics.scalars import storage_type
from rlx.ops.random import philox
from rlx.targets.linalg.loops import PARALLEL, LoopEmitter, product_of
from rlx.targets.linalg.rules import Lowered, lowers
from rlx.targets.linalg.shape import extract


class _ScalarWords:
    """Arithmetic on 32-bit words as scalars in a loop body; see `rlx.ops.random.WordArithmetic`."""

    def __init__(self, low: LoopEmitter):
        self.low = low
        self.word = storage_type(u32)
        self.double = low.ir.IntegerType.get_signless(64)

    def product(self, x: mlir.Value, factor: int) -> tuple[mlir.Value, mlir.Value]:
        wide = self.low.arith.extui(self.double, x)
        return self.halves(self.low.arith.muli(wide, self.low.constant(factor, self.double)))

    def flipped(self, x: mlir.Value, y: mlir.Value) -> mlir.Value:
        return self.low.arith.xori(x, y)

    def increased(self, x: mlir.Value, step: int) -> mlir.Value:
        return self.low.arith.addi(x, self.low.constant(step, self.word))

    def halves(self, x: mlir.Value) -> tuple[mlir.Value, mlir.Value]:
        """Low and high word of a 64-bit integer."""
        arith = self.low.arith
        upper = arith.shrui(x, self.low.constant(32, self.double))
        return arith.trunci(self.word, x), arith.trunci(self.word, upper)

    def key(self, seed: mlir.Value, dtype: DType) -> tuple[mlir.Value, mlir.Value]:
        """The words of a stored seed."""
        if dtype.itemsize < 8:
            arith = self.low.arith
            seed = (arith.extsi if dtype.is_signed else arith.extui)(self.double, seed)
        return self.halves(seed)


@lowers("random_bits")
def random_bits(low: LoopEmitter, results: list[Shape], seed: Lowered, *, shape: tuple[Dim, ...]) -> mlir.Value:
    dims, word = results[0].dims, storage_type(u32)
    if 0 in dims:
        return low.empty(dims, word)
    count = product_of(dims)
    blocks = (count + 3) // 4
    stream = low.reshape(_interleaved(low, _blocks(low, seed, blocks), blocks), (blocks, 4), (4 * blocks,))
    return low.reshape(extract(low, stream, (0,), (count,), (1,)), (count,), dims)


def _blocks(low: LoopEmitter, seed: Lowered, count: Dim) -> tuple[mlir.Value, ...]:
    """The words of all blocks, as four tensors: first words, second words, third words and fourth words."""
    words = _ScalarWords(low)

    def body(key: mlir.Value, *_: mlir.Value) -> tuple[mlir.Value, ...]:
        number = words.halves(low.arith.index_cast(words.double, low.scalar_index(0)))
        zero = low.constant(0, words.word)
        return philox(words, (*number, zero, zero), words.key(key, seed.shape.dtype))

    outs = [(low.empty((count,), words.word), (0,)) for _ in range(4)]
    return low.generic([(seed.value, ())], outs, [PARALLEL], body)


def _interleaved(low: LoopEmitter, parts: Sequence[mlir.Value], count: Dim) -> mlir.Value:
    """`[count, 4]` from four vectors."""
    equal = low.arith.CmpIPredicate.eq

    def body(*words: mlir.Value) -> mlir.Value:
        chosen = words[3]
        for i in range(3):
            here = low.arith.cmpi(equal, low.scalar_index(1), low.constant(i, low.index_type))
            chosen = low.arith.select(here, words[i], chosen)
        return chosen

    out = (low.empty((count, 4), storage_type(u32)), (0, 1))
    return low.generic([(part, (0,)) for part in parts], [out], [PARALLEL] * 2, body)

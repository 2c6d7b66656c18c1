"""Random bits identical to XLA's: Philox or ThreeFry from a ui64 state of key and counter."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rlx.importers.stablehlo.rules import imports
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.shape import Shape
from rlx.ops.random import philox
from rlx.support.errors import UnsupportedError

_WORD = 32
# ThreeFry2x32 (J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): rotations and the parity of a
# key.
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_ROUNDS = 5  # of four rotations each


class _PhiloxWords:
    """Arithmetic on 32-bit words, in the form that `philox` takes."""

    def __init__(self, g: Graph):
        self._g = g

    def halves(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the low and high words of 64-bit integers."""
        g = self._g
        high = g.shift_right_logical(x, g.full(x.shape.dims, _WORD, x.dtype))
        return g.cast(x, "u32"), g.cast(high, "u32")

    def joined(self, low: Tensor, high: Tensor) -> Tensor:
        g = self._g
        high = g.cast(high, "u64")
        return g.bitwise_or(g.cast(low, "u64"), g.binary("shift_left", high, g.full(high.shape.dims, _WORD, "u64")))

    def product(self, x: Tensor, factor: int) -> tuple[Tensor, Tensor]:
        return self.halves(self._g.cast(x, "u64") * factor)

    def flipped(self, x: Tensor, y: Tensor) -> Tensor:
        return self._g.bitwise_xor(x, y)

    def increased(self, x: Tensor, step: int) -> Tensor:
        return x + self._g.constant(np.uint32(step))

    def parity(self) -> Tensor:
        return self._g.constant(np.uint32(_PARITY))

    def rotated(self, x: Tensor, count: int) -> Tensor:
        g = self._g
        left, right = (g.full(x.shape.dims, n, "u32") for n in (count, _WORD - count))
        return g.bitwise_or(g.binary("shift_left", x, left), g.binary("shift_right", x, right))


@imports("rng_bit_generator")
def rng_bit_generator(g: Graph, state: Tensor, *, rng_algorithm: str, results: list[Shape]) -> list[Tensor]:
    """Generate random bits. The default algorithm is Philox, as in XLA for CPUs and GPUs."""
    words, kind = _PhiloxWords(g), results[1].dtype
    sizes = {"THREE_FRY": (2,), "PHILOX": (2, 3), "DEFAULT": (2, 3)}[rng_algorithm]
    if state.shape.static not in [(size,) for size in sizes]:
        raise UnsupportedError(f"by {rng_algorithm} from a state of {state.shape} cannot be imported")
    if not kind.is_integer:
        raise UnsupportedError(
            f"of {kind.name} cannot be imported", hint="draw integers of as many bits, and bitcast them"
        )
    draw = _by_three_fry if rng_algorithm == "THREE_FRY" else _by_philox
    numbers = [g.cast(state[i], "u64") for i in range(state.shape.static[0])]
    following, bits = draw(words, g, numbers, results[1].static, wide=kind.itemsize == 8)
    return [g.cast(g.stack(following), state.dtype), g.cast(bits, kind)]


# --- Philox -----------------------------------------------------------------------------------------


def _by_philox(
    words: _PhiloxWords, g: Graph, state: Sequence[Tensor], shape: tuple[int, ...], *, wide: bool
) -> tuple[list[Tensor], Tensor]:
    """Return blocks of four words. If the state lacks the upper half of the counter, the key takes its place."""
    key, low, high = (*state, state[0])[:3]
    count = math.prod(shape)
    blocks = -(-count * (2 if wide else 1) // 4)

    def sum_of(step: Tensor) -> tuple[Tensor, Tensor]:
        total = low + step
        return total, high + g.cast(total < low, "u64")

    counter = [word for half in sum_of(g.iota((blocks,), 0, "u64")) for word in words.halves(half)]
    drawn: list[Tensor] = list(philox(words, counter, words.halves(key)))
    if wide:
        drawn = [words.joined(*drawn[:2]), words.joined(*drawn[2:])]
    bits = g.reshape(g.reshape(g.stack(drawn, 1), (-1,))[:count], shape)
    following = sum_of(g.constant(np.uint64(blocks)))
    return [key, *following[: len(state) - 1]], bits


# --- ThreeFry ---------------------------------------------------------------------------------------


def _by_three_fry(
    words: _PhiloxWords, g: Graph, state: Sequence[Tensor], shape: tuple[int, ...], *, wide: bool
) -> tuple[list[Tensor], Tensor]:
    """Return pairs of words. A pair is one 64-bit number, or two numbers that are neighbours on the split axis."""
    key, counter = state
    axis = None if wide or not shape else _split_axis(shape)
    half = [-(-n // 2) if i == axis else n for i, n in enumerate(shape)]
    count = math.prod(half)
    numbers = counter + g.reshape(g.iota((count,), 0, "u64"), half)
    pair = _three_fry(words, words.halves(numbers), words.halves(key))
    following = [key, counter + count]
    if wide:
        return following, words.joined(*pair)
    if axis is None:
        return following, pair[0]
    both = g.stack(pair, axis + 1)
    bits = g.reshape(both, [2 * n if i == axis else n for i, n in enumerate(half)])
    return following, bits[tuple(slice(0, n) for n in shape)]


def _split_axis(shape: tuple[int, ...]) -> int:
    """Return the first axis of even size, else the first axis of the largest size."""
    even = [axis for axis, size in enumerate(shape) if size % 2 == 0]
    return even[0] if even else max(range(len(shape)), key=shape.__getitem__)


def _three_fry(words: _PhiloxWords, x: tuple[Tensor, Tensor], key: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    keys = (*key, words.flipped(words.flipped(*key), words.parity()))
    first, second = x[0] + keys[0], x[1] + keys[1]
    for number in range(_ROUNDS):
        for rotation in _ROTATIONS[number % 2]:
            first = first + second
            second = words.flipped(first, words.rotated(second, rotation))
        first = first + keys[(number + 1) % 3]
        second = words.increased(second + keys[(number + 2) % 3], number + 1)
    return first, second

"""Complex numbers as pairs of values, in memory as rows of floats, and transforms of a few of them in registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import cos, pi, sin, sqrt

from rlx.kernels.buffer import Buffer, Lanes, Size
from rlx.kernels.values import Operand, Value

Pair = tuple[Value, Value]  # the real and the imaginary parts

_HALF_ROOT = sqrt(0.5)


# --- memory -----------------------------------------------------------------------------------------


def lane_order(lanes: int) -> list[int]:
    """Return the number of the complex number that `load_pairs` reads to each lane.

    Parts are separated within 128 bits, which is one instruction; in order, it would be two.
    """
    return [i // 4 * 2 + i % 2 + (lanes // 2 if i % 4 > 1 else 0) for i in range(lanes)]


def load_pairs(x: Buffer, row: Size, first: Size, lanes: int) -> Pair:
    """Read `lanes` complex numbers of a row of floats, in `lane_order`."""
    a, b = x[row, Lanes(first * 2, lanes)], x[row, Lanes(first * 2 + lanes, lanes)]
    return _separated(a, b, (0, 2, lanes, lanes + 2))


def store_pairs(y: Buffer, row: Size, first: Size, value: Pair) -> None:
    """Write a vector of complex numbers to a row of floats, from `lane_order`."""
    lanes = value[0].lanes or 1
    y[row, Lanes(first * 2, lanes)], y[row, Lanes(first * 2 + lanes, lanes)] = (
        value[0].shuffle(value[1], _in_blocks(lanes, (i, lanes + i, i + 1, lanes + i + 1))) for i in (0, 2)
    )


def load_mirrored(x: Buffer, row: Size, last: Size, lanes: int) -> Pair:
    """Read complex numbers downwards: number `last - i` to the lane of number i of `lane_order`."""
    end = (last + 1) * 2
    a, b = (joined_blocks([x[row, Lanes(end - 4 * (i + 1), 4)] for i in part]) for part in _halves(lanes))
    return _separated(a, b, (2, 0, lanes + 2, lanes))


def store_mirrored(y: Buffer, row: Size, last: Size, value: Pair) -> None:
    """Write complex numbers in the order of `load_mirrored`."""
    lanes, end = value[0].lanes or 1, (last + 1) * 2
    for first, part in zip((0, 2), _halves(lanes), strict=True):
        indices = (first + 1, lanes + first + 1, first, lanes + first)
        vector = value[0].shuffle(value[1], _in_blocks(lanes, indices))
        for block, i in enumerate(part):
            y[row, Lanes(end - 4 * (i + 1), 4)] = vector.shuffle(vector, range(4 * block, 4 * block + 4))


def _halves(lanes: int) -> tuple[range, range]:
    """Return the numbers of the blocks of 128 bits of two vectors."""
    return range(lanes // 4), range(lanes // 4, lanes // 2)


def joined_blocks(blocks: Sequence[Value]) -> Value:
    """The vector of blocks of 128 bits. Blocks from memory are joined faster than the blocks of registers are exchanged."""
    vectors = list(blocks)
    while len(vectors) > 1:
        lanes = vectors[0].lanes or 1
        vectors = [a.shuffle(b, range(2 * lanes)) for a, b in zip(vectors[::2], vectors[1::2], strict=True)]
    return vectors[0]


def transposed_blocks(rows: Sequence[Value]) -> list[Value]:
    """The columns of four rows of four elements, in each block of 128 bits."""
    lanes = rows[0].lanes or 1
    low, high = (_in_blocks(lanes, (i, lanes + i, i + 1, lanes + i + 1)) for i in (0, 2))
    pairs = [(a.shuffle(b, low), a.shuffle(b, high)) for a, b in (rows[:2], rows[2:])]
    return [
        a.shuffle(b, _in_blocks(lanes, (i, i + 1, lanes + i, lanes + i + 1)))
        for a, b in zip(*pairs, strict=True)
        for i in (0, 2)
    ]


def _in_blocks(lanes: int, indices: Sequence[int]) -> list[int]:
    """Return the indices of a shuffle that does the same in each block of 128 bits."""
    return [block + i for block in range(0, lanes, 4) for i in indices]


def _separated(a: Value, b: Value, indices: Sequence[int]) -> Pair:
    real = _in_blocks(a.lanes or 1, indices)
    return a.shuffle(b, real), a.shuffle(b, [i + 1 for i in real])


# --- arithmetic -------------------------------------------------------------------------------------


def swapped(x: Pair) -> Pair:
    """Swap real and imaginary parts. Before and after a transform, this makes it the inverse one."""
    return x[1], x[0]


def conjugate(x: Pair) -> Pair:
    """The complex conjugates."""
    return x[0], -x[1]


def scaled(x: Pair, factor: float) -> Pair:
    """The products with a real number."""
    return x if factor == 1.0 else (x[0] * factor, x[1] * factor)


def plus(x: Pair, y: Pair) -> Pair:
    """The sums."""
    return x[0] + y[0], x[1] + y[1]


def minus(x: Pair, y: Pair) -> Pair:
    """The differences."""
    return x[0] - y[0], x[1] - y[1]


def times(x: Pair, y: Pair) -> Pair:
    """The products."""
    (a, b), (u, v) = x, y
    return a * u - b * v, a * v + b * u


def butterfly(load: Callable[[int], Pair], n: int) -> list[Pair]:
    """Return the transform of n numbers, which are read when they are needed: there are few registers."""
    if n == 1:
        return [load(0)]
    if n % 2:
        return _odd_butterfly([load(j) for j in range(n)])
    even, odd = butterfly(lambda j: load(2 * j), n // 2), butterfly(lambda j: load(2 * j + 1), n // 2)
    both = [_joined(e, o, k, n) for k, (e, o) in enumerate(zip(even, odd, strict=True))]
    return [sums for sums, _ in both] + [differences for _, differences in both]


def _joined(e: Pair, o: Pair, k: int, n: int) -> tuple[Pair, Pair]:
    """Return `e + w·o` and `e - w·o` for `w = exp(-2πi·k/n)`."""
    a, b = o
    if 4 * k % n == 0:  # 1 or -i
        turned = (b, -a) if k else o
        if k:
            return (e[0] + b, e[1] - a), (e[0] - b, e[1] + a)
        return plus(e, turned), minus(e, turned)
    if 8 * k % n == 0:
        real, imaginary = (a + b, b - a) if 8 * k == n else (b - a, -(a + b))
        return _plus_multiple(e, (real, imaginary), _HALF_ROOT), _plus_multiple(e, (real, imaginary), -_HALF_ROOT)
    u, v = cos(2 * pi * k / n), -sin(2 * pi * k / n)
    return (
        (a.fma(u, b.fma(-v, e[0])), b.fma(u, a.fma(v, e[1]))),
        (a.fma(-u, b.fma(v, e[0])), b.fma(-u, a.fma(-v, e[1]))),
    )


def turned_by(x: Pair, k: int, n: int) -> Pair:
    """The products with `exp(-2πi·k/n)`, for k less than n / 2."""
    a, b = x
    if 4 * k % n == 0:
        return (b, -a) if k else x
    if 8 * k % n == 0:
        real, imaginary = (a + b, b - a) if 8 * k == n else (b - a, -(a + b))
        return real * _HALF_ROOT, imaginary * _HALF_ROOT
    u, v = cos(2 * pi * k / n), -sin(2 * pi * k / n)
    return a * u - b * v, a * v + b * u


def _plus_multiple(x: Pair, y: Pair, factor: Operand) -> Pair:
    return y[0].fma(factor, x[0]), y[1].fma(factor, x[1])


def _odd_butterfly(x: Sequence[Pair]) -> list[Pair]:
    """Return the transform for an odd number: the elements j and n - j have conjugate factors."""
    n, half = len(x), len(x) // 2
    sums = [plus(x[j], x[n - j]) for j in range(1, half + 1)]
    differences = [minus(x[j], x[n - j]) for j in range(1, half + 1)]
    first = x[0]
    for value in sums:
        first = plus(first, value)
    low: list[Pair] = []
    high: list[Pair] = []
    for k in range(1, half + 1):
        even = x[0]
        angles = [2 * pi * (j * k % n) / n for j in range(1, half + 1)]
        for value, angle in zip(sums, angles, strict=True):
            even = _plus_multiple(even, value, cos(angle))
        real, imaginary = (part * sin(angles[0]) for part in differences[0])
        for value, angle in zip(differences[1:], angles[1:], strict=True):
            real, imaginary = _plus_multiple((real, imaginary), value, sin(angle))
        low.append((even[0] + imaginary, even[1] - real))
        high.append((even[0] - imaginary, even[1] + real))
    return [first, *low, *reversed(high)]

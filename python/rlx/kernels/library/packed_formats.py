"""Packed formats as kernels read them: a block is a few vectors of small integers, and scales.

An element of a block is `factor · scale · (step - offset) - least · minimum`. Scale and minimum are integers of a group of
elements. Each format has one description, from which the kernels for few rows and for many follow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rlx.ir.dtype import f32, i8, i16, i32, u8, u16
from rlx.kernels.buffer import Buffer
from rlx.kernels.functions import of_f16
from rlx.kernels.kernel import Kernel
from rlx.kernels.values import Value
from rlx.schemes.i_encoders import LEVELS

_MXFP4_STEPS = (12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0)  # twice the elements of E2M1, plus 12
_SIGNED = 128  # the offset that makes unsigned bytes of signed ones


@dataclass(frozen=True)
class PackedBytes:
    """The bytes of a packed matrix.

    Attributes:
        k: The kernel.
        bytes: The packed rows, as one axis.
        width: The number of bytes of a vector: 16 or 32. For `q8_0`, it may also be 4 or 8.
    """

    k: Kernel
    bytes: Buffer
    width: int

    def vector(self, position: Value, lanes: int | None = None) -> Value:
        """Return packed bytes."""
        return self.bytes[self.k.at(position, u8, lanes or self.width)]

    def signed(self, position: Value, lanes: int | None = None) -> Value:
        """Return packed bytes as integers from -128 to 127."""
        return self.bytes.bits(i8)[self.k.at(position, i8, lanes or self.width)]

    def half(self, position: Value) -> Value:
        """Return the f16 number at a position as f32."""
        low, high = self.bytes[position], self.bytes[position + 1]
        return of_f16(low.to(u16) | high.to(u16) << 8)

    def of_width(self, width: int) -> PackedBytes:
        """Return the same bytes with vectors of another width."""
        return replace(self, width=width)

    def shifts(self, *numbers: int) -> Value:
        """Return numbers of bits as a vector of i32, whose lanes are divided evenly among them."""
        return self.k.constants([n for n in numbers for _ in range(self.width // 4 // len(numbers))], i32)


@dataclass(frozen=True)
class GroupScales:
    """The integers of the groups of a block of 256 elements, i16 `[16]` each.

    Attributes:
        scales: The scale of each group, in order; with 8 groups, the upper half is not used.
        minima: The factors of the sums of each group: of 16 groups in order, of 8 groups in the upper half.
    """

    scales: Value
    minima: Value


@dataclass(frozen=True)
class PackedFormat:
    """The code of a format.

    Attributes:
        group: The number of elements with one scale: 16 or 32.
        steps: Returns the integers of a block in order, given the position of the block: vectors of the width of bytes, of
            u8; or of i8, if they need 8 bits, and then there is no offset.
        factor: Returns the scale of a block, f32.
        largest: The largest step.
        offset: The integer that is subtracted from steps.
        least: Returns the factor of the minima, f32. Without it there are none. With it, there is no offset.
        scales: Returns the integers of groups. Without it, a block is one group, and scale and minimum are 1.
    """

    group: int
    steps: Callable[[PackedBytes, Value], list[Value]]
    factor: Callable[[PackedBytes, Value], Value]
    largest: int
    offset: int = 0
    least: Callable[[PackedBytes, Value], Value] | None = None
    scales: Callable[[PackedBytes, Value], GroupScales] | None = None

    @property
    def is_signed(self) -> bool:
        """Whether steps are i8."""
        return self.largest > 127


def as_unsigned(step: Value) -> Value:
    """Return signed steps plus 128, as u8."""
    return step.bits(u8) ^ _SIGNED


def _half_at(offset: int) -> Callable[[PackedBytes, Value], Value]:
    return lambda code, at: code.half(at + offset)


def _nibbles_of_16(code: PackedBytes, at: Value) -> list[Value]:
    """Return the 4-bit integers of 16 bytes: first the low halves, then the high ones."""
    data = code.vector(at, 16)
    if code.width == 16:
        return [data & 15, data >> 4]
    both = data.shuffle(data, [*range(16)] * 2).bits(i32) >> code.shifts(0, 4)
    return [both.bits(u8) & 15]


def _pieces(code: PackedBytes, at: Value, count: int) -> list[Value]:
    return [code.vector(at + i) for i in range(0, count, code.width)]


def _fifth_bits(code: PackedBytes, at: Value) -> list[Value]:
    """Return 16 or 0 for each of the bits of four bytes."""
    k, width = code.k, code.width
    word = code.vector(at, 4)
    masks = k.constants([1 << i % 8 for i in range(width)], u8)
    spread = [word.shuffle(word, [(first + i) // 8 for i in range(width)]) for first in range(0, 32, width)]
    return [k.where((v & masks) != 0, k.constant(16, u8, width), 0) for v in spread]


def _q4(start: int) -> Callable[[PackedBytes, Value], list[Value]]:
    return lambda code, at: _nibbles_of_16(code, at + start)


def _q5(start: int) -> Callable[[PackedBytes, Value], list[Value]]:
    def steps(code: PackedBytes, at: Value) -> list[Value]:
        nibbles, high = _nibbles_of_16(code, at + (start + 4)), _fifth_bits(code, at + start)
        return [n | h for n, h in zip(nibbles, high, strict=True)]

    return steps


def _q8_0(code: PackedBytes, at: Value) -> list[Value]:
    return [code.signed(at + (2 + i)) for i in range(0, 32, code.width)]


def _levels(nibbles: Sequence[Value]) -> list[Value]:
    return [n.table_entries([int(level) % 256 for level in LEVELS]).bits(i8) for n in nibbles]


def _iq4_nl(code: PackedBytes, at: Value) -> list[Value]:
    return _levels(_nibbles_of_16(code, at + 2))


def _iq4_xs(code: PackedBytes, at: Value) -> list[Value]:
    return [v for group in range(8) for v in _levels(_nibbles_of_16(code, at + (8 + 16 * group)))]


def _mxfp4(code: PackedBytes, at: Value) -> list[Value]:
    return [n.table_entries(_MXFP4_STEPS) for n in _nibbles_of_16(code, at + 1)]


def _power_of_two(code: PackedBytes, at: Value) -> Value:
    """Return half of the power of two that a byte represents; 0 for the two that are subnormal.

    The three largest make infinite elements. Their products are infinite here too, or NaN, but not always as the op's are.
    """
    exponent = code.bytes[at].to(i32)
    return (code.k.where(exponent > 1, exponent - 1, 0) << 23).bits(f32)


def _q2_k(code: PackedBytes, at: Value) -> list[Value]:
    data = [_pieces(code, at + (16 + 32 * half), 32) for half in range(2)]
    return [v >> (2 * i) & 3 for half in data for i in range(4) for v in half]


def _q3_k(code: PackedBytes, at: Value) -> list[Value]:
    highs = _pieces(code, at, 32)
    steps: list[Value] = []
    for half in range(2):
        data = _pieces(code, at + (32 + 32 * half), 32)
        for i in range(4):
            steps += [(v >> (2 * i) & 3) | (h >> (4 * half + i) & 1) << 2 for v, h in zip(data, highs, strict=True)]
    return steps


def _q4_k(code: PackedBytes, at: Value) -> list[Value]:
    steps: list[Value] = []
    for pair in range(4):
        data = _pieces(code, at + (16 + 32 * pair), 32)
        steps += [*(v & 15 for v in data), *(v >> 4 for v in data)]
    return steps


def _q5_k(code: PackedBytes, at: Value) -> list[Value]:
    highs = _pieces(code, at + 16, 32)
    steps: list[Value] = []
    for group in range(8):
        data = _pieces(code, at + (48 + 32 * (group // 2)), 32)
        nibbles = [v >> 4 if group % 2 else v & 15 for v in data]
        steps += [n | (h >> group & 1) << 4 for n, h in zip(nibbles, highs, strict=True)]
    return steps


def _q6_k(code: PackedBytes, at: Value) -> list[Value]:
    steps: list[Value] = []
    for part in range(2):
        highs = _pieces(code, at + (128 + 32 * part), 32)
        for group in range(4):
            data = _pieces(code, at + (64 * part + 32 * (group % 2)), 32)
            nibbles = [v >> 4 if group >= 2 else v & 15 for v in data]
            steps += [n | (h >> (2 * group) & 3) << 4 for n, h in zip(nibbles, highs, strict=True)]
    return steps


def _scales_and_minima(code: PackedBytes, at: Value) -> GroupScales:
    """Return the 8 scales and 8 minima of a block of Q4_K or Q5_K. Its first 16 bytes hold them."""
    header = code.vector(at, 16)
    first, second, last = [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]
    low = header.shuffle(header, [*first, *last, *second, *last])
    high = header.shuffle(header, [*first, *first, *second, *second])

    def masks(*groups: int) -> Value:
        return code.k.constants([group for group in groups for _ in range(4)], u8)

    merged = (low & masks(63, 15, 63, 0)) | (low >> 4 & masks(0, 0, 0, 15)) | (high >> 2 & masks(0, 48, 0, 48))
    both = merged.to(i16)
    return GroupScales(both, both)


def _q2_k_scales(code: PackedBytes, at: Value) -> GroupScales:
    data = code.vector(at, 16)
    return GroupScales((data & 15).to(i16), (data >> 4).to(i16))


def _q3_k_scales(code: PackedBytes, at: Value) -> GroupScales:
    """Return 16 scales of 6 bits: the low halves of 8 bytes, then the high ones, and pairs of bits of 4 bytes."""
    low, high = code.vector(at + 96, 8), code.vector(at + 104, 4)
    nibbles = low.shuffle(low, [*range(8)] * 2)
    is_upper = code.k.constants([0] * 8 + [1] * 8, u8) != 0
    pairs = high.shuffle(high, [*range(4)] * 4)
    shifts = code.k.constants([s for s in (0, 2, 4, 6) for _ in range(4)], u8)
    scales = code.k.where(is_upper, nibbles >> 4, nibbles & 15) | (pairs >> shifts & 3) << 4
    both = scales.to(i16) - 32
    return GroupScales(both, both)


def _q6_k_scales(code: PackedBytes, at: Value) -> GroupScales:
    both = code.signed(at + 192, 16).to(i16)
    return GroupScales(both, both)


def _iq4_xs_scales(code: PackedBytes, at: Value) -> GroupScales:
    """Return 8 scales of 6 bits: the halves of 4 bytes, and pairs of bits of 2 bytes."""
    low, high = code.vector(at + 4, 4), code.vector(at + 2, 2)
    nibbles, pairs = (
        low.shuffle(low, [i // 2 for i in range(8)] * 2),
        high.shuffle(high, [i // 4 for i in range(8)] * 2),
    )
    low_shifts, high_shifts = (code.k.constants(numbers * 2, u8) for numbers in ([0, 4] * 4, [0, 2, 4, 6] * 2))
    both = ((nibbles >> low_shifts & 15) | (pairs >> high_shifts & 3) << 4).to(i16) - 32
    return GroupScales(both, both)


_first, _second = _half_at(0), _half_at(2)
FORMATS = {
    "q4_0": PackedFormat(32, _q4(2), _first, 15, 8),
    "q4_1": PackedFormat(32, _q4(4), _first, 15, least=lambda code, at: -code.half(at + 2)),
    "q5_0": PackedFormat(32, _q5(2), _first, 31, 16),
    "q5_1": PackedFormat(32, _q5(4), _first, 31, least=lambda code, at: -code.half(at + 2)),
    "q8_0": PackedFormat(32, _q8_0, _first, 255),
    "iq4_nl": PackedFormat(32, _iq4_nl, _first, 255),
    "mxfp4": PackedFormat(32, _mxfp4, _power_of_two, 24, 12),
    "q2_k": PackedFormat(16, _q2_k, _half_at(80), 3, least=_half_at(82), scales=_q2_k_scales),
    "q3_k": PackedFormat(16, _q3_k, _half_at(108), 7, 4, scales=_q3_k_scales),
    "q4_k": PackedFormat(32, _q4_k, _first, 15, least=_second, scales=_scales_and_minima),
    "q5_k": PackedFormat(32, _q5_k, _first, 31, least=_second, scales=_scales_and_minima),
    "q6_k": PackedFormat(16, _q6_k, _half_at(208), 63, 32, scales=_q6_k_scales),
    "iq4_xs": PackedFormat(32, _iq4_xs, _first, 255, scales=_iq4_xs_scales),
}

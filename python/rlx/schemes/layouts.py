"""Layouts: blocks of integers or of 8-bit floats with a scale, described by fields. Decoders and kernels follow from them.

Other tools quantise rows in groups of 32, 64 or 128 elements: GPTQ, AWQ, compressed-tensors and MLX. Their files have
integers and scales in separate tensors, and these layouts have both in one block, so that a product reads them together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from rlx.schemes.blocks import Blocks
from rlx.support.errors import Error
from rlx.support.packages import import_package

BLOCKS = (128, 64, 32)
# The planes of bits of an integer, the lowest first. Each has 1, 2, 4 or 8 bits.
_PLANES = {2: (2,), 3: (2, 1), 4: (4,), 5: (4, 1), 6: (4, 2), 8: (8,)}
_RUN = 32  # elements whose bits of a plane are together


@cache
def _dtype(name: str) -> np.dtype:
    # Graphs need the table of formats, and not ml_dtypes, which is imported when it is needed.
    own = name.startswith("<")
    return np.dtype(name if own else getattr(import_package("ml_dtypes", "packed weights"), name))


@dataclass(frozen=True)
class ScaleFormat:
    """The format of scales.

    Attributes:
        name: The dtype.
        numpy_name: Its name in NumPy or ml_dtypes, little-endian.
        read: Returns the number at a position of a block, as f32 `[…, 1]`.
    """

    name: str
    numpy_name: str
    read: Callable[[Blocks[Any], int], Any] = field(repr=False)

    @property
    def dtype(self) -> np.dtype:
        """The dtype in NumPy."""
        return _dtype(self.numpy_name)

    @property
    def nbytes(self) -> int:
        """The number of bytes of a scale."""
        return self.dtype.itemsize

    def rounded(self, scales: np.ndarray) -> np.ndarray:
        """Return f32 numbers in this format.

        Raises:
            Error: A number is too large.
        """
        result = scales.astype(self.dtype)
        if not np.isfinite(result.astype(np.float32)).all():
            raise Error(
                f"a block of packed weights has a scale or an offset in {self.name}, and {np.abs(scales).max():g} is too "
                "large for it; scale the tensor down, or choose a format with scales in f32"
            )
        return result


def _bf16(blocks: Blocks[Any], start: int) -> Any:
    return blocks.from_bits(blocks.words(start, 1) << 16)


def _f32(blocks: Blocks[Any], start: int) -> Any:
    return blocks.from_bits(blocks.quads(start, 1))


SCALES = {
    "f16": ScaleFormat("f16", "<f2", lambda blocks, start: blocks.half(start)),
    "bf16": ScaleFormat("bf16", "bfloat16", _bf16),
    "f32": ScaleFormat("f32", "<f4", _f32),
}
_ZERO = np.dtype("<f2")  # zero-points: f16 has all integers up to 2048


@dataclass(frozen=True)
class IntegerLayout:
    """A block of integers `q` with a scale `s`, and with a zero-point `z` or a bias `b`.

    An element is, by kind:

    * `"symmetric"`: `s·q`, with `q` from `-2^(bits-1)`;
    * `"asymmetric"`: `s·(q - z)`. Integers of 8 bits are signed, others start at 0;
    * `"affine"`: `s·q + b`, with `q` from 0.

    The bytes are the scale, the zero-point in f16 or the bias in the format of the scale, and the planes of bits, those of
    the lowest bits first. The bits of 32 elements of a plane are together: element `i` is in byte `i % n` of their `n`
    bytes, the first elements in the lowest bits. Integers of 8 bits are bytes in order.

    Attributes:
        kind: The formula.
        bits: The bits of an integer: 2, 3, 4, 5, 6 or 8.
        block: The number of elements.
        scale: The format of the scale.
    """

    kind: str
    bits: int
    block: int
    scale: ScaleFormat

    @property
    def is_signed(self) -> bool:
        """Whether the integers are signed bytes."""
        return self.bits == 8 and self.kind != "affine"

    @property
    def offset(self) -> int:
        """The number that is subtracted from the stored integers."""
        return 1 << self.bits - 1 if self.kind == "symmetric" and not self.is_signed else 0

    @property
    def second(self) -> np.dtype | None:
        """The dtype of the zero-point or bias."""
        return {"symmetric": None, "asymmetric": _ZERO, "affine": self.scale.dtype}[self.kind]

    @property
    def header(self) -> int:
        """The number of bytes before the integers."""
        return self.scale.nbytes + (0 if self.second is None else self.second.itemsize)

    @property
    def planes(self) -> list[tuple[int, int, int]]:
        """For each plane its bits, the position of its bytes, and the position of its bits in an integer."""
        result, start, shift = list[tuple[int, int, int]](), self.header, 0
        for bits in _PLANES[self.bits]:
            result.append((bits, start, shift))
            start, shift = start + self.block * bits // 8, shift + bits
        return result

    @property
    def nbytes(self) -> int:
        """The number of bytes of a block."""
        return self.header + self.block * self.bits // 8

    def decode(self, blocks: Blocks[Any]) -> Any:
        """Return the elements of blocks, f32 `[…, block]`."""
        scale = self.scale.read(blocks, 0)
        if self.kind == "symmetric":
            return (
                blocks.floats(self._integers(blocks) - self.offset if self.offset else self._integers(blocks)) * scale
            )
        steps = blocks.floats(self._integers(blocks))
        if self.kind == "asymmetric":
            return (steps - blocks.half(self.scale.nbytes)) * scale
        return steps * scale + self.scale.read(blocks, self.scale.nbytes)

    def _integers(self, blocks: Blocks[Any]) -> Any:
        if self.bits == 8:
            read = blocks.signed if self.is_signed else blocks.integers
            return read(self.header, self.block)
        readers = {4: blocks.nibbles, 2: blocks.bit_pairs, 1: blocks.bits}
        total: Any = None
        for bits, start, shift in self.planes:
            plane = readers[bits](start, self.block * bits // 8, _RUN * bits // 8)
            total = plane if total is None else total | plane << shift
        return total

    def pack(self, steps: np.ndarray, scales: np.ndarray, seconds: np.ndarray | None = None) -> np.ndarray:
        """Return blocks.

        Args:
            steps: The stored integers, `[…, block]`: u8, or i8 if they are signed.
            scales: In the format of scales, `[…]`.
            seconds: Zero-points or biases in their format, `[…]`.

        Returns:
            u8 `[…, nbytes]`.
        """
        stored = steps.view(np.uint8)
        return self.pack_planes(
            [_plane(stored >> np.uint8(shift) if shift else stored, bits) for bits, _, shift in self.planes],
            scales,
            seconds,
        )

    def pack_planes(
        self, planes: Sequence[np.ndarray], scales: np.ndarray, seconds: np.ndarray | None = None
    ) -> np.ndarray:
        """Return blocks, as `pack`. `planes` are the bytes of each plane, u8 `[…, block·bits/8]`."""
        result = np.empty((*planes[0].shape[:-1], self.nbytes), np.uint8)
        result[..., : self.scale.nbytes] = _bytes(scales, self.scale.dtype)
        if self.second is not None:
            assert seconds is not None
            result[..., self.scale.nbytes : self.header] = _bytes(seconds, self.second)
        for (bits, start, _), plane in zip(self.planes, planes, strict=True):
            result[..., start : start + self.block * bits // 8] = plane
        return result

    def encode(self, x: np.ndarray, _: np.ndarray | None = None) -> np.ndarray:
        """Return the blocks of the nearest integers, with scales from the largest and smallest numbers of a block.

        Args:
            x: f32 `[n, block]`.

        Returns:
            u8 `[n, nbytes]`.

        Raises:
            Error: A scale is too large for its format.
        """
        largest = (1 << self.bits) - 1
        if self.kind == "symmetric":
            return self._encode_symmetric(x)
        low, high = x.min(-1, keepdims=True), x.max(-1, keepdims=True)
        if self.kind == "affine":
            biases = self.scale.rounded(low)
            # The bias is rounded, so the largest number may be farther from it.
            span = np.maximum(high - biases.astype(np.float32), high - low)
            scales = self.scale.rounded(span / np.float32(largest))
            steps = _nearest((x - biases.astype(np.float32)) * _reciprocals(scales), 0, largest)
            return self.pack(steps.astype(np.uint8), scales[:, 0], biases[:, 0])
        low, high = np.minimum(low, 0), np.maximum(high, 0)
        scales = self.scale.rounded((high - low) / np.float32(largest))
        factors = _reciprocals(scales)
        zeros = np.clip(np.rint(-low * factors), 0, largest)
        steps = _nearest(x * factors + zeros, 0, largest)
        start = 128 if self.is_signed else 0
        stored = (steps - start).astype(np.int8 if self.is_signed else np.uint8)
        return self.pack(stored, scales[:, 0], (zeros - start).astype(_ZERO)[:, 0])

    def _encode_symmetric(self, x: np.ndarray) -> np.ndarray:
        magnitudes = np.abs(x)
        if self.is_signed:
            scales, low, high = magnitudes.max(-1, keepdims=True) / np.float32(127), -127, 127
        else:
            # The number with the largest magnitude is the lowest integer, of either sign, as in Q4_0.
            low, high = -self.offset, self.offset - 1
            scales = np.take_along_axis(x, magnitudes.argmax(-1)[:, None], axis=-1) / np.float32(low)
        rounded = self.scale.rounded(scales)
        steps = _nearest(x * _reciprocals(rounded), low, high) + self.offset
        return self.pack(steps.astype(np.int8 if self.is_signed else np.uint8), rounded[:, 0])


@dataclass(frozen=True)
class FloatLayout:
    """A block of 8-bit floats after a scale in f32. An element is a float times the scale.

    Attributes:
        numpy_name: `float8_e4m3fn`, which has NaN and no infinity, or `float8_e5m2`.
        block: The number of elements.
    """

    numpy_name: str
    block: int

    header = 4

    @property
    def dtype(self) -> np.dtype:
        """The dtype of elements in ml_dtypes."""
        return _dtype(self.numpy_name)

    @property
    def nbytes(self) -> int:
        """The number of bytes of a block."""
        return self.header + self.block

    @property
    def largest(self) -> float:
        """The largest finite element."""
        return float(import_package("ml_dtypes", "packed weights").finfo(self.dtype).max)

    def decode(self, blocks: Blocks[Any]) -> Any:
        """Return the elements of blocks, f32 `[…, block]`."""
        table = np.arange(256, dtype=np.uint8).view(self.dtype).astype(np.float32)
        return blocks.lookup(table, blocks.integers(self.header, self.block)) * _f32(blocks, 0)

    def pack(self, codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
        """Return blocks, u8 `[…, nbytes]`, of elements as u8 `[…, block]` and f32 scales `[…]`."""
        result = np.empty((*codes.shape[:-1], self.nbytes), np.uint8)
        result[..., : self.header] = _bytes(scales, np.dtype("<f4"))
        result[..., self.header :] = codes
        return result

    def encode(self, x: np.ndarray, _: np.ndarray | None = None) -> np.ndarray:
        """Return the blocks of the nearest elements, u8 `[n, nbytes]`. The largest number of a block is the largest element.

        Args:
            x: f32 `[n, block]`.
        """
        scales = np.abs(x).max(-1, keepdims=True) / np.float32(self.largest)
        scales[scales < np.finfo(np.float32).tiny] = 0
        quotients = np.clip(x * _reciprocals(scales), -self.largest, self.largest)
        return self.pack(quotients.astype(self.dtype).view(np.uint8), scales[:, 0])


BlockLayout = IntegerLayout | FloatLayout


def _bytes(numbers: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return numbers `[…]` as bytes, `[…, itemsize]`."""
    return np.ascontiguousarray(numbers.astype(dtype, copy=False))[..., None].view(np.uint8)


def _plane(steps: np.ndarray, bits: int) -> np.ndarray:
    """Return the lowest bits of integers `[…, n]` as bytes, `[…, n·bits/8]`: `Blocks.nibbles` for runs of 32 elements."""
    if bits == 8:
        return steps
    count, run = 8 // bits, _RUN * bits // 8
    parts = (steps & np.uint8((1 << bits) - 1)).reshape(*steps.shape[:-1], -1, count, run)
    result = parts[..., 0, :].copy()
    for i in range(1, count):
        result |= parts[..., i, :] << np.uint8(bits * i)
    return result.reshape(*steps.shape[:-1], -1)


def plane_of_nibbles(stored: np.ndarray) -> np.ndarray:
    """Return integers of 4 bits in order, two in a byte with the first in the low half, as the bytes of a plane.

    Args:
        stored: u8 `[…, n]`, for a multiple of 32 integers.
    """
    # Eight bytes at a time: the first and the second half of a run.
    words = np.ascontiguousarray(stored).view(np.uint64).reshape(-1, 2)
    first, second = words[:, 0], words[:, 1]
    low = np.uint64(0x0F0F0F0F0F0F0F0F)
    result = np.empty((stored.size // 2, 2), np.uint8)
    result[:, 0] = (first & low | (second & low) << np.uint64(4)).view(np.uint8)
    result[:, 1] = (first >> np.uint64(4) & low | second & ~low).view(np.uint8)
    return result.reshape(stored.shape)


def _reciprocals(scales: np.ndarray) -> np.ndarray:
    values = scales.astype(np.float32)
    inverse = np.float32(1) / values
    return np.where(np.isfinite(inverse), inverse, np.float32(0))


def _nearest(x: np.ndarray, low: int, high: int) -> np.ndarray:
    return np.clip(np.rint(x), low, high)

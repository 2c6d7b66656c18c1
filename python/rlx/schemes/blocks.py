"""`Blocks`: the bytes of packed blocks, read as numbers. A decoder is written once over it, for arrays and for graphs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np


class Numbers(Protocol):
    """Integers (i32) or floats (f32) with one value per element: an array, or a tensor of a graph.

    The operators broadcast. Their other operand is a value of the same kind, an array or a number of Python.
    """

    def __add__(self, other: Any, /) -> Self: ...
    def __sub__(self, other: Any, /) -> Self: ...
    def __mul__(self, other: Any, /) -> Self: ...
    def __and__(self, other: Any, /) -> Self: ...
    def __or__(self, other: Any, /) -> Self: ...
    def __xor__(self, other: Any, /) -> Self: ...
    def __lshift__(self, other: Any, /) -> Self: ...
    def __rshift__(self, other: Any, /) -> Self: ...
    def __getitem__(self, key: Any, /) -> Self: ...


V = TypeVar("V", bound=Numbers)


class Blocks(ABC, Generic[V]):
    """The bytes of blocks, `[…, nbytes]`. All results have the same leading axes."""

    @abstractmethod
    def integers(self, start: int, count: int) -> V:
        """Return bytes as integers from 0 to 255, `[…, count]`."""

    @abstractmethod
    def floats(self, integers: V) -> V:
        """Return integers as f32. Their magnitude is below 2**24, so the conversion is exact."""

    @abstractmethod
    def from_bits(self, bits: V) -> V:
        """Return the f32 numbers with these bits."""

    @abstractmethod
    def from_half_bits(self, bits: V) -> V:
        """Return as f32 the f16 numbers with these bits, integers from 0 to 65535."""

    @abstractmethod
    def reshape(self, x: V, replaced: int, *sizes: int) -> V:
        """Return `x` with other axes instead of the last `replaced` ones, and the same elements in row-major order."""

    @abstractmethod
    def join(self, parts: Sequence[V]) -> V:
        """Concatenate along the last axis."""

    @abstractmethod
    def lookup(self, table: np.ndarray, index: V) -> V:
        """Return `table[index]`, `[…, *table.shape[1:]]`. The table is f32 or i32, and the indices are in its range."""

    def signed(self, start: int, count: int) -> V:
        """Return bytes as integers from -128 to 127, `[…, count]`."""
        return (self.integers(start, count) ^ 128) - 128

    def words(self, start: int, count: int) -> V:
        """Return pairs of bytes, the low one first, as integers from 0 to 65535, `[…, count]`."""
        pairs = self.split(self.integers(start, 2 * count), count, 2)
        return pairs[..., 0] | pairs[..., 1] << 8

    def quads(self, start: int, count: int) -> V:
        """Return groups of four bytes, the lowest one first, as integers of 32 bits, `[…, count]`."""
        pairs = self.split(self.words(start, 2 * count), count, 2)
        return pairs[..., 0] | pairs[..., 1] << 16

    def half(self, start: int, count: int = 1) -> V:
        """Return f16 numbers as f32, `[…, count]`."""
        return self.from_half_bits(self.words(start, count))

    def split(self, x: V, *sizes: int) -> V:
        """Replace the last axis by axes of these sizes."""
        return self.reshape(x, 1, *sizes)

    def flat(self, x: V, *sizes: int) -> V:
        """Replace the last axes, which have these sizes, by one."""
        return self.reshape(x, len(sizes), int(np.prod(sizes)))

    def nibbles(self, start: int, count: int, run: int) -> V:
        """Return 4-bit integers, `[…, 2·count]`: of each run of bytes first the low halves, then the high ones."""
        runs = self.split(self.integers(start, count), count // run, 1, run)
        return self.flat(runs >> _column(0, 4) & 15, count // run, 2, run)

    def bit_pairs(self, start: int, count: int, run: int) -> V:
        """Return 2-bit integers, `[…, 4·count]`: of each run of bytes first the lowest pairs of bits, the highest last."""
        runs = self.split(self.integers(start, count), count // run, 1, run)
        return self.flat(runs >> _column(0, 2, 4, 6) & 3, count // run, 4, run)

    def bits(self, start: int, count: int, run: int) -> V:
        """Return single bits, `[…, 8·count]`: of each run of bytes first the lowest bits, the highest last."""
        runs = self.split(self.integers(start, count), count // run, 1, run)
        return self.flat(runs >> _column(*range(8)) & 1, count // run, 8, run)


class NumpyBlocks(Blocks[np.ndarray]):
    """Blocks in an array of u8, `[…, nbytes]`."""

    def __init__(self, stored: np.ndarray):
        self._stored = stored

    def integers(self, start: int, count: int) -> np.ndarray:
        return self._stored[..., start : start + count].astype(np.int32)

    def floats(self, integers: np.ndarray) -> np.ndarray:
        return integers.astype(np.float32)

    def from_bits(self, bits: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(bits).view(np.float32)

    def from_half_bits(self, bits: np.ndarray) -> np.ndarray:
        return bits.astype(np.uint16).view(np.float16).astype(np.float32)

    def reshape(self, x: np.ndarray, replaced: int, *sizes: int) -> np.ndarray:
        return x.reshape(*x.shape[: x.ndim - replaced], *sizes)

    def join(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        return np.concatenate(parts, axis=-1)

    def lookup(self, table: np.ndarray, index: np.ndarray) -> np.ndarray:
        return table[index]


def _column(*shifts: int) -> np.ndarray:
    return np.array(shifts, np.int32).reshape(-1, 1)

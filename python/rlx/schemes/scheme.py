"""`Scheme`: how numbers are packed into blocks of bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from rlx.schemes.blocks import Blocks, NumpyBlocks
from rlx.schemes.layouts import BlockLayout
from rlx.support.errors import Error

# Elements. The temporary arrays of decoders stay small, and those of encoders, which make many passes, stay in a cache.
_DECODED_AT_ONCE, _ENCODED_AT_ONCE = 1 << 18, 1 << 16


class RowEncoder(Protocol):
    """The function that packs rows."""

    def __call__(self, values: np.ndarray, importance: np.ndarray | None = None) -> np.ndarray:
        """Return packed rows. The bytes of a block depend on its numbers and their importance only.

        Args:
            values: Real numbers, `[…, blocks·block]`.
            importance: Factors of the squared errors in each column of the rows, `[blocks·block]`, as in an importance
                matrix of llama.cpp. Formats whose encoders do not search for scales ignore them: those of eight bits
                and the ternary ones.

        Returns:
            u8 `[…, blocks·nbytes]`.

        Raises:
            Error: A row does not divide into blocks; a number is not finite, or too large for the scales of the format;
                the importance has another shape, or negative numbers.
        """
        ...


@dataclass(frozen=True)
class Scheme:
    """A format of blocks: each has the same number of elements in the same number of bytes.

    Attributes:
        name: The lower-case name of the format.
        block: The number of elements in a block.
        nbytes: The number of bytes of a block.
        ggml_type: The number of the format in GGUF files; None if they do not have it.
        decoder: Returns the elements of blocks, f32 `[…, block]`.
        encoder: Returns the bytes of blocks that are near to f32 `[n, block]` with an importance `[n, block]` or None, u8
            `[n, nbytes]`; None if the format is only read.
        layout: The fields of a block; None for the formats of GGUF files.
    """

    name: str
    block: int
    nbytes: int
    ggml_type: int | None
    decoder: Callable[[Blocks[Any]], Any] = field(repr=False)
    encoder: Callable[[np.ndarray, np.ndarray | None], np.ndarray] | None = field(default=None, repr=False)
    layout: BlockLayout | None = field(default=None, repr=False)

    @property
    def bits_per_element(self) -> float:
        """The number of bits that an element takes, scales included."""
        return 8 * self.nbytes / self.block

    def row_bytes(self, elements: int) -> int:
        """Return the number of bytes of a row.

        Raises:
            Error: The elements do not divide into blocks.
        """
        if elements % self.block:
            raise Error(f"{self.name} stores rows in blocks of {self.block} elements, and a row has {elements}")
        return elements // self.block * self.nbytes

    def decode(self, stored: np.ndarray) -> np.ndarray:
        """Return the elements of packed rows.

        Args:
            stored: u8 `[…, blocks·nbytes]`.

        Returns:
            f32 `[…, blocks·block]`.

        Raises:
            Error: The bytes are of another dtype, or do not divide into blocks.
        """
        if stored.dtype != np.uint8 or not stored.ndim:
            raise Error(f"{self.name} decodes an array of u8, got {stored.dtype}{list(stored.shape)}")
        if stored.shape[-1] % self.nbytes:
            raise Error(f"{self.name} has blocks of {self.nbytes} bytes, and a row has {stored.shape[-1]} bytes")
        rows = stored.reshape(-1, self.nbytes)
        result = np.empty((rows.shape[0], self.block), np.float32)
        step = max(_DECODED_AT_ONCE // self.block, 1)
        with np.errstate(all="ignore"):
            for start in range(0, rows.shape[0], step):
                result[start : start + step] = self.decoder(NumpyBlocks(rows[start : start + step]))
        return result.reshape(*stored.shape[:-1], stored.shape[-1] // self.nbytes * self.block)

    @property
    def encode(self) -> RowEncoder | None:
        """The function that packs rows, or None where the format has none."""
        return None if self.encoder is None else self._encode

    def _encode(self, values: np.ndarray, importance: np.ndarray | None = None) -> np.ndarray:
        assert self.encoder is not None
        array = np.asarray(values)
        if not np.can_cast(array.dtype, np.float32, "same_kind"):
            raise Error(f"{self.name} encodes an array of real numbers, got {array.dtype}{list(array.shape)}")
        columns = array.shape[-1] if array.ndim else 1
        size = self.row_bytes(columns)
        factors = None if importance is None else self._factors(importance, columns)
        blocks = array.reshape(-1, self.block)
        result = np.empty((blocks.shape[0], self.nbytes), np.uint8)
        step = _ENCODED_AT_ONCE // self.block
        starts = range(0, blocks.shape[0], step)
        with np.errstate(all="ignore"):
            if not all(np.isfinite(blocks[start : start + step].astype(np.float32)).all() for start in starts):
                raise Error(
                    f"{self.name} stores finite numbers, and the array has NaN, infinity or larger ones than f32"
                )
            for start in starts:
                rows = np.arange(start, min(start + step, blocks.shape[0]))
                # NumPy adds the numbers of a single column in another order. All blocks are encoded alike.
                doubled = np.repeat(rows, 2) if len(rows) == 1 else rows
                weights = None if factors is None else factors[doubled % len(factors)]
                part = np.ascontiguousarray(blocks[doubled], np.float32)
                result[start : start + step] = self.encoder(part, weights)[: len(rows)]
        return result.reshape(*array.shape[:-1], size)

    def _factors(self, importance: np.ndarray, columns: int) -> np.ndarray:
        """Return the importance of the columns of a row by block, f32 `[blocks, block]`."""
        factors = np.asarray(importance)
        if factors.shape != (columns,) or not np.can_cast(factors.dtype, np.float32, "same_kind"):
            raise Error(
                f"the importance has one real number for each of the {columns} columns, got "
                f"{factors.dtype}{list(factors.shape)}"
            )
        with np.errstate(all="ignore"):
            factors = factors.astype(np.float32)
        if not np.isfinite(factors).all() or (factors < 0).any():
            raise Error("the importance of columns is finite and not negative")
        return factors.reshape(-1, self.block)

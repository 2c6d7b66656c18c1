"""Encodings: the storage formats of tensor elements, and their conversion to plain numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import prod

import numpy as np

from rlx.ir.dtype import DType, dtype
from rlx.ir.packing import unpack
from rlx.schemes import Scheme
from rlx.support.errors import Error


class Encoding(ABC):
    """The storage format of a tensor's elements.

    A packed encoding stores blocks of elements with their scales. Code that computes with the blocks calls `stored()`
    of the weight and reads its `encoding`. Other code calls `numpy()`, which uses `values`.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the encoding, for example `"plain"`."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype:
        """The dtype of the values."""

    @abstractmethod
    def nbytes(self, shape: tuple[int, ...]) -> int:
        """Return the number of stored bytes for a tensor of this shape.

        Raises:
            Error: The encoding cannot store this shape, for example because the elements do not divide into blocks.
        """

    @abstractmethod
    def values(self, stored: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Return the plain numbers, without a copy if possible.

        Args:
            stored: The bytes, `nbytes(shape)` of them: u8, rank 1, at any address, and read-only.
            shape: The tensor's shape.

        Raises:
            Error: The bytes are not a valid encoding of numbers.
        """


@dataclass(frozen=True)
class Plain(Encoding):
    """Elements in NumPy's format, contiguous.

    Attributes:
        element: The dtype.
        order: `"C"` if the last axis varies fastest, `"F"` if the first axis does.
    """

    element: np.dtype
    order: str = "C"

    @property
    def name(self) -> str:
        return "plain"

    @property
    def dtype(self) -> np.dtype:
        return self.element

    def nbytes(self, shape: tuple[int, ...]) -> int:
        return prod(shape) * self.element.itemsize

    def values(self, stored: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        if self.element == np.bool_ and stored.size and stored.max() > 1:
            raise Error("a bool is stored as 0 or 1, and other bytes are there")
        array = stored.view(self.element)
        return (array if array.flags.aligned else array.copy()).reshape(shape, order="F" if self.order == "F" else "C")


@dataclass(frozen=True)
class Swapped(Plain):
    """Elements whose byte order is not that of this machine. The values have the machine's order."""

    @property
    def name(self) -> str:
        return "swapped"

    @property
    def dtype(self) -> np.dtype:
        return self.element.newbyteorder("=")

    def values(self, stored: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        return super().values(stored, shape).astype(self.dtype)


@dataclass(frozen=True)
class Packed(Encoding):
    """Elements of less than 8 bits, several per byte, the first in the low bits.

    Attributes:
        kind: The dtype.
    """

    kind: DType

    @property
    def name(self) -> str:
        return "packed"

    @property
    def dtype(self) -> np.dtype:
        return self.kind.numpy

    def nbytes(self, shape: tuple[int, ...]) -> int:
        return self.kind.nbytes(prod(shape))

    def values(self, stored: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        return unpack(stored, self.kind, shape)


@dataclass(frozen=True)
class PackedBlocks(Encoding):
    """Rows of blocks, each with its scales: the packed formats of language models.

    Attributes:
        scheme: The format.
    """

    scheme: Scheme

    @property
    def name(self) -> str:
        return self.scheme.name

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.float32)

    def nbytes(self, shape: tuple[int, ...]) -> int:
        return prod(self.stored_shape(shape))

    def stored_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the stored bytes as an array of u8: that of the tensor, with the bytes of a row at the end.

        Raises:
            Error: The elements of a row do not divide into blocks.
        """
        if not shape:
            raise Error(f"{self.name} stores rows of blocks, and a scalar has no rows")
        return (*shape[:-1], self.scheme.row_bytes(shape[-1]))

    def values(self, stored: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        return self.scheme.decode(stored.reshape(self.stored_shape(shape))).reshape(shape)


@dataclass(frozen=True)
class PermutedBlocks(Encoding):
    """Rows of blocks whose columns have been sorted, so that those with one scale are in one block.

    Attributes:
        scheme: The format.
        order: The column of the tensor for each stored column.
    """

    scheme: Scheme
    order: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"{self.scheme.name} with columns in another order"

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.float32)

    @property
    def blocks(self) -> PackedBlocks:
        """The encoding of the sorted columns."""
        return PackedBlocks(self.scheme)

    def nbytes(self, shape: tuple[int, ...]) -> int:
        return self.blocks.nbytes(shape)

    def values(self, stored: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        result = np.empty(shape, np.float32)
        result[..., list(self.order)] = self.blocks.values(stored, shape)
        return result


@dataclass(frozen=True)
class Unpacked(Plain):
    """Elements of less than 8 bits, each in the low bits of its own byte. Signed integers may be sign-extended."""

    @property
    def name(self) -> str:
        return "unpacked"

    def values(self, stored: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        kind = dtype(self.element)
        low = np.uint8((1 << kind.bits) - 1)
        if stored.size and stored.max() > low:
            negative = stored | ~low == stored if kind.kind == "signed" else np.False_
            if not (negative & (stored >> (kind.bits - 1) & 1 == 1) | (stored <= low)).all():
                raise Error(f"has bytes that are not elements of {kind.name}, which has {kind.bits} bits")
            stored = stored & low
        return super().values(stored, shape)


@dataclass(frozen=True)
class Untyped(Encoding):
    """Elements of one byte whose dtype is missing in the file: NumPy's format has no name for those of ml_dtypes.

    Attributes:
        order: As for `Plain`.
        hint: The hint in the error for an unknown dtype.
    """

    order: str
    hint: str

    @property
    def name(self) -> str:
        return "untyped"

    @property
    def dtype(self) -> np.dtype:
        return np.dtype("V1")

    def nbytes(self, shape: tuple[int, ...]) -> int:
        return prod(shape)

    def values(self, stored: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        raise Error("has elements of one byte whose dtype the file does not name", hint=self.hint)

    def of_dtype(self, kind: DType) -> Encoding:
        """Return the encoding for elements of a dtype; this encoding if the file would name the dtype."""
        if kind.itemsize > 1 or kind.is_numpys_own:
            return self
        return (Unpacked if kind.packed else Plain)(kind.numpy, self.order)


def encoding_of(kind: DType) -> Encoding:
    """Return the storage format of the elements of a dtype in files."""
    return Packed(kind) if kind.packed else Plain(kind.numpy)


@dataclass(frozen=True)
class Unreadable(Encoding):
    """An encoding that RLX cannot read. Its tensors are listed, but using them raises an error.

    Attributes:
        stored_as: The name of the dtype in the file.
        hint: The hint in the error.
    """

    stored_as: str
    hint: str

    @property
    def name(self) -> str:
        return self.stored_as

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.void)

    def nbytes(self, shape: tuple[int, ...]) -> int:
        raise Error(f"the size of {self.stored_as} is not known")

    def values(self, stored: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        raise Error(f"is of dtype {self.stored_as}, which programs do not have", hint=self.hint)

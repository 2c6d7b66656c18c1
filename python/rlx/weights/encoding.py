"""Encodings: how the elements of a tensor are stored, and how they become plain numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import prod

import numpy as np

from rlx.ir.errors import Error


class Encoding(ABC):
    """How a tensor's elements are stored.

    A packed encoding stores blocks of elements with their scales. Whoever computes with the blocks themselves asks the
    weight for `stored()` and looks at its `encoding`; everybody else asks for `numpy()` and gets what `values` gives.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """What it is called, such as `"plain"`."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype:
        """The dtype of the values."""

    @abstractmethod
    def nbytes(self, shape: tuple[int, ...]) -> int:
        """How many bytes a tensor of this shape is stored in.

        Raises:
            Error: No tensor of this shape is stored so; a number of elements that no blocks divide, for one.
        """

    @abstractmethod
    def values(self, stored: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """The plain numbers, without a copy where that can be.

        Args:
            stored: The bytes, `nbytes(shape)` of them: u8, rank 1, at any address, and read-only.
            shape: The tensor's shape.

        Raises:
            Error: The bytes stand for no numbers.
        """


@dataclass(frozen=True)
class Plain(Encoding):
    """Every element as NumPy stores it, one after the other.

    Attributes:
        element: The dtype.
        order: `"C"`, the last axis runs fastest, or `"F"`, the first one does.
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
class Unreadable(Encoding):
    """An encoding that a file may use and nothing here reads: its tensors are listed, and refused when they are used.

    Attributes:
        stored_as: What the file calls it.
        hint: What to do about it.
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

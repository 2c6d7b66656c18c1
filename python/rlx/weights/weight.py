"""`Weight`, a tensor that is read when it is used, and `Weights`, those of a file or of a model by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlx.ir.arrays import as_array
from rlx.ir.errors import Error
from rlx.ir.evaluate import check_argument
from rlx.ir.signature import Argument
from rlx.weights.arrays import check_no_nan, keep
from rlx.weights.encoding import Encoding, Plain, Unreadable

_NAMED = 10  # tensors that a message names


@dataclass(frozen=True, eq=False)
class Weight:
    """A tensor that nobody changes. Nothing of it is read before it is used.

    Attributes:
        name: Its name.
        shape: Its sizes.
        encoding: How its elements are stored.
        nbytes: Bytes that it takes as it is stored.
        origin: Where it comes from, for messages: a file's name.
        read: Gives the stored bytes.
    """

    name: str
    shape: tuple[int, ...]
    encoding: Encoding
    nbytes: int
    origin: str = field(repr=False)
    read: Callable[[], Any] = field(repr=False)

    @property
    def dtype(self) -> np.dtype:
        """The dtype of its values."""
        return self.encoding.dtype

    def stored(self) -> np.ndarray:
        """The bytes as they are stored: u8, rank 1, read-only; of a file that is mapped without a copy.

        Raises:
            Error: The file is damaged there.
        """
        try:
            data = np.frombuffer(self.read(), np.uint8)
        except Error as problem:
            raise self._refusal(problem) from None
        if data.size != self.nbytes:
            raise Error(f"{self._what} has {data.size} bytes, and {self.nbytes} are expected")
        return data

    def numpy(self) -> np.ndarray:
        """The values, as a read-only array; of a file that is mapped without a copy, where they are stored plainly.

        Raises:
            Error: The dtype is none that NumPy has, the shape none that it takes, or the file is damaged there.
        """
        stored = self.stored()
        try:
            array = self.encoding.values(stored, self.shape)
        except Error as problem:
            raise self._refusal(problem) from None
        except (ValueError, MemoryError) as problem:  # too many axes, too many elements
            raise Error(f"cannot read {self._what}: {problem}") from None
        array.flags.writeable = False
        return array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.numpy(), dtype, copy=copy)

    @property
    def _what(self) -> str:
        return f"tensor '{self.name}' of {self.origin}"

    def _refusal(self, problem: Error) -> Error:
        return Error(f"{self._what} {problem.message}", hint=problem.hint)


class _NoTensor(Error, KeyError):
    """A mapping is asked for a name that it has not."""

    __str__ = Exception.__str__


class Weights(Mapping[str, Weight]):
    """Tensors by name, in the order of the file.

    Args:
        weights: The tensors.
        origin: What they come from, for messages: a file's name.

    Raises:
        Error: Two have the same name.
    """

    def __init__(self, weights: Iterable[Weight], origin: str):
        self.origin = origin
        self._weights: dict[str, Weight] = {}
        for weight in weights:
            if self._weights.setdefault(weight.name, weight) is not weight:
                raise Error(f"{origin} has two tensors called '{weight.name}'")

    @classmethod
    def of(cls, arrays: Mapping[str, Any], origin: str = "the mapping") -> Weights:
        """Arrays as weights. They are copied, unless nobody can change them.

        Args:
            arrays: Arrays by name: anything with `__array__` or `__dlpack__`.
            origin: What to call them in messages.

        Raises:
            Error: One is no array.
        """
        kept = {name: keep(as_array(value, f"tensor '{name}'")) for name, value in arrays.items()}
        return cls((_of_array(name, array, origin) for name, array in kept.items()), origin)

    def __getitem__(self, name: str) -> Weight:
        try:
            return self._weights[name]
        except (KeyError, TypeError):
            raise _NoTensor(f"{self.origin} has no tensor {name!r}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)

    def __repr__(self) -> str:
        return f"<Weights of {self.origin}: {len(self)} tensors>"

    def values_of(self, arguments: Iterable[Argument]) -> dict[str, np.ndarray]:
        """The values of a graph's parameters. Of the other tensors nothing is read.

        Raises:
            Error: A tensor is missing, does not fit, or holds NaN. Shapes and dtypes of all are checked before one is read.
        """
        wanted = list(arguments)
        missing = [repr(a.name) for a in wanted if a.name not in self]
        if missing:
            more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
            raise Error(f"{self.origin} has no tensor {', '.join(missing[:_NAMED])}{more}")
        for argument in wanted:
            weight = self[argument.name]
            if not isinstance(weight.encoding, Unreadable):  # which says so better
                check_argument(argument, weight)
        return {a.name: finite(self[a.name]) for a in wanted}


def finite(weight: Weight) -> np.ndarray:
    """A weight's values, which are none that spoil every result.

    Raises:
        Error: One is NaN, or they cannot be read.
    """
    array = weight.numpy()
    check_no_nan(array, f"tensor '{weight.name}' of {weight.origin}")
    return array


def _of_array(name: str, array: np.ndarray, origin: str) -> Weight:
    stored = array.reshape(-1).view(np.uint8)
    return Weight(name, array.shape, Plain(array.dtype), array.nbytes, origin, lambda: stored)

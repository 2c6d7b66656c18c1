"""`Weight`, a tensor that is read when it is used, and `Weights`, the tensors of a file or a model by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from rlx.ir.arrays import as_array
from rlx.ir.dtype import dtype as rlx_dtype
from rlx.ir.dtype import u8
from rlx.ir.interface import Argument, check_argument
from rlx.ir.python_values import cast_array
from rlx.support.errors import Error
from rlx.support.guards import is_array
from rlx.support.printable import printable
from rlx.weights.arrays import check_no_nan, constant_bytes
from rlx.weights.encoding import Encoding, PackedBlocks, Plain, Unreadable, Untyped

_NAMED = 10  # the largest number of tensors in a message


@dataclass(frozen=True, eq=False)
class Weight:
    """An immutable tensor, which is read when it is used.

    Attributes:
        name: Its name.
        shape: Its sizes.
        encoding: The storage format of its elements.
        nbytes: The number of its stored bytes.
        origin: Its source, for messages: the name of a file.
        read: Returns the stored bytes.
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

    def of_dtype(self, dtype: object) -> Weight:
        """Return the tensor with a dtype that its file does not name.

        That is an 8-bit float, or a packed dtype, of NumPy's format; or u8 for packed blocks, which are then returned as
        rows of bytes.

        Args:
            dtype: Anything that `rlx.dtype` accepts.

        Returns:
            The tensor itself, if its file names its dtype or would name `dtype`.
        """
        if isinstance(self.encoding, PackedBlocks) and rlx_dtype(dtype) is u8:
            return replace(self, shape=self.encoding.stored_shape(self.shape), encoding=Plain(u8.numpy))
        if not isinstance(self.encoding, Untyped):
            return self
        encoding = self.encoding.of_dtype(rlx_dtype(dtype))
        return self if encoding is self.encoding else replace(self, encoding=encoding)

    def stored(self) -> np.ndarray:
        """Return the stored bytes: u8, rank 1, read-only; without a copy if the file is mapped.

        Raises:
            Error: This part of the file is damaged.
        """
        try:
            # From a read-only memory view instead of its owner, so that the array cannot be made writable again.
            data = np.frombuffer(memoryview(self.read()).toreadonly(), np.uint8)
        except Error as problem:
            raise self._refusal(problem) from None
        if data.size != self.nbytes:
            raise Error(f"{self._description} has {data.size} bytes, and {self.nbytes} are expected")
        return data

    def numpy(self) -> np.ndarray:
        """Return the values as a read-only array; without a copy if the file is mapped and the encoding is plain.

        Raises:
            Error: NumPy does not have the dtype or does not allow the shape, or this part of the file is damaged.
        """
        stored = self.stored()
        try:
            array = self.encoding.values(stored, self.shape)
        except Error as problem:
            raise self._refusal(problem) from None
        except (ValueError, MemoryError) as problem:  # too many axes, too many elements
            raise Error(f"cannot read {self._description}: {problem}") from None
        if not is_array(array) or (array.shape, array.dtype) != (self.shape, self.dtype):
            returned = f"{array.dtype}{list(array.shape)}" if is_array(array) else type(array).__name__
            message = f"{self._description}: values of the encoding '{self.encoding.name}' must return"
            raise Error(f"{message} {self.dtype}{list(self.shape)}, got {returned}")
        array.flags.writeable = False
        return array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.numpy(), dtype, copy=copy)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the stored bytes, because the file may be elsewhere in another process."""
        return _restored, (self.name, self.shape, self.encoding, self.origin, self.stored().tobytes())

    @property
    def _description(self) -> str:
        return f"tensor '{self.name}' of {self.origin}"

    def _refusal(self, problem: Error) -> Error:
        return Error(f"{self._description} {problem.message}", hint=problem.hint)


class _NoTensor(Error, KeyError):
    """The error for a name that is missing in a mapping of weights."""

    __str__ = Exception.__str__


class Weights(Mapping[str, Weight]):
    """Tensors by name, in the order of the file.

    Args:
        weights: The tensors.
        origin: Their source, for messages: the name of a file.
        metadata: Other data of the file by name. Arrays in it are read-only.

    Raises:
        Error: Two tensors have the same name.
    """

    def __init__(self, weights: Iterable[Weight], origin: str, metadata: Mapping[str, Any] = MappingProxyType({})):
        self.origin: str = origin
        self.metadata: Mapping[str, Any] = MappingProxyType(dict(metadata))
        self._weights: dict[str, Weight] = {}
        for weight in weights:
            if self._weights.setdefault(weight.name, weight) is not weight:
                raise Error(f"{origin} has two tensors called '{weight.name}'")

    @classmethod
    def of(cls, arrays: Mapping[str, Any], origin: str = "the mapping") -> Weights:
        """Return arrays as weights. They are copied unless they are known to be constant.

        Args:
            arrays: Arrays by name: anything with `__array__` or `__dlpack__`.
            origin: Their name in messages.

        Raises:
            Error: A value is not an array.
        """
        constants = {name: as_array(value, f"tensor '{name}'") for name, value in arrays.items()}
        return cls((_of_array(name, array, origin) for name, array in constants.items()), origin)

    def __getitem__(self, name: str) -> Weight:
        try:
            return self._weights[name]
        except (KeyError, TypeError):
            raise _NoTensor(f"{self.origin} has no tensor {name!r}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)

    def __reduce__(self) -> tuple[Any, ...]:
        return Weights, (list(self._weights.values()), self.origin, dict(self.metadata))

    def __repr__(self) -> str:
        return printable(f"<Weights of {self.origin}: {len(self)} tensors>", keep="")

    def values_of(self, arguments: Iterable[Argument], *, cast: bool = False) -> dict[str, np.ndarray]:
        """Return the values of a graph's parameters. Other tensors are not read.

        Args:
            arguments: The parameters.
            cast: Whether tensors of a different dtype are converted. Floats are rounded to nearest; other conversions must
                be exact.

        Raises:
            Error: A tensor is missing, does not fit, or contains NaN. All shapes and dtypes are checked before a tensor
                is read.
        """
        params = list(arguments)
        missing = [repr(a.name) for a in params if a.name not in self]
        if missing:
            more_names = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
            raise Error(f"{self.origin} has no tensor {', '.join(missing[:_NAMED])}{more_names}")
        weights = {a.name: self[a.name].of_dtype(a.shape.dtype) for a in params}
        for argument in params:
            weight = weights[argument.name]
            if not isinstance(weight.encoding, (Unreadable, Untyped)):  # reading the weight raises a better error
                check_argument(argument, _ConvertedData(weight.shape, argument.shape.dtype.numpy) if cast else weight)
        values = {name: finite(weight) for name, weight in weights.items()}
        if not cast:
            return values
        return {
            a.name: cast_array(values[a.name], a.shape.dtype, f"tensor '{a.name}' of {self.origin}") for a in params
        }


@dataclass(frozen=True)
class _ConvertedData:
    """Shape and dtype of a weight after conversion."""

    shape: tuple[int, ...]
    dtype: np.dtype


def finite(weight: Weight) -> np.ndarray:
    """Return the values of a weight, after checking that none is NaN.

    Raises:
        Error: A value is NaN, or the values cannot be read.
    """
    array = weight.numpy()
    check_no_nan(array, f"tensor '{weight.name}' of {weight.origin}")
    return array


def _of_array(name: str, array: np.ndarray, origin: str) -> Weight:
    stored = constant_bytes(array)
    return Weight(name, array.shape, Plain(array.dtype), array.nbytes, origin, lambda: stored)


def _restored(name: str, shape: tuple[int, ...], encoding: Encoding, origin: str, stored: bytes) -> Weight:
    return Weight(name, shape, encoding, len(stored), origin, lambda: stored)

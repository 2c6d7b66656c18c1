"""Python operators and indexing of tensors, each one builder call."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.ir.builder import Tensor
from rlx.ir.errors import ShapeError
from rlx.ir.location import describe
from rlx.ops.indexing import index_tensor

_OF_EVERY_CLASS = frozenset(
    {"__module__", "__qualname__", "__doc__", "__slots__", "__firstlineno__", "__static_attributes__"}
)


def install() -> None:
    """Put the operators on `Tensor`."""
    for name, member in vars(Operators).items():
        if name not in _OF_EVERY_CLASS:
            setattr(Tensor, name, member)


class Operators:
    """The methods that `install` puts on `Tensor`; the class has no other use."""

    __slots__ = ()
    __hash__ = object.__hash__
    __array_ufunc__ = None  # np_array + tensor must reach __radd__

    def _binary(self: Any, kind: str, other: Any, reverse: bool = False) -> Any:
        return self.builder.binary(kind, other, self) if reverse else self.builder.binary(kind, self, other)

    def __add__(self, other: Any) -> Any:
        return self._binary("add", other)

    def __radd__(self, other: Any) -> Any:
        return self._binary("add", other, True)

    def __sub__(self, other: Any) -> Any:
        return self._binary("sub", other)

    def __rsub__(self, other: Any) -> Any:
        return self._binary("sub", other, True)

    def __mul__(self, other: Any) -> Any:
        return self._binary("mul", other)

    def __rmul__(self, other: Any) -> Any:
        return self._binary("mul", other, True)

    def __truediv__(self, other: Any) -> Any:
        return self._binary("div", other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._binary("div", other, True)

    def __pow__(self, other: Any) -> Any:
        return self._binary("pow", other)

    def __rpow__(self, other: Any) -> Any:
        return self._binary("pow", other, True)

    def __matmul__(self: Any, other: Any) -> Any:
        return self.builder.matmul(self, other)

    def __rmatmul__(self: Any, other: Any) -> Any:
        return self.builder.matmul(other, self)

    def __and__(self: Any, other: Any) -> Any:
        return self._logical("min", other)

    __rand__ = __and__

    def __or__(self: Any, other: Any) -> Any:
        return self._logical("max", other)

    __ror__ = __or__

    def __xor__(self: Any, other: Any) -> Any:
        return self._logical("ne", other)

    __rxor__ = __xor__

    def __invert__(self: Any) -> Any:
        if not self.dtype.is_bool:
            raise self.builder.problem_at(f"~ takes a bool tensor, not {self.dtype.name}")
        return self.builder.compare("eq", self, False)

    def _logical(self: Any, kind: str, other: Any) -> Any:
        if not self.dtype.is_bool:
            raise self.builder.problem_at(f"&, | and ^ take bool tensors, not {self.dtype.name}")
        if not _is_bool(other):
            raise self.builder.problem_at(f"&, | and ^ take bools on both sides, not {other!r}")
        return self.builder.compare(kind, self, other) if kind == "ne" else self.builder.binary(kind, self, other)

    def _has_none(self: Any, other: Any) -> Any:
        raise self.builder.problem_at(
            "tensors have no //, %, << or >>: divide with / and cast, which truncates, or multiply with a power of two"
        )

    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __divmod__ = __rdivmod__ = _has_none
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _has_none

    def __neg__(self: Any) -> Any:
        return self.builder.neg(self)

    def __pos__(self: Any) -> Any:
        return self

    def __abs__(self: Any) -> Any:
        return self.builder.abs(self)

    def __eq__(self: Any, other: object) -> Any:
        return self.builder.compare("eq", self, other)

    def __ne__(self: Any, other: object) -> Any:
        return self.builder.compare("ne", self, other)

    def __lt__(self: Any, other: Any) -> Any:
        return self.builder.compare("lt", self, other)

    def __le__(self: Any, other: Any) -> Any:
        return self.builder.compare("le", self, other)

    def __gt__(self: Any, other: Any) -> Any:
        return self.builder.compare("gt", self, other)

    def __ge__(self: Any, other: Any) -> Any:
        return self.builder.compare("ge", self, other)

    def __getitem__(self: Any, index: Any) -> Any:
        try:
            return index_tensor(self, index if isinstance(index, tuple) else (index,))
        except ShapeError as problem:
            if problem.location is not None:
                raise
            message, place = f"indexing {self.shape}: {problem.message}", describe(self.builder.location)
            raise ShapeError(message, location=place, hint=problem.hint) from None

    @property
    def T(self: Any) -> Any:
        """All axes reversed, as in NumPy."""
        return self.builder.transpose(self)

    def reshape(self: Any, *shape: Any) -> Any:
        """The same elements under another shape."""
        return self.builder.reshape(
            self, shape[0] if len(shape) == 1 and not isinstance(shape[0], (int, str)) else shape
        )

    def astype(self: Any, dtype: Any) -> Any:
        """Conversion to another dtype."""
        return self.builder.cast(self, dtype)


def _is_bool(value: Any) -> bool:
    """Whether a tensor, an array or a number is of bools."""
    if isinstance(value, Tensor):
        return value.dtype.is_bool
    return isinstance(value, bool) or (isinstance(value, (np.ndarray, np.generic)) and value.dtype == np.bool_)

"""Python operators and indexing of tensors, each one builder call."""

from __future__ import annotations

from typing import Any

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

    def __floordiv__(self: Any, other: Any) -> Any:
        return self.builder.floor_divide(self, other)

    def __rfloordiv__(self: Any, other: Any) -> Any:
        return self.builder.floor_divide(other, self)

    def __mod__(self: Any, other: Any) -> Any:
        return self.builder.remainder(self, other)

    def __rmod__(self: Any, other: Any) -> Any:
        return self.builder.remainder(other, self)

    def __divmod__(self: Any, other: Any) -> Any:
        return self.builder.divmod(self, other)

    def __rdivmod__(self: Any, other: Any) -> Any:
        return self.builder.divmod(other, self)

    def __and__(self: Any, other: Any) -> Any:
        return self.builder.bitwise_and(self, other)

    __rand__ = __and__

    def __or__(self: Any, other: Any) -> Any:
        return self.builder.bitwise_or(self, other)

    __ror__ = __or__

    def __xor__(self: Any, other: Any) -> Any:
        return self.builder.bitwise_xor(self, other)

    __rxor__ = __xor__

    def __invert__(self: Any) -> Any:
        return self.builder.bitwise_not(self)

    def __lshift__(self: Any, other: Any) -> Any:
        return self.builder.left_shift(self, other)

    def __rlshift__(self: Any, other: Any) -> Any:
        return self.builder.left_shift(other, self)

    def __rshift__(self: Any, other: Any) -> Any:
        return self.builder.right_shift(self, other)

    def __rrshift__(self: Any, other: Any) -> Any:
        return self.builder.right_shift(other, self)

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

    def sum(self: Any, axis: Any = None, keepdims: bool = False) -> Any:
        """The sum over axes, by default over all."""
        return self.builder.sum(self, axis=axis, keepdims=keepdims)

    def mean(self: Any, axis: Any = None, keepdims: bool = False) -> Any:
        """The mean over axes, by default over all."""
        return self.builder.mean(self, axis=axis, keepdims=keepdims)

    def max(self: Any, axis: Any = None, keepdims: bool = False) -> Any:
        """The maximum over axes, by default over all."""
        return self.builder.max(self, axis=axis, keepdims=keepdims)

    def min(self: Any, axis: Any = None, keepdims: bool = False) -> Any:
        """The minimum over axes, by default over all."""
        return self.builder.min(self, axis=axis, keepdims=keepdims)

    def prod(self: Any, axis: Any = None, keepdims: bool = False) -> Any:
        """The product over axes, by default over all."""
        return self.builder.prod(self, axis=axis, keepdims=keepdims)

    def any(self: Any, axis: Any = None, keepdims: bool = False) -> Any:
        """Whether an element is true, over axes, by default over all."""
        return self.builder.any(self, axis=axis, keepdims=keepdims)

    def all(self: Any, axis: Any = None, keepdims: bool = False) -> Any:
        """Whether all elements are true, over axes, by default over all."""
        return self.builder.all(self, axis=axis, keepdims=keepdims)

    def var(self: Any, axis: Any = None, ddof: float = 0, keepdims: bool = False) -> Any:
        """NumPy's `var` over axes, by default over all."""
        return self.builder.var(self, axis=axis, ddof=ddof, keepdims=keepdims)

    def std(self: Any, axis: Any = None, ddof: float = 0, keepdims: bool = False) -> Any:
        """NumPy's `std` over axes, by default over all."""
        return self.builder.std(self, axis=axis, ddof=ddof, keepdims=keepdims)

    def flatten(self: Any) -> Any:
        """All elements in row-major order, of rank 1."""
        return self.builder.ravel(self)

    ravel = flatten

    def squeeze(self: Any, axis: Any = None) -> Any:
        """Without axes of size 1, by default without all of them."""
        return self.builder.squeeze(self, axis)

    def swapaxes(self: Any, axis1: int, axis2: int) -> Any:
        """Two axes exchanged."""
        return self.builder.swapaxes(self, axis1, axis2)

    def transpose(self: Any, *axes: Any) -> Any:
        """The axes in another order, by default reversed: `x.transpose(1, 0)` or `x.transpose((1, 0))`."""
        if not axes or axes[0] is None:
            return self.builder.transpose(self)
        return self.builder.transpose(self, axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes)

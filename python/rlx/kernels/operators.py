"""`ValueOperators`: the operators of Python on values of kernels, and those that values cannot have."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from rlx.kernels.elements import Element, Number, limits
from rlx.kernels.errors import kernel_error

if TYPE_CHECKING:
    from rlx.kernels.values import Operand, Value

# The operators that NumPy's numbers call when they are on the left.
_NUMPY_OPERATORS: dict[Any, Callable[[Any, Any], Any]] = {
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.true_divide: operator.truediv,
    np.floor_divide: operator.floordiv,
    np.remainder: operator.mod,
    np.bitwise_and: operator.and_,
    np.bitwise_or: operator.or_,
    np.bitwise_xor: operator.xor,
    np.left_shift: operator.lshift,
    np.right_shift: operator.rshift,
    np.less: operator.lt,
    np.less_equal: operator.le,
    np.greater: operator.gt,
    np.greater_equal: operator.ge,
    np.equal: operator.eq,
    np.not_equal: operator.ne,
}


class ValueOperators(ABC):
    """The base of `Value`.

    Attributes:
        element: The dtype of an element.
    """

    __slots__ = ()
    element: Element

    @abstractmethod
    def binary(self, name: str, other: object, *, reflected: bool = False) -> Value:
        """Apply an operation of the table to this value and another one; with `reflected`, the other one is the first."""

    @abstractmethod
    def unary(self, name: str) -> Value:
        """Apply an operation of the table to this value."""

    @abstractmethod
    def compared(self, kind: str, other: object) -> Value:
        """Compare with another value: a key of `COMPARISONS`."""

    # --- Python's conversions, which a value cannot have ------------------------------------------

    def __bool__(self) -> NoReturn:
        hint = "choose a value with k.where(condition, a, b); run code with `for _ in k.when(condition):`"
        raise kernel_error("a condition of a kernel is not known while its code is being emitted", hint)

    def __index__(self) -> NoReturn:
        hint = "loop over it with `for i in k.range(n):`"
        raise kernel_error("a number of a kernel is not known while its code is being emitted", hint)

    __int__ = __float__ = __index__  # type: ignore[assignment]

    def __iter__(self) -> NoReturn:
        raise kernel_error("a value of a kernel is not iterable", "v.lane(i) is one element of a vector")

    def __getitem__(self, position: object) -> NoReturn:
        raise kernel_error("a value of a kernel has no positions", "v.lane(i) is one element of a vector")

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **options: Any) -> Any:
        if method == "__call__" and ufunc in _NUMPY_OPERATORS and isinstance(operands[0], np.generic):
            return _NUMPY_OPERATORS[ufunc](operands[0].item(), operands[1])
        hint = "v.sqrt(), abs(v), v.maximum(w) and rlx.kernels.functions are functions of values"
        raise kernel_error(f"np.{ufunc.__name__} does not take a value of a kernel", hint)

    __hash__ = None  # type: ignore[assignment]

    # --- operators --------------------------------------------------------------------------------

    def __add__(self, other: Operand) -> Value:
        return self.binary("add", other)

    def __radd__(self, other: Number) -> Value:
        return self.binary("add", other, reflected=True)

    def __sub__(self, other: Operand) -> Value:
        return self.binary("sub", other)

    def __rsub__(self, other: Number) -> Value:
        return self.binary("sub", other, reflected=True)

    def __mul__(self, other: Operand) -> Value:
        return self.binary("mul", other)

    def __rmul__(self, other: Number) -> Value:
        return self.binary("mul", other, reflected=True)

    def __truediv__(self, other: Operand) -> Value:
        return self.binary("div", other)

    def __rtruediv__(self, other: Number) -> Value:
        return self.binary("div", other, reflected=True)

    def __floordiv__(self, other: Operand) -> Value:
        return self.binary("floordiv", other)

    def __rfloordiv__(self, other: Number) -> Value:
        return self.binary("floordiv", other, reflected=True)

    def __mod__(self, other: Operand) -> Value:
        return self.binary("sub", self.binary("floordiv", other) * other)

    def __rmod__(self, other: Number) -> Value:
        multiple = self.binary("mul", self.binary("floordiv", other, reflected=True))
        return multiple.binary("sub", other, reflected=True)

    def __and__(self, other: Operand) -> Value:
        return self.binary("and", other)

    def __rand__(self, other: Number) -> Value:
        return self.binary("and", other, reflected=True)

    def __or__(self, other: Operand) -> Value:
        return self.binary("or", other)

    def __ror__(self, other: Number) -> Value:
        return self.binary("or", other, reflected=True)

    def __xor__(self, other: Operand) -> Value:
        return self.binary("xor", other)

    def __rxor__(self, other: Number) -> Value:
        return self.binary("xor", other, reflected=True)

    def __lshift__(self, other: Operand) -> Value:
        return self.binary("shl", other)

    def __rlshift__(self, other: Number) -> Value:
        return self.binary("shl", other, reflected=True)

    def __rshift__(self, other: Operand) -> Value:
        return self.binary("shr", other)

    def __rrshift__(self, other: Number) -> Value:
        return self.binary("shr", other, reflected=True)

    def __neg__(self) -> Value:
        return self.unary("neg") if self.element.is_float else self.binary("sub", 0, reflected=True)

    def __invert__(self) -> Value:
        is_signed = self.element.is_signed and not self.element.is_bool
        return self.binary("xor", -1 if is_signed else limits(self.element)[1])

    def __abs__(self) -> Value:
        return self.unary("abs")

    def __lt__(self, other: Operand) -> Value:
        return self.compared("lt", other)

    def __le__(self, other: Operand) -> Value:
        return self.compared("le", other)

    def __gt__(self, other: Operand) -> Value:
        return self.compared("gt", other)

    def __ge__(self, other: Operand) -> Value:
        return self.compared("ge", other)

    def __eq__(self, other: object) -> Value:  # type: ignore[override]
        return self.compared("eq", other)

    def __ne__(self, other: object) -> Value:  # type: ignore[override]
        return self.compared("ne", other)

    def __pow__(self, other: object) -> NoReturn:
        raise kernel_error("values have no operator **", "v * v is the square, v.sqrt() the root")

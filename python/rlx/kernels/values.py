"""`Value`: a number, a vector or a condition in a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from rlx.ir.dtype import DType, bool_
from rlx.kernels.elements import INDEX, Element, IndexElement
from rlx.kernels.operations import COMPARISONS, OPERATIONS, Operation
from rlx.support.caller import caller_place
from rlx.support.errors import ShapeError
from rlx.support.short import short_repr

if TYPE_CHECKING:
    from rlx.kernels.machine import Machine

Number = int | float | bool


def kernel_error(message: str, hint: str | None = None) -> ShapeError:
    """Return an error at the user's line."""
    return ShapeError(message, location=caller_place(), hint=hint)


class Value:
    """A scalar or a vector of one element type, with Python's operators.

    Operators take values of the same element type, or numbers. A scalar is repeated for each lane of a vector.
    Comparisons give conditions (`bool`), which `&`, `|`, `^` and `~` combine.

    Attributes:
        element: The dtype of an element, or `INDEX` for sizes and positions.
        lanes: The number of elements of a vector; None for a scalar.
        machine: The machine that computed the value.
    """

    __slots__ = ("_data", "_scope", "element", "lanes", "machine")

    def __init__(self, machine: Machine, data: Any, element: Element, lanes: int | None = None):
        self.machine, self._data, self._scope = machine, data, machine.scope
        self.element, self.lanes = element, lanes

    @property
    def data(self) -> Any:
        """The MLIR value, or the array.

        Raises:
            ShapeError: The value was computed in a loop or branch that has ended.
        """
        if not self._scope.is_open:
            hint = "keep it in a register: v = k.register(0.0), v.value = …"
            raise kernel_error(f"this value was computed inside {self._scope.name}, which has ended", hint)
        return self._data

    def __repr__(self) -> str:
        shown = self.element.name if self.lanes is None else f"{self.lanes} x {self.element.name}"
        return f"Value({shown}: {self._data})"

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

    __hash__ = None  # type: ignore[assignment]

    # --- operators --------------------------------------------------------------------------------

    def __add__(self, other: Operand) -> Value:
        return binary("add", self, other)

    def __radd__(self, other: Number) -> Value:
        return binary("add", self, other)

    def __sub__(self, other: Operand) -> Value:
        return binary("sub", self, other)

    def __rsub__(self, other: Number) -> Value:
        return binary("sub", like(other, self), self)

    def __mul__(self, other: Operand) -> Value:
        return binary("mul", self, other)

    def __rmul__(self, other: Number) -> Value:
        return binary("mul", self, other)

    def __truediv__(self, other: Operand) -> Value:
        return binary("div", self, other)

    def __rtruediv__(self, other: Number) -> Value:
        return binary("div", like(other, self), self)

    def __floordiv__(self, other: Operand) -> Value:
        return binary("floordiv", self, other)

    def __mod__(self, other: Operand) -> Value:
        return self - self // other * other

    def __and__(self, other: Operand) -> Value:
        return binary("and", self, other)

    def __or__(self, other: Operand) -> Value:
        return binary("or", self, other)

    def __xor__(self, other: Operand) -> Value:
        return binary("xor", self, other)

    def __lshift__(self, other: Operand) -> Value:
        return binary("shl", self, other)

    def __rshift__(self, other: Operand) -> Value:
        return binary("shr", self, other)

    def __neg__(self) -> Value:
        return _unary("neg", self) if self.element.is_float else like(0, self) - self

    def __invert__(self) -> Value:
        return self ^ like(True if self.element is bool_ else -1, self)

    def __abs__(self) -> Value:
        return _unary("abs", self)

    def __lt__(self, other: Operand) -> Value:
        return _comparison("lt", self, other)

    def __le__(self, other: Operand) -> Value:
        return _comparison("le", self, other)

    def __gt__(self, other: Operand) -> Value:
        return _comparison("gt", self, other)

    def __ge__(self, other: Operand) -> Value:
        return _comparison("ge", self, other)

    def __eq__(self, other: object) -> Value:  # type: ignore[override]
        return _comparison("eq", self, other)

    def __ne__(self, other: object) -> Value:  # type: ignore[override]
        return _comparison("ne", self, other)

    # --- methods ----------------------------------------------------------------------------------

    def maximum(self, other: Operand) -> Value:
        """The greater one; NaN if either is NaN."""
        return binary("maximum", self, other)

    def minimum(self, other: Operand) -> Value:
        """The smaller one; NaN if either is NaN."""
        return binary("minimum", self, other)

    def greater_or_second(self, other: Operand) -> Value:
        """`self` if it is greater, else `other`: one instruction of x86. If either is NaN, the result is `other`."""
        second = like(other, self)
        return where(self > second, self, second)

    def less_or_second(self, other: Operand) -> Value:
        """`self` if it is smaller, else `other`: one instruction of x86. If either is NaN, the result is `other`."""
        second = like(other, self)
        return where(self < second, self, second)

    def fma(self, factor: Operand, summand: Operand) -> Value:
        """`self · factor + summand` of floats: rounded once if the CPU has the instruction, else twice."""
        if not self.element.is_float:
            raise kernel_error(f"fma of {self.element.name}: expected floats")
        a, b, c = unified(self, factor, summand)
        data = self.machine.fma(a.data, b.data, c.data, a.element)
        return Value(self.machine, data, a.element, a.lanes)

    def sqrt(self) -> Value:
        """The square root of floats."""
        return _unary("sqrt", self)

    def to(self, element: Element) -> Value:
        """The same numbers as another element type.

        Floats are truncated to integers, which must be in range. Integers keep their lowest bits.
        """
        if element is self.element:
            return self
        data = self.machine.convert(self.data, self.element, element, self.lanes)
        return Value(self.machine, data, element, self.lanes)

    def bits(self, element: DType) -> Value:
        """The same bits as another element type of the same width.

        Raises:
            ShapeError: The widths differ.
        """
        if isinstance(self.element, IndexElement) or self.element.bits != element.bits:
            raise kernel_error(f"bits: {self.element.name} and {element.name} have different widths")
        data = self.machine.bits(self.data, element, self.lanes)
        return Value(self.machine, data, element, self.lanes)

    def lane(self, index: int | Value) -> Value:
        """One element of a vector."""
        self._check_vector("lane")
        if isinstance(index, int) and not 0 <= index < (self.lanes or 0):
            raise kernel_error(f"lane {index} of a vector of {self.lanes}")
        data = self.machine.lane(self.data, index.data if isinstance(index, Value) else index)
        return Value(self.machine, data, self.element)

    def shuffle(self, other: Value, indices: Sequence[int]) -> Value:
        """A vector of elements of two vectors of equal lanes: indices count through `self`, then `other`."""
        self._check_vector("shuffle")
        a, b = unified(self, other)
        limit = 2 * (self.lanes or 0)
        if not all(0 <= i < limit for i in indices):
            raise kernel_error(f"shuffle: the indices {short_repr(list(indices))} are not in [0, {limit})")
        data = self.machine.shuffle(a.data, b.data, list(indices))
        return Value(self.machine, data, self.element, len(indices))

    def joined(self, join: Any) -> Value:
        """The elements of a vector, combined pairwise by a function of two vectors, in a fixed order.

        The number of lanes must be a power of two.
        """
        self._check_vector("joined")
        value, lanes = self, self.lanes or 1
        while lanes > 1:
            lanes //= 2
            value = join(value.shuffle(value, range(lanes)), value.shuffle(value, range(lanes, 2 * lanes)))
        return value.lane(0)

    def sum(self) -> Value:
        """The sum of the elements of a vector."""
        return self.joined(lambda a, b: a + b)

    def splat(self, lanes: int) -> Value:
        """A vector with a scalar in each lane."""
        if self.lanes == lanes:
            return self
        if self.lanes is not None:
            raise kernel_error(f"splat: a vector of {self.lanes} lanes cannot have {lanes}")
        return Value(self.machine, self.machine.splat(self.data, self.element, lanes), self.element, lanes)

    def _check_vector(self, what: str) -> None:
        if self.lanes is None:
            raise kernel_error(f"{what}: expected a vector, got a scalar {self.element.name}")


Operand = Value | int | float | bool


def like(other: object, model: Value) -> Value:
    """Return a value with the element type and lanes of another one.

    Raises:
        ShapeError: It is of another element type, or not a number.
    """
    machine = model.machine
    if not isinstance(other, Value):
        if not isinstance(other, (int, float)) or (isinstance(other, float) and not model.element.is_float):
            raise kernel_error(f"expected a {model.element.name}, got {short_repr(other)}")
        return Value(machine, machine.constant(other, model.element, model.lanes), model.element, model.lanes)
    if other.element is not model.element:
        hint = f"convert one of them: v.to({model.element.name})"
        raise kernel_error(f"{model.element.name} and {other.element.name} do not mix", hint)
    if other.lanes == model.lanes or other.lanes is not None:
        return other
    return other.splat(model.lanes or 1)


def unified(*operands: Operand) -> list[Value]:
    """Return operands as values of one element type and equal lanes.

    Raises:
        ShapeError: They have different element types, or vectors of different lanes.
    """
    values = [v for v in operands if isinstance(v, Value)]
    if not values:
        raise kernel_error(f"{', '.join(map(short_repr, operands))}: at least one must be a value of the kernel")
    model = next((v for v in values if v.lanes is not None), values[0])
    result = [like(v, model) for v in operands]
    if any(v.lanes != model.lanes for v in result):
        raise kernel_error(f"vectors of {' and '.join(str(v.lanes) for v in result)} lanes do not mix")
    return result


def where(condition: Value, a: Operand, b: Operand) -> Value:
    """`a` where a condition holds, else `b`.

    Raises:
        ShapeError: The condition is not of `bool`, or the values do not mix.
    """
    if condition.element is not bool_:
        raise kernel_error(f"where: the condition is {condition.element.name}", "compare it: v != 0")
    first, second = unified(a, b)
    lanes = condition.lanes if first.lanes is None else first.lanes
    if lanes is not None:
        first, second = first.splat(lanes), second.splat(lanes)
        if condition.lanes not in (None, lanes):
            raise kernel_error(f"where: a condition of {condition.lanes} lanes for vectors of {lanes}")
    machine = condition.machine
    data = machine.select(condition.data, first.data, second.data)
    return Value(machine, data, first.element, lanes)


def operation_for(name: str, element: Element) -> Operation:
    """Return an operation of the table.

    Raises:
        ShapeError: The element type lacks it.
    """
    operation = OPERATIONS[name]
    if not mlir_op(operation, element):
        hints = {
            "div": "// divides integers",
            "floordiv": "/ divides floats",
        }
        raise kernel_error(f"{element.name} has no operation '{name}'", hints.get(name))
    return operation


def mlir_op(operation: Operation, element: Element) -> str:
    """Return the MLIR op of an operation on an element type; empty if there is none."""
    if element is bool_:
        return operation.mask_op
    if element.is_float:
        return operation.float_op
    return operation.signed_op if element.is_signed else operation.unsigned_op


def binary(name: str, a: Operand, b: object) -> Value:
    """Apply an operation of two values."""
    if not isinstance(b, (Value, int, float)):
        raise kernel_error(f"'{name}' of a value and {short_repr(b)}")
    first, second = unified(a, b)
    machine = first.machine
    operation = operation_for(name, first.element)
    data = machine.apply(operation, [first.data, second.data], first.element)
    return Value(machine, data, first.element, first.lanes)


def _unary(name: str, a: Value) -> Value:
    machine = a.machine
    return Value(machine, machine.apply(operation_for(name, a.element), [a.data], a.element), a.element, a.lanes)


def _comparison(kind: str, a: Value, b: object) -> Value:
    assert kind in COMPARISONS
    if not isinstance(b, (Value, int, float)):
        raise kernel_error(f"a comparison of a value and {short_repr(b)}")
    first, second = unified(a, b)
    machine = first.machine
    return Value(machine, machine.compare(kind, first.data, second.data, first.element), bool_, first.lanes)


def index_data(machine: Machine, position: int | Value) -> Any:
    """Return the data of a position: an integer, a value of `INDEX`, or of another integer type.

    Raises:
        ShapeError: It is not a scalar integer.
    """
    if isinstance(position, Value):
        if position.lanes is not None or position.element.is_float or position.element is bool_:
            raise kernel_error(f"a position must be a scalar integer, got {position!r:.60}")
        return position.to(INDEX).data
    if isinstance(position, bool) or not hasattr(position, "__index__"):
        raise kernel_error(f"a position must be an integer, got {short_repr(position)}")
    return machine.constant(int(position), INDEX, None)

"""`Value`: a number, a vector or a condition in a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.ir.dtype import bool_, i16, i32, i64, u64
from rlx.kernels.elements import INDEX, Element, element_of, number_of
from rlx.kernels.errors import kernel_error
from rlx.kernels.operations import OPERATIONS, Operation
from rlx.kernels.operators import ValueOperators
from rlx.numerics.arithmetic import COMPARISONS
from rlx.support.short import short_repr

if TYPE_CHECKING:
    from rlx.kernels.machine import Machine


class Value(ValueOperators):
    """A scalar or a vector of one element type, with Python's operators.

    ValueOperators take values of the same element type, or numbers. A scalar is repeated for each lane of a vector.
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

    def binary(self, name: str, other: object, *, reflected: bool = False) -> Value:
        return binary(name, like(other, self), self) if reflected else binary(name, self, other)

    def unary(self, name: str) -> Value:
        return _applied(name, self)

    def compared(self, kind: str, other: object) -> Value:
        return _comparison(kind, self, other)

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
        return self.unary("sqrt")

    def trailing_zeros(self) -> Value:
        """The number of zeros below the lowest 1 in the bits of integers; all of the bits of 0."""
        return self.unary("trailing_zeros")

    def to(self, element: Element | str) -> Value:
        """The same numbers as another element type.

        Floats are truncated to integers, which must be in range. Integers keep their lowest bits.

        Raises:
            ShapeError: The element type is `bool`.
        """
        element = element_of(element)
        if element is self.element:
            return self
        if element is bool_:
            raise kernel_error(f"{self.element.name} to bool: a condition is a comparison", "compare it: v != 0")
        if INDEX in (element, self.element) and (element.is_float or self.element.is_float):
            return self.to(i64).to(element)
        data = self.machine.convert(self.data, self.element, element, self.lanes)
        return Value(self.machine, data, element, self.lanes)

    def bits(self, element: Element | str) -> Value:
        """The same bits as another element type. The lanes of vectors are joined or split, if the widths differ.

        Raises:
            ShapeError: One is `bool` or `INDEX`; the widths differ, and it is not a vector, or its lanes are not divisible.
        """
        target = element_of(element)
        if {bool_, INDEX} & {self.element, target}:
            raise kernel_error(f"{self.element.name} has no bits as {target.name}", "v.to(element) converts numbers")
        size = (self.lanes or 1) * self.element.itemsize
        if size % target.itemsize or (self.lanes is None and size != target.itemsize):
            raise kernel_error(f"bits: {self.element.name} and {target.name} have different widths")
        lanes = None if self.lanes is None else size // target.itemsize
        data = self.machine.bits(self.data, target, lanes)
        return Value(self.machine, data, target, lanes)

    def lane(self, index: int | Value) -> Value:
        """One element of a vector."""
        self._check_vector("lane")
        number = index_data(self.machine, index) if isinstance(index, Value) else index
        if isinstance(index, int) and not 0 <= index < (self.lanes or 0):
            raise kernel_error(f"lane {index} of a vector of {self.lanes}")
        data = self.machine.lane(self.data, number)
        return Value(self.machine, data, self.element)

    def shuffle(self, other: Value, indices: Sequence[int]) -> Value:
        """A vector of elements of two vectors of equal lanes: indices count through `self`, then `other`."""
        self._check_vector("shuffle")
        a, b = unified(self, other)
        limit = 2 * (self.lanes or 0)
        if not indices or not all(0 <= i < limit for i in indices):
            raise kernel_error(f"shuffle: the indices {short_repr(list(indices))} are not in [0, {limit})")
        data = self.machine.shuffle(a.data, b.data, list(indices))
        return Value(self.machine, data, self.element, len(indices))

    def joined(self, join: Any) -> Value:
        """The elements of a vector, combined pairwise by a function of two vectors, in a fixed order.

        The number of lanes must be a power of two.
        """
        self._check_vector("joined")
        value, lanes = self, self.lanes or 1
        if lanes & (lanes - 1):
            raise kernel_error(
                f"the elements of {lanes} lanes are not joined in pairs", "shuffle selects a power of two"
            )
        while lanes > 1:
            lanes //= 2
            value = join(value.shuffle(value, range(lanes)), value.shuffle(value, range(lanes, 2 * lanes)))
        return value.lane(0)

    def sum(self) -> Value:
        """The sum of the elements of a vector."""
        return self.joined(lambda a, b: a + b)

    def pair_products(self, other: Value) -> Value:
        """Sums of the products of adjacent elements, `a[2i]·b[2i] + a[2i + 1]·b[2i + 1]`, in half as many lanes.

        i16 times i16 is i32, which wraps. u8 times i8 is i16, which saturates.

        Raises:
            ShapeError: The operands are not vectors of these element types, or not of equal, even numbers of lanes.
        """
        self._check_vector("pair_products")
        pair = (self.element.name, other.element.name)
        if pair not in (("i16", "i16"), ("u8", "i8")) or self.lanes != other.lanes or (self.lanes or 1) % 2:
            raise kernel_error(
                f"pair_products: expected vectors of i16, or of u8 and i8, got {self!r:.60} and {other!r:.60}"
            )
        assert self.lanes is not None
        data = self.machine.pair_products(self.data, other.data, self.element, self.lanes)
        return Value(self.machine, data, i32 if self.element is i16 else i16, self.lanes // 2)

    def quad_products(self, other: Value, total: Value) -> Value:
        """`total` plus sums of the products of four adjacent elements of u8 and i8, in i32, which wraps.

        Raises:
            ShapeError: The operands are not vectors of these element types, or their numbers of lanes do not match.
        """
        names, lanes = (self.element.name, other.element.name, total.element.name), self.lanes or 1
        if names != ("u8", "i8", "i32") or other.lanes != lanes or 4 * (total.lanes or 0) != lanes:
            raise kernel_error(
                "quad_products: expected vectors of u8 and i8, and a total of i32 with a quarter of the lanes, got "
                f"{self!r:.60}, {other!r:.60} and {total!r:.60}"
            )
        if self.machine.cpu.has_quads and lanes in (16, 32, 64):
            data = self.machine.quad_products(self.data, other.data, total.data, lanes)
            return Value(self.machine, data, i32, total.lanes)
        pairs = self.to(i16).pair_products(other.to(i16))
        first, second = (pairs.shuffle(pairs, range(i, lanes // 2, 2)) for i in range(2))
        return total + (first + second)

    def table_entries(self, table: Sequence[int] | Value) -> Value:
        """The bytes of a table at indices below 16, u8.

        Args:
            table: 16 integers, or a vector of 16 bytes.

        Raises:
            ShapeError: This is not a vector of u8, or the table has another length.
        """
        self._check_vector("table_entries")
        machine, lanes = self.machine, self.lanes or 1
        size = (table.lanes if table.element.name == "u8" else None) if isinstance(table, Value) else len(table)
        if self.element.name != "u8" or size != 16:
            raise kernel_error(
                f"table_entries: expected indices of u8 and 16 bytes, got {self!r:.60} and {size or 'others'}"
            )
        if lanes in (16, 32, 64) and lanes <= machine.cpu.pair_bytes:
            if isinstance(table, Value):
                repeated = machine.shuffle(table.data, table.data, [*range(16)] * (lanes // 16))
            else:
                repeated = machine.constants([*table] * (lanes // 16), self.element)
            return Value(machine, machine.table_entries(repeated, self.data, lanes), self.element, lanes)
        entries = [table.lane(i) if isinstance(table, Value) else like(table[i], self) for i in range(16)]
        for bit in range(4):
            is_odd = (self >> bit & 1) != 0
            entries = [where(is_odd, b, a) for a, b in zip(entries[::2], entries[1::2], strict=True)]
        return entries[0]

    def lane_bits(self) -> Value:
        """A number of u64 with a bit for each lane of a condition, that of the first lane lowest. It has at most 64 lanes."""
        self._check_vector("lane_bits")
        if self.element is not bool_ or (self.lanes or 0) > 64:
            raise kernel_error(f"lane_bits: expected a condition of at most 64 lanes, got {self!r:.60}")
        return Value(self.machine, self.machine.lane_bits(self.data), u64)

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
        number = number_of(other, model.element)
        return Value(machine, machine.constant(number, model.element, model.lanes), model.element, model.lanes)
    if other.element is not model.element:
        hint = f"convert one of them: v.to({model.element.name})"
        raise kernel_error(f"{model.element.name} and {other.element.name} do not mix", hint)
    if other.lanes == model.lanes or other.lanes is not None:
        return other
    return other.splat(model.lanes or 1)


def unified(*operands: object) -> list[Value]:
    """Return operands as values of one element type and equal lanes.

    Raises:
        ShapeError: They have different element types, or vectors of different lanes.
    """
    values = [v for v in operands if isinstance(v, Value)]
    if not values:
        numbers = ", ".join(map(short_repr, operands))
        raise kernel_error(
            f"{numbers}: at least one must be a value of the kernel",
            "k.constant(number, element) is one; condition.to(element) is 1 or 0",
        )
    model = next((v for v in values if v.lanes is not None), values[0])
    result = [like(v, model) for v in operands]
    if any(v.lanes != model.lanes for v in result):
        raise kernel_error(f"vectors of {' and '.join(str(v.lanes) for v in result)} lanes do not mix")
    return result


def where(condition: Value | None, a: Operand, b: Operand) -> Value:
    """`a` where a condition holds, else `b`. The condition None, the mask of a whole vector, holds everywhere.

    Raises:
        ShapeError: The condition is not of `bool`, or the values do not mix.
    """
    if condition is None:
        return unified(a, b)[0]
    if not isinstance(condition, Value):
        raise kernel_error(f"where: expected a condition, got {short_repr(condition)}", "Python's `if` chooses now")
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
    if not operation.mlir_op(element):
        hint = "// divides integers" if name == "div" else "/ divides floats" if name == "floordiv" else None
        if element is bool_:
            hint = "conditions have &, |, ^ and ~; v.to(rlx.i32) is 0 or 1"
        raise kernel_error(f"{element.name} has no operation '{name}'", hint)
    return operation


def binary(name: str, a: object, b: object) -> Value:
    """Apply an operation of two values."""
    if not isinstance(b, (Value, int, float, np.generic)):
        hint = "r.value is the value of a register" if hasattr(b, "value") else None
        raise kernel_error(f"'{name}' of a value and {short_repr(b)}", hint)
    first, second = unified(a, b)
    operation_for(name, first.element)
    if name == "floordiv" and not (isinstance(b, int) and b > 0):
        return _floor_quotient(first, second)
    if name in ("shl", "shr") and not (isinstance(b, int) and 0 <= b < 8 * first.element.itemsize):
        return _shifted(name, first, second)
    return _applied(name, first, second)


def _applied(name: str, *values: Value) -> Value:
    """Apply an operation to values of one element type and equal lanes."""
    model = values[0]
    data = model.machine.apply(operation_for(name, model.element), [v.data for v in values], model.element)
    return Value(model.machine, data, model.element, model.lanes)


def _floor_quotient(a: Value, b: Value) -> Value:
    """Divide integers as NumPy does: by 0 the quotient is 0, and the least number by -1 is itself. The instruction traps."""
    is_zero = b == 0
    if not a.element.is_signed:
        return where(is_zero, 0, _applied("floordiv", a, where(is_zero, 1, b)))
    is_minus_one = b == -1
    quotient = _applied("floordiv", a, where(is_zero | is_minus_one, 1, b))
    return where(is_zero, 0, where(is_minus_one, -a, quotient))


def _shifted(name: str, a: Value, count: Value) -> Value:
    """Shift by a number of bits as NumPy does: outside of the width, all bits are shifted out. The instructions differ."""
    last = 8 * a.element.itemsize - 1
    is_inside = count <= last
    if a.element.is_signed:
        is_inside = is_inside & (count >= 0)
        if name == "shr":
            return _applied(name, a, where(is_inside, count, last))
    return where(is_inside, _applied(name, a, where(is_inside, count, 0)), 0)


def _comparison(kind: str, a: Value, b: object) -> Value:
    assert kind in COMPARISONS
    if not isinstance(b, (Value, int, float, np.generic)):
        raise kernel_error(f"a comparison of a value and {short_repr(b)}")
    first, second = unified(a, b)
    machine = first.machine
    return Value(machine, machine.compare(kind, first.data, second.data, first.element), bool_, first.lanes)


def size_of(machine: Machine, size: object) -> int | Value:
    """Return a size or position as an integer or a value of `INDEX`.

    Raises:
        ShapeError: It is not a scalar integer.
    """
    if isinstance(size, Value):
        is_index = size.element is INDEX and size.lanes is None
        return size if is_index else Value(machine, index_data(machine, size), INDEX)
    return _integer(size)


def _integer(position: object) -> int:
    if isinstance(position, bool) or not hasattr(position, "__index__"):
        hint = "x.shape has the sizes; c.start is the first position of the lanes c"
        raise kernel_error(f"a position must be an integer, got {short_repr(position)}", hint)
    return int(position)  # type: ignore[call-overload]


def index_data(machine: Machine, position: object) -> Any:
    """Return the data of a position: an integer, a value of `INDEX`, or of another integer type.

    Raises:
        ShapeError: It is not a scalar integer.
    """
    if isinstance(position, Value):
        if position.lanes is not None or position.element.is_float or position.element is bool_:
            raise kernel_error(f"a position must be a scalar integer, got {position!r:.60}")
        return position.to(INDEX).data
    return machine.constant(_integer(position), INDEX, None)

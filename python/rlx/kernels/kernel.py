"""`Kernel`: the loops, registers and functions of the language. It is the first argument of a kernel's code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

from rlx.ir.dtype import bool_, f32
from rlx.kernels.buffer import Access, Buffer, Lanes, Size, greatest
from rlx.kernels.elements import INDEX, Element, Number, element_of, limits, number_of
from rlx.kernels.errors import kernel_error
from rlx.kernels.loop import KernelLoop, kernel_loop
from rlx.kernels.machine import Machine, Scope
from rlx.kernels.values import Operand, Value, index_data, like, size_of, unified, where
from rlx.support.short import short_repr

Join = Callable[[Value, Value], Value]
# The numbers that change nothing: of a sum, a product, the greatest and the smallest number.
_JOINS: dict[str, tuple[Join, float]] = {
    "add": (lambda a, b: a + b, 0),
    "mul": (lambda a, b: a * b, 1),
    "max": (lambda a, b: a.maximum(b), float("-inf")),
    "min": (lambda a, b: a.minimum(b), float("inf")),
    "fast_max": (lambda a, b: a.greater_or_second(b), float("-inf")),
}
UNROLLED = 4  # vectors in a step of a loop, so that a reduction has several independent sums


class KernelRegister:
    """A register of a kernel that keeps its value across loops and branches: `v.value = v.value + 1`."""

    def __init__(self, machine: Machine, initial: Value):
        self._machine, self._model = machine, initial
        machine.note_access()  # each workgroup has registers of its own, so they are made inside of `k.parallel`
        self._scope = machine.scope
        self._slot = machine.variable(initial.element, initial.lanes)
        machine.assign(self._slot, initial.data, initial.lanes)

    @property
    def value(self) -> Value:
        """Its value at this point."""
        self._machine.note_access()
        self._check_scope()
        element, lanes = self._model.element, self._model.lanes
        return Value(self._machine, self._machine.read(self._slot, element, lanes), element, lanes)

    @value.setter
    def value(self, value: Operand) -> None:
        self._check_scope()
        model = Value(self._machine, None, self._model.element, self._model.lanes)
        stored = like(value, model)
        if stored.lanes != model.lanes:
            raise kernel_error(f"the register is {model.element.name} of {model.lanes or 1} lanes, not {stored!r:.60}")
        self._machine.assign(self._slot, stored.data, stored.lanes)

    def _check_scope(self) -> None:
        if not self._scope.is_open:
            text = f"this register was made inside {self._scope.name}, which has ended"
            raise kernel_error(text, "make it before the loop or branch")

    def __bool__(self) -> NoReturn:
        raise kernel_error("a register is not a condition", "r.value is the value of the register r")

    def __eq__(self, other: object) -> NoReturn:
        raise kernel_error("a register is not compared", "r.value is the value of the register r")

    __ne__ = __eq__  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


class Accumulator:
    """Vectors that a loop over a row joins its elements into, such as sums or maxima.

    There is one vector for each of the vectors in a step of an unrolled loop, so that the steps do not wait for each other.
    """

    def __init__(self, machine: Machine, kind: str, element: Element, lanes: int, slots: int):
        if slots < 1:
            raise kernel_error(f"an accumulator has at least one slot, not {slots}")
        self._join, neutral = _joining(kind)
        self._neutral = _limited(neutral, element)
        initial = Value(machine, machine.constant(self._neutral, element, lanes), element, lanes)
        self._vectors = [KernelRegister(machine, initial) for _ in range(slots)]

    def include(self, at: Lanes, value: Value) -> None:
        """Join the values of some positions of a row. Lanes that are not positions of the row are ignored.

        Raises:
            ShapeError: The positions are not lanes, or the values are not of the accumulator's dtype.
        """
        if not isinstance(at, Lanes):
            hint = "k.register(…) is a sum of single elements: r.value = r.value + x[i, j]"
            raise kernel_error(f"an accumulator takes the lanes of k.vectors, not {short_repr(at)}", hint)
        if at.mask is not None:
            value = where(at.mask, value, self._neutral)
        vector = self._vectors[at.slot % len(self._vectors)]
        vector.value = self._join(vector.value, value)

    def vector(self) -> Value:
        """The joined elements, one for each lane."""
        return joined_in_pairs([v.value for v in self._vectors], self._join)

    def result(self) -> Value:
        """All elements joined, in an order that depends on the number of lanes only."""
        return self.vector().joined(self._join)


def joined_in_pairs(values: Sequence[Value], join: Join) -> Value:
    """Join values two by two, then the results, so that rounding errors grow with the logarithm of their number."""
    rest = list(values)
    while len(rest) > 1:
        pairs = zip(rest[::2], rest[1::2], strict=False)
        rest = [join(a, b) for a, b in pairs] + rest[len(rest) // 2 * 2 :]
    return rest[0]


def _joining(kind: str) -> tuple[Join, float]:
    """Return the function and the neutral number of a kind of accumulator."""
    if kind not in _JOINS:
        raise kernel_error(f"an accumulator is one of {', '.join(_JOINS)}, not '{kind}'")
    return _JOINS[kind]


def _condition_data(what: str, condition: Value) -> Any:
    """Return the data of one condition."""
    if condition.element is not bool_:
        raise kernel_error(f"{what} takes a condition, not {condition.element.name}", "compare it: v != 0")
    if condition.lanes is not None:
        raise kernel_error(f"{what} takes one condition, not a vector of them", "k.any_lane(v) combines them")
    return condition.data


def _limited(number: float, element: Element) -> Number:
    """Return a number, or the limit of an integer element type for an infinity."""
    if element.is_float or number in (0, 1):
        return number
    return limits(element)[0 if number < 0 else 1]


class Kernel:
    """Loops, registers and functions of a kernel.

    Attributes:
        cpu: The registers and instructions of the CPU. Code may depend on them.
        pending_loops: The loops that Python has not iterated over yet, by `id`.
    """

    def __init__(self, machine: Machine):
        self.machine, self.cpu = machine, machine.cpu
        self._is_parallel = False
        self._repeats: list[Scope] = []
        self.pending_loops: dict[int, KernelLoop[Any]] = {}

    # --- loops and branches -----------------------------------------------------------------------

    @kernel_loop
    def parallel(self, count: Size, chunk: Size = 1) -> Iterator[Value]:
        """Loop over positions that threads may share. It is called once, outside of other loops.

        Args:
            count: The number of positions.
            chunk: The number of positions of a workgroup, which one thread runs in order. A workgroup takes about 0.5 µs to
                start: it should touch at least 64 KiB.
        """
        if self._is_parallel or self.machine.scope.name != "the kernel":
            raise kernel_error("k.parallel is called once, outside of other loops", "k.range loops inside of it")
        if isinstance(chunk, int) and chunk < 1:
            raise kernel_error(f"k.parallel: a workgroup has {chunk} positions", "k.parallel(n, 16) has 16 in each")
        self._is_parallel = True
        machine = self.machine
        machine.begin_parallel()
        positions, group = (self._at_least(size, least) for size, least in ((count, 0), (chunk, 1)))
        for start, stop in machine.workgroups(index_data(machine, positions), index_data(machine, group)):
            yield from self._range(start, stop, 1)
        machine.end_parallel()

    @kernel_loop
    def range(self, start: Size, stop: Size | None = None, step: Size = 1) -> Iterator[Value]:
        """Loop over positions, as Python's `range`; the step is positive. The body is emitted once, as a loop."""
        if isinstance(step, int) and step < 1:
            raise kernel_error(f"k.range: the step is {step}, not positive", "n - 1 - i counts down")
        first, last = (0, start) if stop is None else (start, stop)
        machine = self.machine
        yield from self._range(index_data(machine, first), index_data(machine, last), step)

    def _range(self, start: object, stop: object, step: Size) -> Iterator[Value]:
        for position in self.machine.range(start, stop, index_data(self.machine, step)):
            yield Value(self.machine, position, INDEX)

    def _at_least(self, size: Size, least: int) -> Size:
        return greatest(size_of(self.machine, size), least)

    @kernel_loop
    def vectors(
        self, stop: Size, element: Element | str = f32, *, start: Size = 0, unroll: int = UNROLLED
    ) -> Iterator[Lanes]:
        """Loop over a row in vectors; the last one is masked if it has fewer elements than lanes.

        The body is run for each yielded vector: `unroll` of them in a step of a loop, then the rest. If the row is short and
        its size is known, it is run for each vector without a loop.

        Args:
            stop: The end of the row.
            element: The dtype of the elements: a vector fills a register.
            start: The first element.
            unroll: The number of vectors in a step of the loop.
        """
        if unroll < 1:
            raise kernel_error(f"k.vectors: unroll={unroll} is not positive")
        lanes = self.cpu.lanes(element_of(element))
        stop, start = size_of(self.machine, stop), size_of(self.machine, start)
        is_whole = isinstance(start, int) and start == 0 and not isinstance(stop, int)
        size = stop if is_whole else self._at_least(stop - start, 0)
        if isinstance(size, int) and isinstance(start, int):
            yield from self._vectors_of_known(start, size, lanes, unroll)
        else:
            yield from self._vectors_of_unknown(start, size, lanes, unroll)

    def _vectors_of_known(self, start: int, size: int, lanes: int, unroll: int) -> Iterator[Lanes]:
        whole, rest = divmod(size, lanes)
        looped = whole // unroll * unroll if whole >= 2 * unroll else 0
        if looped:
            for position in self.range(start, start + looped * lanes, unroll * lanes):
                for slot in range(unroll):
                    yield Lanes(position + slot * lanes if slot else position, lanes, slot=slot)
        pieces = [Lanes(start + i * lanes, lanes, slot=i % unroll) for i in range(looped, whole)]
        if rest:
            pieces.append(Lanes(start + whole * lanes, lanes, self._mask(rest, lanes), slot=whole % unroll))
        for piece in pieces:
            for _ in self.machine.body("k.vectors"):  # as if it were a loop: for other sizes, it is one
                yield piece

    def _vectors_of_unknown(self, start: Size, size: Size, lanes: int, unroll: int) -> Iterator[Lanes]:
        step = unroll * lanes
        looped = size // step * step + start if unroll > 1 else start
        whole = size // lanes * lanes + start
        if unroll > 1:
            for position in self.range(start, looped, step):
                for slot in range(unroll):
                    yield Lanes(position + slot * lanes if slot else position, lanes, slot=slot)
        for position in self.range(looped, whole, lanes):
            yield Lanes(position, lanes)
        rest = size % lanes
        assert isinstance(rest, Value)
        for _ in self.when(rest > 0):
            yield Lanes(whole, lanes, self._mask(rest, lanes))

    def at(self, position: Size, element: Element | str = f32, lanes: int | None = None) -> Lanes:
        """The positions of a whole vector, from a position on.

        Args:
            position: The first position.
            element: The dtype of the elements: a vector fills a register.
            lanes: Another number of lanes.
        """
        return Lanes(position, self.cpu.lanes(element_of(element)) if lanes is None else lanes)

    def prefetch(self, buffer: Buffer, *position: Size) -> None:
        """Ask the CPU to load the cache line of an element, which is read later. It may be outside of the buffer."""
        buffer.prefetch(position)

    def first_lanes(self, position: Size, count: Size, element: Element | str = f32) -> Lanes:
        """The positions of a vector, from a position on. Only the first ones belong to the row.

        Args:
            position: The first position.
            count: The number of positions, at most the lanes of a vector.
            element: The dtype of the elements: a vector fills a register.
        """
        lanes = self.cpu.lanes(element_of(element))
        return Lanes(position, lanes, self._mask(count, lanes))

    def _mask(self, count: Size, lanes: int) -> Value:
        return Value(self.machine, self.machine.mask(index_data(self.machine, count), lanes), bool_, lanes)

    @kernel_loop
    def when(self, condition: Value | bool) -> Iterator[None]:
        """Run code if a condition holds: `for _ in k.when(i < n):`."""
        if not isinstance(condition, Value):
            yield from (None for _ in range(bool(condition)))
            return
        yield from self.machine.when(_condition_data("k.when", condition))

    @kernel_loop
    def repeat(self) -> Iterator[None]:
        """Run code again and again: `for _ in k.repeat():`, until `k.stop_unless(condition)` in it stops it."""
        for _ in self.machine.repeat():
            self._repeats.append(self.machine.scope)
            yield None
            self._repeats.pop()

    def stop_unless(self, condition: Value) -> None:
        """Make `k.repeat()` stop after this run of its body, unless a condition holds. It is called once in the body."""
        if not self._repeats or self.machine.scope is not self._repeats[-1]:
            hint = "compute the condition in a register, and stop at the end of the body of k.repeat"
            raise kernel_error(
                "k.stop_unless is called in the body of k.repeat, outside of other loops and branches", hint
            )
        self.machine.stop_unless(_condition_data("k.stop_unless", condition))

    # --- values -----------------------------------------------------------------------------------

    def constant(self, number: Number, element: Element | str, lanes: int | None = None) -> Value:
        """A number, or a vector with this number in each lane."""
        kind = element_of(element)
        return Value(self.machine, self.machine.constant(number_of(number, kind), kind, lanes), kind, lanes)

    def constants(self, numbers: Sequence[Number], element: Element | str) -> Value:
        """A vector of several numbers."""
        kind = element_of(element)
        checked = [number_of(number, kind) for number in numbers]
        if not checked:
            raise kernel_error("a vector has at least one lane")
        return Value(self.machine, self.machine.constants(checked, kind), kind, len(checked))

    def vector(self, values: Sequence[Value]) -> Value:
        """A vector with a scalar in each lane."""
        if not values or any(value.lanes is not None for value in values):
            raise kernel_error("k.vector takes scalars, at least one", "v.shuffle joins vectors")
        scalars = unified(*values)
        data = self.machine.joined([v.data for v in scalars], scalars[0].element)
        return Value(self.machine, data, scalars[0].element, len(scalars))

    def neutral(self, kind: str, element: Element | str = f32) -> Value:
        """The vector that changes nothing in an accumulator of a kind."""
        found = element_of(element)
        return self.constant(_limited(_joining(kind)[1], found), found, self.cpu.lanes(found))

    def join(self, kind: str) -> Join:
        """The function of two values that an accumulator of a kind joins with."""
        return _joining(kind)[0]

    def least(self, *sizes: Size) -> Value:
        """The least of several sizes."""
        first, *others = map(self.index, sizes)
        for other in others:
            first = first.minimum(other)
        return first

    def number(self, size: Size, element: Element | str) -> Value:
        """A size as a number of an element type."""
        return size.to(element) if isinstance(size, Value) else self.constant(size, element)

    def index(self, position: Size) -> Value:
        """A position as a value."""
        return Value(self.machine, index_data(self.machine, position), INDEX)

    def where(self, condition: Value | None, a: Operand, b: Operand) -> Value:
        """`a` where a condition holds, else `b`. Both are computed. None, the mask of a whole vector, holds everywhere."""
        return where(condition, a, b)

    def any_lane(self, condition: Value) -> Value:
        """Whether a condition holds in any lane."""
        if condition.element is not bool_:
            raise kernel_error(f"k.any_lane takes conditions, not {condition.element.name}", "compare it: v != 0")
        return condition.lane_bits() != 0

    @kernel_loop
    def lanes_where(self, condition: Value) -> Iterator[Value]:
        """Loop over the lanes in which a condition holds, in order."""
        rest = self.register(condition.lane_bits())
        for _ in self.when(rest.value != 0):
            for _ in self.repeat():
                bits = rest.value
                yield bits.trailing_zeros().to(INDEX)
                rest.value = bits & (bits - 1)
                self.stop_unless(rest.value != 0)

    def register(
        self, initial: Value | float, element: Element | str = f32, lanes: int | None = None
    ) -> KernelRegister:
        """A register that can be assigned: `v = k.register(0.0)`, `v.value = v.value + x[i, j]`."""
        if not isinstance(initial, Value):
            initial = self.constant(initial, element, lanes)
        return KernelRegister(self.machine, initial)

    def accumulator(self, kind: str, element: Element | str = f32, slots: int = UNROLLED) -> Accumulator:
        """An accumulator for the vectors of a row.

        Args:
            kind: `"add"`, `"mul"`, `"max"` or `"min"`; or `"fast_max"`, a maximum that may be any number if an element is
                NaN, in a quarter of the instructions.
            element: The dtype.
            slots: The number of vectors, at most the `unroll` of the loop.
        """
        found = element_of(element)
        return Accumulator(self.machine, kind, found, self.cpu.lanes(found), slots)

    def scratch(self, *shape: int, element: Element | str = f32) -> Buffer:
        """Memory of one workgroup, with undefined elements. All of a kernel's together are at most 128 KiB.

        Raises:
            ShapeError: A size is not a positive integer, or the memory is too large.
        """
        sizes, kind = [size_of(self.machine, size) for size in shape], element_of(element)
        known = [size for size in sizes if isinstance(size, int) and size > 0]
        if len(known) != len(sizes):
            raise kernel_error(
                "the sizes of scratch memory are known, and positive", "rlx.kernel(…, workspace=…) has others"
            )
        return Buffer(self.machine, None, known, kind, self.machine.scratch(known, kind))

    def table(self, numbers: np.ndarray, element: Element | str = f32) -> Buffer:
        """Numbers that are known when the kernel is compiled, as memory that is read. They are part of the program.

        Raises:
            ShapeError: There are none, or kernels do not compute with the element type.
        """
        kind = element_of(element)
        array = np.ascontiguousarray(numbers, kind.numpy)
        if kind in (INDEX, bool_) or not array.size:
            raise kernel_error(f"a table is of numbers, and not empty, got {kind.name} of shape {array.shape}")
        return Buffer(self.machine, None, array.shape, kind, self.machine.table(array), Access(is_writable=False))

    def intrinsic(
        self, name: str, operands: Sequence[Value], element: Element | str, lanes: int | None = None
    ) -> Value:
        """An instruction of the CPU by the name of LLVM's intrinsic function, such as `llvm.x86.avx2.pmadd.wd`."""
        element = element_of(element)
        data = self.machine.intrinsic(name, [v.data for v in operands], element, lanes)
        return Value(self.machine, data, element, lanes)

"""`Kernel`: what the code of a kernel calls for loops, registers and functions. It is the kernel's first argument."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rlx.ir.dtype import bool_, f32
from rlx.kernels.buffer import Buffer, Lanes, Size
from rlx.kernels.elements import INDEX, Element
from rlx.kernels.machine import Machine
from rlx.kernels.values import Number, Operand, Value, index_data, kernel_error, like, where

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
        self._slot = machine.variable(initial.element, initial.lanes)
        machine.assign(self._slot, initial.data)

    @property
    def value(self) -> Value:
        """Its value at this point."""
        return Value(self._machine, self._machine.read(self._slot), self._model.element, self._model.lanes)

    @value.setter
    def value(self, value: Operand) -> None:
        model = Value(self._machine, None, self._model.element, self._model.lanes)
        stored = like(value, model)
        if stored.lanes != model.lanes:
            raise kernel_error(f"the register is {model.element.name} of {model.lanes or 1} lanes, not {stored!r:.60}")
        self._machine.assign(self._slot, stored.data)


class Accumulator:
    """Vectors that a loop over a row joins its elements into, such as sums or maxima.

    There is one vector for each of the vectors in a step of an unrolled loop, so that the steps do not wait for each other.
    """

    def __init__(self, machine: Machine, kind: str, element: Element, lanes: int, slots: int):
        if kind not in _JOINS:
            raise kernel_error(f"an accumulator is one of {', '.join(_JOINS)}, not '{kind}'")
        self._join, neutral = _JOINS[kind]
        self._neutral = _limited(neutral, element)
        initial = Value(machine, machine.constant(self._neutral, element, lanes), element, lanes)
        self._vectors = [KernelRegister(machine, initial) for _ in range(slots)]

    def include(self, at: Lanes, value: Value) -> None:
        """Join the values of some positions of a row. Lanes that are not positions of the row are ignored."""
        if at.mask is not None:
            value = where(at.mask, value, self._neutral)
        vector = self._vectors[at.slot % len(self._vectors)]
        vector.value = self._join(vector.value, value)

    def vector(self) -> Value:
        """The joined elements, one for each lane."""
        vectors = [v.value for v in self._vectors]
        while len(vectors) > 1:
            pairs = zip(vectors[::2], vectors[1::2], strict=False)
            vectors = [self._join(a, b) for a, b in pairs] + vectors[len(vectors) // 2 * 2 :]
        return vectors[0]

    def result(self) -> Value:
        """All elements joined, in an order that depends on the number of lanes only."""
        return self.vector().joined(self._join)


def _limited(number: float, element: Element) -> Number:
    """Return a number, or the limit of an integer element type for an infinity."""
    if element.is_float or number in (0, 1) or not hasattr(element, "min"):
        return number
    least, greatest = element.min, element.max  # type: ignore[union-attr]
    return int(least if number < 0 else greatest)


class Kernel:
    """Loops, registers and functions of a kernel.

    Attributes:
        cpu: The registers and instructions of the CPU. Code may depend on them.
    """

    def __init__(self, machine: Machine):
        self.machine, self.cpu = machine, machine.cpu
        self._is_parallel = False

    # --- loops and branches -----------------------------------------------------------------------

    def parallel(self, count: Size, chunk: int = 1) -> Iterator[Value]:
        """Loop over positions that threads may share. It is called once, outside of other loops.

        Args:
            count: The number of positions.
            chunk: The number of positions of a workgroup, which one thread runs in order. A workgroup takes about 0.5 µs to
                start: it should touch at least 64 KiB.
        """
        if self._is_parallel or self.machine.scope.name != "the kernel":
            raise kernel_error("k.parallel is called once, outside of other loops", "k.range loops inside of it")
        self._is_parallel = True
        machine = self.machine
        for start, stop in machine.workgroups(index_data(machine, count), index_data(machine, chunk)):
            yield from self._range(start, stop, 1)

    def range(self, start: Size, stop: Size | None = None, step: Size = 1) -> Iterator[Value]:
        """Loop over positions, as Python's `range`; the step is positive. The body is emitted once, as a loop."""
        first, last = (0, start) if stop is None else (start, stop)
        machine = self.machine
        yield from self._range(index_data(machine, first), index_data(machine, last), step)

    def _range(self, start: object, stop: object, step: Size) -> Iterator[Value]:
        for position in self.machine.range(start, stop, index_data(self.machine, step)):
            yield Value(self.machine, position, INDEX)

    def vectors(
        self, stop: Size, element: Element = f32, *, start: Size = 0, unroll: int = UNROLLED
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
        lanes = self.cpu.lanes(element)
        size = stop if isinstance(start, int) and start == 0 else stop - start
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
        for i in range(looped, whole):
            yield Lanes(start + i * lanes, lanes, slot=i % unroll)
        if rest:
            yield Lanes(start + whole * lanes, lanes, self._mask(rest, lanes), slot=whole % unroll)

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

    def at(self, position: Size, element: Element = f32) -> Lanes:
        """The positions of a whole vector, from a position on."""
        return Lanes(position, self.cpu.lanes(element))

    def _mask(self, count: Size, lanes: int) -> Value:
        return Value(self.machine, self.machine.mask(index_data(self.machine, count), lanes), bool_, lanes)

    def when(self, condition: Value | bool) -> Iterator[None]:
        """Run code if a condition holds: `for _ in k.when(i < n):`."""
        if not isinstance(condition, Value):
            yield from (None for _ in range(bool(condition)))
            return
        if condition.lanes is not None:
            raise kernel_error("k.when takes one condition, not a vector of them", "k.any_lane(v) combines them")
        yield from self.machine.when(condition.data)

    def repeat(self) -> Iterator[None]:
        """Run code again and again: `for _ in k.repeat():`, until `k.stop_unless(condition)` in it stops it."""
        yield from self.machine.repeat()

    def stop_unless(self, condition: Value) -> None:
        """Make the innermost `k.repeat()` stop after this run of its body, unless a condition holds."""
        self.machine.stop_unless(condition.data)

    # --- values -----------------------------------------------------------------------------------

    def constant(self, number: Number, element: Element, lanes: int | None = None) -> Value:
        """A number, or a vector with this number in each lane."""
        return Value(self.machine, self.machine.constant(number, element, lanes), element, lanes)

    def constants(self, numbers: Sequence[Number], element: Element) -> Value:
        """A vector of several numbers."""
        return Value(self.machine, self.machine.constants(numbers, element), element, len(numbers))

    def neutral(self, kind: str, element: Element = f32) -> Value:
        """The vector that changes nothing in an accumulator of a kind."""
        return self.constant(_limited(_JOINS[kind][1], element), element, self.cpu.lanes(element))

    def join(self, kind: str) -> Join:
        """The function of two values that an accumulator of a kind joins with."""
        return _JOINS[kind][0]

    def least(self, *sizes: Size) -> Value:
        """The least of several sizes."""
        first, *others = map(self.index, sizes)
        for other in others:
            first = first.minimum(other)
        return first

    def index(self, position: Size) -> Value:
        """A position as a value."""
        return Value(self.machine, index_data(self.machine, position), INDEX)

    def where(self, condition: Value, a: Operand, b: Operand) -> Value:
        """`a` where a condition holds, else `b`. Both are computed."""
        return where(condition, a, b)

    def any_lane(self, condition: Value) -> Value:
        """Whether a condition holds in any lane."""
        return condition.joined(lambda a, b: a | b)

    def register(self, initial: Value | float, element: Element = f32, lanes: int | None = None) -> KernelRegister:
        """A register that can be assigned: `v = k.register(0.0)`, `v.value = v.value + x[i, j]`."""
        if not isinstance(initial, Value):
            initial = self.constant(initial, element, lanes)
        return KernelRegister(self.machine, initial)

    def accumulator(self, kind: str, element: Element = f32, slots: int = UNROLLED) -> Accumulator:
        """An accumulator for the vectors of a row.

        Args:
            kind: `"add"`, `"mul"`, `"max"` or `"min"`; or `"fast_max"`, a maximum that may be any number if an element is
                NaN, in a quarter of the instructions.
            element: The dtype.
            slots: The number of vectors, at most the `unroll` of the loop.
        """
        return Accumulator(self.machine, kind, element, self.cpu.lanes(element), slots)

    def scratch(self, *shape: int, element: Element = f32) -> Buffer:
        """Memory of one workgroup, with undefined elements. All of a kernel's together are at most 128 KiB."""
        return Buffer(self.machine, None, shape, element, self.machine.scratch(shape, element))

    def intrinsic(self, name: str, operands: Sequence[Value], element: Element, lanes: int | None = None) -> Value:
        """An instruction of the CPU by the name of LLVM's intrinsic function, such as `llvm.x86.avx2.pmadd.wd`."""
        data = self.machine.intrinsic(name, [v.data for v in operands], element, lanes)
        return Value(self.machine, data, element, lanes)

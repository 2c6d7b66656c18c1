"""`Buffer`: a tensor in memory, as a kernel reads and writes it, and `Lanes`: consecutive elements of a row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from rlx.ir.dtype import DType
from rlx.ir.shape import Shape
from rlx.kernels.elements import STORED, Element, Number, element_of
from rlx.kernels.errors import kernel_error
from rlx.kernels.machine import Machine
from rlx.kernels.values import Value, index_data, like, size_of

Size = int | Value


@dataclass(frozen=True, eq=False)
class Lanes:
    """Consecutive positions of a row, one for each lane of a vector, or for its first lanes.

    `c + 1` and `c - 1` are the positions one to the right and left.

    Attributes:
        start: The first position.
        count: The number of lanes of a vector.
        mask: A condition of the lanes that are positions of the row; None for all.
        slot: The number of these positions within a step of an unrolled loop.
    """

    start: Size
    count: int
    mask: Value | None = None
    slot: int = 0

    def __add__(self, offset: Size) -> Lanes:
        return replace(self, start=self.start + offset)

    __radd__ = __add__

    def __sub__(self, offset: Size) -> Lanes:
        return replace(self, start=self.start - offset)

    def __mul__(self, factor: object) -> NoReturn:
        raise kernel_error("lanes are consecutive positions, which cannot be multiplied", "c.start is the first one")

    __rmul__ = __floordiv__ = __mod__ = __mul__

    def __eq__(self, other: object) -> NoReturn:
        raise kernel_error("lanes are positions of a loop, which cannot be compared", "c.start is the first one")

    __lt__ = __le__ = __gt__ = __ge__ = __ne__ = __eq__  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


Position = Size | Lanes


@dataclass
class Access:
    """The use of memory, which the views of a buffer share.

    Attributes:
        is_writable: Whether it may be written. Operands may not.
        is_written: Whether it has been.
    """

    is_writable: bool = True
    is_written: bool = False


class Buffer:
    """A tensor in memory: `x[i, j]` is an element, and `x[i, c]` a vector, for the `Lanes` `c` of `k.vectors`.

    A tensor of complex numbers has their parts as elements, and one more axis of size 2.

    Attributes:
        element: The dtype.
        shape: The sizes: integers, or values if they are known at run time only.
        access: The use of the memory, shared with its views.
    """

    def __init__(
        self,
        machine: Machine,
        memory: Any,
        shape: Sequence[Size],
        element: Element,
        array: Any = None,
        access: Access | None = None,
    ):
        is_stored = element.name in STORED
        self.machine, self.element, self.shape = machine, element if is_stored else element_of(element), tuple(shape)
        self._memory, self._scope, self.access = memory, machine.scope, access or Access()
        if array is None and memory is not None and not is_stored:
            array = machine.view(memory, [s if isinstance(s, int) else s.data for s in shape], element)
        self._array = array

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def memory(self) -> Any:
        """A pointer and a distance; None for scratch memory and tables."""
        return self._memory

    @property
    def array(self) -> Any:
        """The memory as the machine accesses it."""
        return self._checked_array()

    def __repr__(self) -> str:
        sizes = ", ".join(str(s) if isinstance(s, int) else "?" for s in self.shape)
        return f"Buffer({self.element.name}[{sizes}])"

    def view(self, *shape: Size) -> Buffer:
        """The same memory with another shape of the same number of elements, in row-major order.

        Raises:
            ShapeError: The number of elements differs, as far as it is known, or this is scratch memory or a table.
        """
        shape = tuple(size_of(self.machine, size) for size in shape)
        if self._memory is None and self._array is not None:
            raise kernel_error("scratch memory and tables have one shape only", "k.scratch takes the shape")
        if len(shape) == self.rank and all(map(_is_same, shape, self.shape)):
            return self
        known = [[size for size in sizes if isinstance(size, int)] for sizes in (shape, self.shape)]
        is_known = [len(k) for k in known] == [len(shape), self.rank]
        if is_known and math.prod(known[0]) != math.prod(known[1]):
            raise kernel_error(f"{self!r}: a view with the shape {shape} has another number of elements")
        return Buffer(self.machine, self._memory, shape, self.element, access=self.access)

    def bits(self, element: DType) -> Buffer:
        """The same memory as elements of another dtype of the same width.

        Raises:
            ShapeError: The widths differ, or it is scratch memory or a table.
        """
        if self._memory is None and self._array is not None:
            raise kernel_error("scratch memory and tables have one dtype only", "v.bits(dtype) converts its elements")
        if self.element.itemsize != element.itemsize:
            raise kernel_error(f"bits: {self.element.name} and {element.name} have different widths")
        return (
            self
            if element is self.element
            else Buffer(self.machine, self._memory, self.shape, element, access=self.access)
        )

    def rows(self) -> Buffer:
        """The tensor as a matrix: the last axis, and all others joined. A tensor without axes is one element."""
        if not self.shape:
            return self.view(1, 1)
        return self.view(product(self.shape[:-1]), self.shape[-1])

    def __getitem__(self, position: Position | tuple[Position, ...]) -> Value:
        self._check_element()
        indices, lanes = self._indices(position)
        mask = lanes.mask.data if lanes is not None and lanes.mask is not None else None
        count = lanes.count if lanes is not None else None
        self.machine.note_access()
        data = self.machine.load(self._checked_array(), indices, self.element, count, mask)
        return Value(self.machine, data, self.element, count)

    def __setitem__(self, position: Position | tuple[Position, ...], value: Value | Number) -> None:
        self._check_element()
        indices, lanes = self._indices(position)
        count = lanes.count if lanes is not None else None
        stored = self._stored(value, count)
        mask = lanes.mask.data if lanes is not None and lanes.mask is not None else None
        if not self.access.is_writable:
            raise kernel_error(
                f"{self!r} is an operand or a table, which is read only", "results, workspace and scratch are written"
            )
        self.machine.note_access()
        self.access.is_written = True
        self.machine.store(self._checked_array(), indices, stored.data, count, mask)

    def prefetch(self, position: Sequence[Size]) -> None:
        """Ask the CPU to load the cache line of an element; see `Kernel.prefetch`."""
        self.machine.prefetch(self._checked_array(), [index_data(self.machine, p) for p in position])

    def _check_element(self) -> None:
        if self.element.name in STORED:
            hint = "takes=lambda case: case.are_all('f32') leaves it to the op's lowering; x.bits(rlx.u16) has its bits"
            raise kernel_error(f"kernels do not compute with {self.element.name}", hint)

    def _stored(self, value: Value | Number, count: int | None) -> Value:
        model = Value(self.machine, None, self.element, count)
        stored = like(value, model)
        if stored.lanes != count:
            shown = "an element" if count is None else f"a vector of {count} lanes"
            raise kernel_error(f"{self!r}: expected {shown}, got {stored!r:.60}")
        return stored

    def _indices(self, position: Position | tuple[Position, ...]) -> tuple[list[Any], Lanes | None]:
        positions = position if isinstance(position, tuple) else (position,)
        if len(positions) != self.rank:
            raise kernel_error(f"{self!r} takes {self.rank} positions, got {len(positions)}")
        if any(isinstance(p, Lanes) for p in positions[:-1]):
            raise kernel_error(f"{self!r}: only the last axis has consecutive elements, so only it takes lanes")
        for axis, (place, size) in enumerate(zip(positions, self.shape, strict=True)):
            if isinstance(place, slice):
                raise kernel_error(
                    f"{self!r} has no slices", "a row is a loop: for c in k.vectors(x.shape[-1]): x[i, c]"
                )
            if isinstance(place, int) and not 0 <= place < (size if isinstance(size, int) else place + 1):
                hint = f"the last one is at x.shape[{axis}] - 1" if place < 0 else None
                raise kernel_error(f"{self!r}: position {place} is outside of axis {axis}", hint)
        lanes = positions[-1] if positions and isinstance(positions[-1], Lanes) else None
        return [index_data(self.machine, p.start if isinstance(p, Lanes) else p) for p in positions], lanes

    def __iter__(self) -> NoReturn:
        raise kernel_error(f"{self!r} is read at positions", "loop over them: for i in k.range(x.shape[0]): x[i]")

    def __eq__(self, other: object) -> NoReturn:
        raise kernel_error(
            f"{self!r} is read at positions, and not compared", "x[i, j] is an element, x[i, c] a vector"
        )

    __ne__ = __eq__  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None  # so that NumPy's numbers do not see a sequence

    def _checked_array(self) -> Any:
        if not self._scope.is_open:
            raise kernel_error(f"this view was made inside {self._scope.name}, which has ended")
        return self._array


def shape_in_memory(shape: Shape) -> Shape:
    """The shape of a tensor's buffer: complex numbers are pairs of floats, on one more axis."""
    return Shape((*shape.dims, 2), shape.dtype.part) if shape.dtype.is_complex else shape


def _is_same(a: Size, b: Size) -> bool:
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)


def ceil_div(size: Size, divisor: Size) -> Size:
    """The quotient of two sizes, rounded up. The divisor is positive."""
    return (size + (divisor - 1)) // divisor


def least(a: Size, b: Size) -> Size:
    """The smaller one of two sizes."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    return b.minimum(a) if isinstance(a, int) else a.minimum(b)  # type: ignore[union-attr]


def greatest(a: Size, b: Size) -> Size:
    """The greater one of two sizes."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    return b.maximum(a) if isinstance(a, int) else a.maximum(b)  # type: ignore[union-attr]


def product(sizes: Sequence[Size]) -> Size:
    """The product of sizes: an integer if all are, or if one is 0."""
    known, result = 1, None
    for size in sizes:
        if isinstance(size, int):
            known *= size
        else:
            result = size if result is None else result * size
    if result is None or not known:
        return known
    return result if known == 1 else result * known

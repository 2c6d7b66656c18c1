"""The writer of one C function: loops, and the elements that they compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx import mlir
from rlx.ir.dtype import DType, i32
from rlx.ir.op import opview
from rlx.ir.op.opview import label_of, name_of
from rlx.ir.op.rule_errors import calling
from rlx.ir.shape import Shape, shape_of
from rlx.targets.c.lower.grouping import OpGroup, constant_of
from rlx.targets.c.lower.rules import ELEMENTWISE, LOOKS_UP, RULES
from rlx.targets.c.lower.values import Affine, Index, Scalar, broadcast, computed_in, flat, literal, scalar, stored_type
from rlx.targets.c.lower.writer import Writer

if TYPE_CHECKING:
    from rlx.targets.c.lower.program import CSource

_VARIABLES = "ijklpq"  # n, c and r have other uses
Run = Callable[["IndexBody", Index], None]


class KernelWriter:
    """The function that computes a group.

    Attributes:
        program: The program.
        group: The ops.
        writer: The lines of the function.
        before: Functions that only this function calls.
        name: A label and a number: `conv_1`.
        uses_scratch: Whether it has scratch memory.
        constants: Labels of constants, for the names of their tables.
    """

    def __init__(self, program: CSource, group: OpGroup, name: str):
        self.program = program
        self.group = group
        self.name = name
        self.writer = Writer(1)
        self.before = Writer()
        self.inner = group.inner
        self.uses_scratch = False
        self.constants: dict[Any, str] = {}
        self._nests = 0

    def run(self) -> None:
        """Write the statements."""
        group = self.group
        if group.root is None:
            self.nest(group.shape.static, lambda body, index: body.store(body.element(group.result, index), index))
            return
        root = group.root
        operands = opview.operands_of(root, list(root.operands))
        rule = RULES[name_of(root)]
        with calling(root, "lowering to C", rule):
            rule(self, shape_of(root.results[0]), *operands, **opview.attributes_of(root))

    def finish(self, body: IndexBody, index: Index, sum_: Scalar) -> None:
        """Compute the group's result at an index from the root's result there, and store it."""
        root = self.group.root
        assert root is not None
        body.known[root.results[0], index] = sum_
        body.store(body.element(self.group.result, index), index)

    def bounds(self, value: mlir.Value) -> tuple[int, int]:
        """Known bounds of the elements of a value that this function reads."""
        rank = shape_of(value).rank
        element = IndexBody(self, Writer()).element(value, tuple(Affine.of(f"@any.{axis}") for axis in range(rank)))
        return element.low, element.high

    # --- names ----------------------------------------------------------------------------------------

    def pointer(self, value: mlir.Value) -> str:
        """The name of a buffer."""
        return self.program.names[value]

    def need(self, helper: str) -> str:
        """Request a shared helper function, and return its name."""
        return self.program.need(helper)

    def table(self, what: str, array: np.ndarray, dtype: DType, note: str) -> str:
        """Add a constant array that only this kernel reads, and return its name."""
        return self.program.table(f"{self.name}_{what}", array.reshape(-1), stored_type(dtype), note)

    # --- loops ----------------------------------------------------------------------------------------

    def nest(self, dims: Sequence[int], run: Run, names: Sequence[str] = (), around: IndexBody | None = None) -> None:
        """Write loops over an index of these sizes. Neighbouring axes become one loop if the layouts of all arrays permit it.

        Args:
            dims: The sizes.
            run: Writes the statements for an index. It is called twice, and the output of the first call is discarded.
            names: The names of the variables; letters by default.
            around: The enclosing statements; none by default.
        """
        is_inner = around is not None
        writer = self.writer if around is None else around.writer
        if 0 in dims:
            return
        self._nests += 1
        marks = [f"@{self._nests}.{axis}" for axis in range(len(dims))]
        probe = IndexBody(self, Writer(), around=around)
        probe.names = set(probe.names)
        run(probe, tuple(Affine.of(mark) if d > 1 else Affine() for mark, d in zip(marks, dims, strict=True)))
        joined = _joined(dims, marks, probe.places, probe.read)
        with ExitStack() as stack:
            at: list[Affine] = [Affine()] * len(dims)
            for number, axes in enumerate(joined):
                letter = _VARIABLES[number % 6] + ("" if number < 6 else str(number))
                variable = names[axes[-1]] if names and (len(axes) == 1 or is_inner) else letter
                at[axes[-1]] = Affine.of(variable)
                stack.enter_context(writer.loop(variable, prod(dims[a] for a in axes)))
            run(IndexBody(self, writer, around=around), tuple(at))


def _joined(dims: Sequence[int], marks: Sequence[str], places: Sequence[Affine], read: set[str]) -> list[list[int]]:
    """Return the axes with more than one element, grouped into loops."""
    groups: list[list[int]] = []
    for axis, d in enumerate(dims):
        if d == 1:
            continue
        inner, outer = marks[axis], marks[groups[-1][-1]] if groups else ""
        fits = groups and not {outer, inner} & read
        if fits and all(p.factor(outer) == p.factor(inner) * d for p in places):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return groups


class Channels:
    """Constants for each channel of a result, as fields of one table: `channel->bias`.

    Attributes:
        variable: The variable for the channel in the index of the result.
        fields: Arrays with a number for each channel, by name.
    """

    def __init__(self, variable: str, count: int):
        self.variable = variable
        self.count = count
        self.fields: dict[str, np.ndarray] = {}

    def field(self, place: Affine, array: np.ndarray, dtype: DType, what: str) -> Scalar | None:
        """A field for an element of an array, if the array has one element for each channel."""
        if place != Affine.of(self.variable) or array.size != self.count or computed_in(dtype) is not i32:
            return None
        numbers = array.reshape(-1).astype(np.int32)
        name, number = what, 2
        while name in self.fields and not np.array_equal(self.fields[name], numbers):
            name, number = f"{what}_{number}", number + 1
        self.fields[name] = numbers
        return scalar(f"channel->{name}", dtype, (int(array.min()), int(array.max())))


class IndexBody:
    """The statements at one index, where each element is computed once.

    Args:
        kernel: The function.
        writer: The lines to add to.
        channels: The table of constants for each channel, if the kernel has one.
        around: The enclosing statements. Both share names of variables, because they may be in one block.

    Attributes:
        kernel: The function.
        writer: The lines to add to.
        known: Elements that have been computed, by value and index.
        places: All array offsets that have been used.
        read: The variables that are used outside of array offsets.
        names: Used names of variables.
        channels: The table of constants for each channel, if the kernel has one.
    """

    def __init__(
        self, kernel: KernelWriter, writer: Writer, channels: Channels | None = None, around: IndexBody | None = None
    ):
        self.kernel = kernel
        self.writer = writer
        self.channels = channels
        self.known: dict[Any, Scalar] = {}
        self.places: list[Affine] = []
        self.read: set[str] = set()
        self.names: set[str] = set() if around is None else around.names

    def element(self, value: mlir.Value, index: Index) -> Scalar:
        """An element of a value: computed, loaded, or a literal."""
        key = (value, index)
        if key not in self.known:
            self.known[key] = self._computed(value, index) if self._is_here(value) else self.load(value, index)
        return self.known[key]

    def _is_here(self, value: mlir.Value) -> bool:
        return value in self.kernel.inner or value == self.kernel.group.result

    def _computed(self, value: mlir.Value, index: Index) -> Scalar:
        op = value.owner.operation
        rule, result = RULES[name_of(op)], shape_of(value)
        attributes = opview.attributes_of(op)
        with calling(op, "lowering to C", rule):
            if name_of(op) not in ELEMENTWISE:
                shapes = [shape_of(v) for v in op.operands]
                return self.element(op.operands[0], rule(self, index, result, *shapes, **attributes))
            if name_of(op) in LOOKS_UP:
                return self._bound(op, rule(self, index, result, *op.operands, **attributes))
            at = [self.element(v, broadcast(index, shape_of(v).dims)) for v in op.operands]  # type: ignore[arg-type]
            given = opview.operands_of(op, at)
            return self._bound(op, rule(self, result, *given, **attributes))

    def _bound(self, op: mlir.Operation, made: Scalar) -> Scalar:
        """The result of a rule, as a variable unless it is a simple expression."""
        if made.fixed:
            return literal(made.low, made.dtype)
        if made.simple:
            return made
        return self.local(made, label_of(op))

    def local(self, value: Scalar, name: str) -> Scalar:
        """A variable with the value of an expression."""
        name = self.fresh(name)
        kind = stored_type(computed_in(value.dtype))
        self.writer.line(f"const {kind} {name} = {value.text};")
        return Scalar(name, value.dtype, value.low, value.high)

    def fresh(self, name: str) -> str:
        """An unused name for a variable."""
        number, base = 2, self.kernel.program.local_name(name)
        name = base
        while name in self.names or self.kernel.program.is_taken(name):
            name, number = f"{base}_{number}", number + 1
        self.names.add(name)
        return name

    def load(self, value: mlir.Value, index: Index) -> Scalar:
        """An element from memory, or a literal if all elements of a constant are equal."""
        shape, array = shape_of(value), constant_of(value)
        if array is None:
            place = self.place(index, shape.static)
            return scalar(f"{self.kernel.pointer(value)}[{place}]", shape.dtype)
        return self.lookup(array, index, shape.dtype, self.kernel.constants.get(value, "values"))

    def lookup(self, array: np.ndarray, index: Index, dtype: DType, what: str, note: str = "") -> Scalar:
        """An element of a constant array, or a literal if all elements are equal.

        Args:
            array: The array.
            index: The index of the element.
            dtype: The dtype of the element.
            what: A label for the name of the array.
            note: A description for a comment.
        """
        if not array.size:
            return literal(0, dtype)  # only in loops that do not run: C has no empty arrays
        if (array == array.reshape(-1)[0]).all():
            return literal(array.reshape(-1)[0], dtype)
        if self.channels is not None and (field := self.channels.field(flat(index, array.shape), array, dtype, what)):
            return field
        name = self.kernel.table(what, array, dtype, note)
        bounds = (0, 0) if dtype.is_float else (int(array.min()), int(array.max()))
        return scalar(f"{name}[{self.place(index, array.shape)}]", dtype, bounds)

    def place(self, index: Index, dims: Sequence[int]) -> Affine:
        """The offset of an element in an array."""
        place = flat(index, dims)
        self.places.append(place)
        return place

    def text_of(self, at: Affine) -> str:
        """An index as an expression that is not an array offset."""
        self.read.update(v for v, _ in at.terms)
        return str(at)

    def store(self, value: Scalar, index: Index) -> None:
        """Write an element of the result."""
        shape = self.kernel.group.shape
        self.assign(f"{self.kernel.pointer(self.kernel.group.result)}[{self.place(index, shape.static)}]", value, shape)

    def assign(self, target: str, value: Scalar, shape: Shape) -> None:
        """Write an element."""
        self.writer.line(f"{target} = {stored_expression(value, shape.dtype)};")

    def need(self, helper: str) -> str:
        """Request a shared helper function, and return its name."""
        return self.kernel.program.need(helper)


def stored_expression(value: Scalar, dtype: DType) -> str:
    """Return the expression to assign to an element in memory."""
    kind, is_load = stored_type(dtype), value.text.endswith("]") and value.simple
    is_number = value.fixed and not value.text.isidentifier()  # an empty sum is a variable with the value 0
    if is_load or is_number or computed_in(dtype) == dtype or dtype.is_float:
        return value.text
    return f"({kind}){value.term}"

"""`KernelCase`: an op with its shapes and attributes, for which a kernel's code is emitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, repeat
from typing import Any

from rlx.ir.dims.dim import Dim, dim, symbols
from rlx.ir.shape import Shape
from rlx.kernels.cpu_model import CpuModel
from rlx.kernels.looped import LoopOp

OperandShape = Shape | None | Sequence[Shape]
# Axes of equal size: the numbers of a tensor (operands, then results) and of its axis.
Axes = Sequence[tuple[int, int]]


def unknown_dims(shapes: Sequence[Shape]) -> list[Dim]:
    """Return the different sizes of shapes that are not known, in order."""
    return list(dict.fromkeys(d for shape in shapes for d in shape.dims if type(d) is not int))


@dataclass(frozen=True)
class KernelCase:
    """An op with its shapes and attributes, for a CPU: a kernel's code is emitted once for each case.

    Attributes:
        operands: A shape for each operand of the op's record; None for a missing one, a list for a variadic one.
        results: A shape for each result.
        attributes: All attributes by name.
        cpu: The CPU.
        loop: The op, if it has a region: `tensors` then also has the values from outside that the region uses.
        plan: The kernel's plan for the case, if it makes plans.
        numbers: The kernel's numbers for the case: integers, or symbols if the code reads them when it runs.
    """

    operands: tuple[OperandShape, ...]
    results: tuple[Shape, ...]
    attributes: Mapping[str, Any]
    cpu: CpuModel
    loop: LoopOp | None = None
    plan: Any = None
    numbers: Mapping[str, int | Dim] = field(default_factory=dict)

    @property
    def unknown(self) -> list[Dim]:
        """The different sizes and numbers that are not known, in order."""
        sizes = unknown_dims([*self.tensors, *self.results])
        return [*sizes, *(number for number in self.numbers.values() if type(number) is not int)]

    @property
    def tensors(self) -> list[Shape]:
        """The shapes of all operands that are given, in order."""
        shapes: list[Shape] = []
        for operand in self.operands:
            shapes += [] if operand is None else [operand] if isinstance(operand, Shape) else operand
        return shapes if self.loop is None else [*shapes, *self.loop.captured_shapes]

    def are_all(self, *dtypes: str) -> bool:
        """Whether all operands and results have one of some dtypes."""
        return all(shape.dtype.name in dtypes for shape in (*self.tensors, *self.results))

    def opened(self, open_axes: Sequence[Axes]) -> tuple[KernelCase, dict[Dim, int]]:
        """Return the case with unknown numbers, and unknown sizes of some axes; and all of them by their new names.

        Raises:
            ValueError: Sizes that should be equal are not.
        """
        shapes, sizes = [*self.tensors, *self.results], dict[Dim, int]()
        used = {name for d in unknown_dims(shapes) for name in symbols(d)}

        def unused(name: str) -> Dim:
            return dim(next(n for n in accumulate(repeat("_"), initial=name) if n not in used))

        dims = [list(shape.dims) for shape in shapes]
        for number, axes in enumerate(open_axes):
            found = {dims[tensor][axis] for tensor, axis in axes}
            if len(found) != 1:
                raise ValueError(f"the sizes of {[*axes]} are {', '.join(map(str, found))}")
            (size,) = found
            if type(size) is int:
                name = unused(f"open{number}")
                sizes[name] = size
                for tensor, axis in axes:
                    dims[tensor][axis] = name
        made = iter([Shape(d, shape.dtype) for d, shape in zip(dims, shapes, strict=True)])
        operands = [
            o if o is None else next(made) if isinstance(o, Shape) else [next(made) for _ in o] for o in self.operands
        ]
        numbers: dict[str, int | Dim] = {}
        for name, number in self.numbers.items():
            numbers[name] = symbol = unused(f"number_{name}")
            assert isinstance(number, int)
            sizes[symbol] = number
        attributes = {name: value for name, value in self.attributes.items() if name not in numbers}
        results = tuple(made)[-len(self.results) :]
        opened = replace(self, operands=tuple(operands), results=results, attributes=attributes, numbers=numbers)
        return opened, sizes

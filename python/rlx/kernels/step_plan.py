"""`StepPlan`: the values of a loop's region that are in memory, and the order in which a kernel computes them.

The code of a step has no tensors between ops. An elementwise op, and an op that moves elements, is computed at the positions
where its result is read (`pulled.py` has their code). These are in memory: the carries and other arguments, the results of
products and reductions, the operands that products and reductions read, and the results of the step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rlx import mlir
from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import f32
from rlx.ir.op import opview
from rlx.ir.shape import Shape, shape_of
from rlx.kernels.cpu_model import CpuModel
from rlx.kernels.elements import DTYPES
from rlx.kernels.looped import LoopOp
from rlx.kernels.pulled import POINTWISE, is_pulled
from rlx.support.cached_property import cached_property

# A step whose code reads more values is left to the op's lowering: values that are read at several positions are computed
# for each of them.
_MOST_VALUES = 2000
# Values within longer chains of ops are stored, because the emission of an element calls itself for each op.
_LONGEST_CHAIN = 60
_REDUCTIONS, _REDUCED = ("sum", "mean", "max", "min"), ("f32", "f64", "i32", "i64")


class StepPlan:
    """The plan of a region that takes carries and other arguments, and yields the next carries and other values.

    Args:
        loop: The loop.
        num_carries: The number of carries.
        region: The number of the region.

    Attributes:
        ops: The ops of the region, in order, without its terminator.
        arguments: The arguments of the region: the carries first.
        yielded: The values that it yields: the next carries first.
        num_carries: The number of carries.
    """

    def __init__(self, loop: LoopOp, num_carries: int, region: int = 0):
        block = loop.op.regions[region].blocks[0]
        *body, end = block.operations
        self.ops = [op.operation for op in body]
        self.arguments, self.captures = list(block.arguments), list(loop.captures)
        self.yielded, self.num_carries = list(end.operation.operands), num_carries
        self.maker = {result: op for op in self.ops for result in op.results}

    def problem(self, known: Iterable[Dim]) -> str | None:
        """Return the reason why a kernel cannot have the code of this region; None if it can.

        Args:
            known: The sizes of the tensors that the kernel takes and returns.
        """
        sizes = set(known)
        for op in self.ops:
            for shape in map(shape_of, (*op.operands, *op.results)):
                if shape.dtype.name not in DTYPES:
                    return f"{shape.dtype.name} is not computed in kernels"
                if any(d == 0 or (type(d) is not int and d not in sizes) for d in shape.dims):
                    return f"the sizes of {shape} are not known"
            if not (is_pulled(op) or _is_stored(op) or op in self.updates.values()):
                return f"{opview.name_of(op)} has no code in loops"
        if sum(self._count(value, set()) for value in self._roots()) > _MOST_VALUES:
            return "it reads too many values"
        return None

    # --- values in memory -------------------------------------------------------------------------

    @cached_property
    def updates(self) -> dict[int, mlir.Operation]:
        """The carries whose next value is the old one with some rows replaced, which are written in place, and these ops."""
        found: dict[int, mlir.Operation] = {}
        for number, value in enumerate(self.yielded[: self.num_carries]):
            op = self.maker.get(value)
            is_only_yielded = op is not None and len(list(value.uses)) == 1 and self.yielded.count(value) == 1
            if op is not None and is_only_yielded and is_update(op) and op.operands[0] == self.arguments[number]:
                found[number] = op
        # The rows of one are not those of another, which may already be the next value.
        updated = [self.arguments[number] for number in found]
        return {n: op for n, op in found.items() if not any(v in updated for v in tuple(op.operands)[1:])}

    @cached_property
    def stored(self) -> list[mlir.Value]:
        """The values between arguments and yielded values that are in memory, in order."""
        needed: set[mlir.Value] = set()
        lengths: dict[mlir.Value, int] = {}  # of the chain of ops whose code is nested in that of a value
        for op in self.ops:
            length = 1 + max((lengths.get(v, 0) for v in op.operands), default=0)
            if op in self.updates.values():
                needed.update(tuple(op.operands)[1:])
            elif _is_stored(op) or length > _LONGEST_CHAIN:
                needed.update(op.results)
                length = 0
                if opview.name_of(op) == "matmul":
                    needed.update(op.operands)
            lengths |= dict.fromkeys(op.results, length)
        return [result for op in self.ops for result in op.results if result in needed]

    @cached_property
    def invariant(self) -> list[mlir.Value]:
        """The stored values that are the same in each step."""
        varying: set[mlir.Value] = set(self.arguments)
        for op in self.ops:
            if any(operand in varying for operand in op.operands):
                varying.update(op.results)
        return [value for value in self.stored if value not in varying]

    @cached_property
    def groups(self) -> list[list[mlir.Value]]:
        """The different values to yield, without updates in place: those of one shape are computed in one loop."""
        found: dict[Shape, dict[mlir.Value, None]] = {}
        for number, value in enumerate(self.yielded):
            if self._is_written(number):
                shape = shape_of(value)
                found.setdefault(Shape(shape.dims, "f32"), {})[value] = None
        return [list(values) for values in found.values()]

    def places_of(self, value: mlir.Value) -> list[int]:
        """The places of a value of `groups` among the yielded values."""
        return [n for n, own in enumerate(self.yielded) if own == value and self._is_written(n)]

    @cached_property
    def buffered(self) -> list[int]:
        """The carries whose next value is kept elsewhere until the step ends, because the old value is still read."""
        return [number for number in range(self.num_carries) if self._is_buffered(number)]

    def _is_written(self, number: int) -> bool:
        """Whether a loop over its elements writes a yielded value: it is not updated in place, nor a carry that stays."""
        stays = number < self.num_carries and self.yielded[number] == self.arguments[number]
        return number not in self.updates and not stays

    def _is_buffered(self, number: int) -> bool:
        if not self._is_written(number):
            return False
        carry, own = self.arguments[number], self.yielded[number]
        if any(carry in tuple(op.operands)[1:] for op in self.updates.values()):
            return True
        for values in self.groups:
            for value in values:
                for read, is_same_place in self._reads(value):
                    if read == carry and not (is_same_place and own in values):
                        return True
        return False

    def _reads(self, value: mlir.Value, is_same_place: bool = True) -> Iterator[tuple[mlir.Value, bool]]:
        """Yield the values in memory that an element of a value is computed from, and whether at the element's own place."""
        op = self.maker.get(value)
        if op is None or value in self.stored:
            yield value, is_same_place
            return
        for operand in op.operands:
            yield from self._reads(operand, is_same_place and _reads_same_place(op, operand))

    def _roots(self) -> list[mlir.Value]:
        return [*self.stored, *(value for values in self.groups for value in values)]

    def _count(self, value: mlir.Value, seen: set[Any]) -> int:
        """Return the number of values that the code of one element computes. `seen` has those at the same position."""
        if value in seen:
            return 0
        seen.add(value)
        op = self.maker.get(value)
        if op is None:
            return 1
        total = 1
        for operand in op.operands:
            same = seen if _reads_same_place(op, operand) else set()
            total += 1 if operand in self.stored else self._count(operand, same)
            if total > _MOST_VALUES:
                break
        return total

    @cached_property
    def packed(self) -> dict[mlir.Value, Dim]:
        """The second matrices of products that are the same in each step, and the rows of the first matrices.

        A kernel copies their columns that it reads together to one place, once for all steps.
        """
        found: dict[mlir.Value, Dim] = {}
        for op in self.ops:
            if opview.name_of(op) == "matmul" and (op.operands[1] in self.captures or op.operands[1] in self.invariant):
                found.setdefault(op.operands[1], shape_of(op.operands[0]).dims[0])
        return found

    def workspace(self, cpu: CpuModel) -> list[Shape]:
        """Return the shapes of stored values, of next values of carries that are still read, and of packed matrices."""
        values = (*self.stored, *(self.arguments[number] for number in self.buffered))
        return [*map(shape_of, values), *(packed_shape(shape_of(w), rows, cpu) for w, rows in self.packed.items())]

    # --- cost -------------------------------------------------------------------------------------

    def products(self) -> int:
        """The number of products of two numbers in a step; sizes that are not known count as 1."""
        total = 0
        for op in self.ops:
            if opview.name_of(op) == "matmul":
                x, w = map(shape_of, op.operands)
                total += _known(x.dims) * _known(w.dims[-1:])
        return total

    def elements(self) -> int:
        """The number of elements that a step computes; sizes that are not known count as 1."""
        return sum(_known(shape_of(value).dims) for value in self._roots())


def _reads_same_place(op: mlir.Operation, operand: mlir.Value) -> bool:
    """Whether an element of an op's result is computed from the element of an operand at the same place only."""
    return opview.name_of(op) in POINTWISE and shape_of(operand).dims == shape_of(op.results[0]).dims


def _known(dims: Sequence[Dim]) -> int:
    return math.prod(d for d in dims if type(d) is int)


def packed_shape(matrix: Shape, rows: Dim, cpu: CpuModel) -> Shape:
    """Return the shape of a packed matrix: panels of columns, rows of the matrix, columns of a panel."""
    width = product_tile(cpu, rows)[1] * cpu.lanes(f32)
    inner, columns = matrix.dims
    assert type(columns) is int
    return matrix.with_dims((-(-columns // width), inner, width))


def product_tile(cpu: CpuModel, rows: Dim) -> tuple[int, int]:
    """Return the rows and vectors of columns of a product whose sums fill the registers."""
    many = min(rows, cpu.sums // 3) if type(rows) is int else 4
    return (1, 8) if many == 1 else (many, cpu.sums // many)


def is_update(op: mlir.Operation) -> bool:
    """Whether an op replaces rows of its first operand, one tuple of indices after the other."""
    if opview.name_of(op) != "scatter_nd" or op.attributes["reduction"].value not in ("set", "add"):
        return False
    indices = shape_of(op.operands[1])
    return indices.rank <= 2 and type(indices.dims[-1]) is int and indices.dtype.name != "u64"


def _is_stored(op: mlir.Operation) -> bool:
    """Whether a loop of its own computes the result of an op."""
    name = opview.name_of(op)
    if name == "matmul":
        x, w = map(shape_of, op.operands)
        return x.dtype.name == "f32" and x.rank == 2 and w.rank == 2 and all(type(d) is int for d in w.dims)
    if name == "reduce":
        x, attributes = shape_of(op.operands[0]), opview.attributes_of(op)
        is_last = tuple(attributes["axes"]) == (x.rank - 1,)
        return is_last and attributes["kind"] in _REDUCTIONS and x.dtype.name in _REDUCED
    return name == "concat"

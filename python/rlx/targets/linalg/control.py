"""Lowering rules for control flow: branches and loops of `scf` on tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Any

from rlx import mlir
from rlx.ir.dims.dim import Dim
from rlx.ir.shape import Shape
from rlx.numerics.scalars import storage_type
from rlx.ops.control.loop_rules import ScanLoop
from rlx.targets.linalg.loops import LoopEmitter, product_of, sized_tensor_type, tensor_type
from rlx.targets.linalg.rules import Lowered, Region, lowers
from rlx.targets.linalg.shape import extract


def _values(lowered: Sequence[Lowered]) -> list[mlir.Value]:
    return [one.value for one in lowered]


@lowers("if")
def if_(
    low: LoopEmitter, results: list[Shape], condition: Lowered, *, regions: Sequence[Region]
) -> tuple[mlir.Value, ...]:
    scf = mlir.dialect("scf")
    op = scf.IfOp(low.tensor.extract(condition.value, []), [tensor_type(s) for s in results], has_else=True)
    for block, region in zip((op.then_block, op.else_block), regions, strict=True):
        with low.ir.InsertionPoint(block):
            scf.YieldOp(_values(region()))
    return tuple(op.results)


@lowers("while")
def while_(
    low: LoopEmitter,
    results: list[Shape],
    inits: list[Lowered],
    *,
    max_iterations: int | None,
    regions: Sequence[Region],
) -> tuple[mlir.Value, ...]:
    scf = mlir.dialect("scf")
    count = len(inits)

    def goes_on(carries: Sequence[mlir.Value]) -> mlir.Value:
        """1 if there is another step, else 0, as an index, like all numbers that loops carry. Quirk: `numbers-overwritten`."""
        holds = low.tensor.extract(regions[0](*carries[:count])[0].value, [])
        if max_iterations is not None:
            again = low.arith.cmpi(low.arith.CmpIPredicate.slt, carries[count], low.size(max_iterations))
            holds = low.arith.andi(holds, again)
        return low.arith.select(holds, low.size(1), low.size(0))

    bounded = [] if max_iterations is None else [low.size(0)]
    values = [*_values(inits), *bounded]
    # The condition is computed with the carries, so that a step is one piece of work instead of two.
    values = [*values, goes_on(values)]
    types = [v.type for v in values]
    locations = [low.ir.Location.unknown()] * len(values)
    op = scf.WhileOp(types, values)
    before = op.regions[0].blocks.append(*types, arg_locs=locations)
    after = op.regions[1].blocks.append(*types, arg_locs=locations)
    with low.ir.InsertionPoint(before):
        more = low.arith.cmpi(low.arith.CmpIPredicate.ne, before.arguments[len(values) - 1], low.size(0))
        scf.ConditionOp(more, before.arguments)
    with low.ir.InsertionPoint(after):
        carries = list(after.arguments)[:-1]
        following = _values(regions[1](*carries[:count]))
        following += [low.arith.addi(c, low.size(1)) for c in carries[count:]]
        scf.YieldOp([*following, goes_on(following)])
    return tuple(op.results)[:count]


@lowers("scan")
def scan(
    low: LoopEmitter,
    results: list[Shape],
    inputs: list[Lowered],
    *,
    loop: ScanLoop,
    regions: Sequence[Region],
) -> tuple[mlir.Value, ...]:
    num_carries, (length,) = loop.num_carries, loop.length
    carries, xs, rows = _values(inputs[:num_carries]), inputs[num_carries:], results[num_carries:]
    packing = _Packing.of(low, rows)

    def body(*arguments: mlir.Value) -> list[mlir.Value]:
        return _values(regions[0](*arguments))

    if packing is None:
        return tuple(_LoweredScan(low, xs, rows, length, loop.reverse, body).run(carries))

    def packed(*arguments: mlir.Value) -> list[mlir.Value]:
        yielded = body(*arguments)
        return [*yielded[:num_carries], packing.joined(yielded[num_carries:])]

    *after, stack = _LoweredScan(low, xs, [packing.shape], length, loop.reverse, packed).run(carries)
    return (*after, *packing.split(stack))


@dataclass(frozen=True)
class _Packing:
    """Several stacks of one dtype as one stack, whose rows are the concatenated rows."""

    low: LoopEmitter
    rows: list[Shape]
    widths: list[int]

    @classmethod
    def of(cls, low: LoopEmitter, rows: list[Shape]) -> _Packing | None:
        """The packing of a scan's stacks; None for one stack, a short scan, or rows with several dtypes or symbolic sizes."""
        if len(rows) < 2 or _chunk(rows[0].dims[0], 1) is None:
            return None
        widths = [product_of(s.dims[1:]) for s in rows]
        fits = len({s.dtype for s in rows}) == 1 and all(type(w) is int and w for w in widths)
        return cls(low, rows, [int(w) for w in widths]) if fits else None  # type: ignore[arg-type]

    @property
    def shape(self) -> Shape:
        """The shape of the packed stack."""
        return Shape((self.rows[0].dims[0], sum(self.widths)), self.rows[0].dtype)

    @property
    def _starts(self) -> list[int]:
        return [sum(self.widths[:i]) for i in range(len(self.widths))]

    def joined(self, values: Sequence[mlir.Value]) -> mlir.Value:
        """Pack one row."""
        row = self.low.empty(self.shape.dims[1:], storage_type(self.shape.dtype))
        for value, shape, start, width in zip(values, self.rows, self._starts, self.widths, strict=True):
            flat = self.low.reshape(value, shape.dims[1:], (width,))
            row = self.low.inserted(flat, (width,), row, (start,))
        return row

    def split(self, stack: mlir.Value) -> list[mlir.Value]:
        """Unpack the stacks."""
        length, parts = self.rows[0].dims[0], list[mlir.Value]()
        for shape, start, width in zip(self.rows, self._starts, self.widths, strict=True):
            part = extract(self.low, stack, (0, start), (length, width), (1, 1))
            parts.append(self.low.reshape(part, (length, width), shape.dims))
        return parts


def _chunk(length: Dim, stacks: int) -> int | None:
    """The number of steps of an inner loop; None if one loop suffices.

    A compiler that does not write a row into a stack in place copies all stacks of the loop in every step. With two nested
    loops, the inner loop copies a short stack in every step, and only the outer loop copies the whole stack. A scan with
    several stacks is a single loop.
    """
    if stacks != 1:
        return None
    if type(length) is not int:
        return _UNKNOWN_CHUNK
    return None if length < _LEAST_NESTED else isqrt(length)


_UNKNOWN_CHUNK, _LEAST_NESTED = 32, 64


@dataclass(frozen=True)
class _LoweredScan:
    """The lowering of one scan.

    Attributes:
        low: The emitter.
        xs: The tensors that are read, one row in each step.
        rows: The shapes of the stacked results.
        length: The number of steps.
        reverse: Whether the scan begins with the last row.
        body: Emits a step.
    """

    low: LoopEmitter
    xs: list[Lowered]
    rows: list[Shape]
    length: Dim
    reverse: bool
    body: Callable[..., list[mlir.Value]]

    def run(self, carries: Sequence[mlir.Value]) -> list[mlir.Value]:
        """Emit the scan, and return the final carries and stacks."""
        chunk = _chunk(self.length, len(self.rows))
        return self.at_once(carries) if chunk is None else self.in_chunks(carries, chunk)

    def at_once(self, carries: Sequence[mlir.Value]) -> list[mlir.Value]:
        """Emit one loop, and return the final carries and stacks."""
        return self._steps(carries, self.low.size(0), self.low.size(self.length), self.length)

    def in_chunks(self, carries: Sequence[mlir.Value], chunk: int) -> list[mlir.Value]:
        """Emit a loop over chunks of `chunk` steps. The last chunk may be shorter."""
        low, scf = self.low, mlir.dialect("scf")
        chunks = (self.length + chunk - 1) // chunk
        shapes = [s.with_dims((chunks, chunk, *s.dims[1:])) for s in self.rows]
        stacks = [low.empty(s.dims, storage_type(s.dtype)) for s in shapes]
        op = scf.ForOp(low.size(0), low.size(chunks), low.size(1), [*carries, *stacks])
        with low.ir.InsertionPoint(op.body):
            first = low.arith.muli(op.induction_variable, low.size(chunk))
            count = low.arith.minsi(low.size(chunk), low.arith.subi(low.size(self.length), first))
            inner = list(op.inner_iter_args)
            after = self._steps(inner[: len(carries)], first, count, chunk)
            place = self._place(op.induction_variable, chunks)
            stacked = zip(after[len(carries) :], inner[len(carries) :], shapes, strict=True)
            scf.YieldOp([*after[: len(carries)], *(_with_row(low, *entry, place) for entry in stacked)])
        results = list(op.results)
        return [*results[: len(carries)], *map(self._joined, results[len(carries) :], shapes, self.rows)]

    def _joined(self, value: mlir.Value, split: Shape, shape: Shape) -> mlir.Value:
        """Concatenate the chunks, without the missing steps of the last one."""
        whole = (split.dims[0] * split.dims[1], *shape.dims[1:])
        start = whole[0] - self.length if self.reverse else 0
        value = self.low.reshape(value, split.dims, whole)
        return extract(self.low, value, (start, *[0] * (shape.rank - 1)), shape.dims, (1,) * shape.rank)

    def _steps(self, carries: Sequence[mlir.Value], first: mlir.Value, count: Any, most: Dim) -> list[mlir.Value]:
        """Emit `count` steps from `first` on, and return carries, and stacks of `most` rows."""
        low, scf = self.low, mlir.dialect("scf")
        shapes = [s.with_dims((most, *s.dims[1:])) for s in self.rows]
        stacks = [low.empty(s.dims, storage_type(s.dtype)) for s in shapes]
        op = scf.ForOp(low.size(0), count, low.size(1), [*carries, *stacks])
        with low.ir.InsertionPoint(op.body):
            step = self._place(low.arith.addi(first, op.induction_variable), self.length)
            inner = list(op.inner_iter_args)
            yielded = self.body(*inner[: len(carries)], *(_row(low, x.value, x.shape, step) for x in self.xs))
            place = self._place(op.induction_variable, most)
            stacked = zip(yielded[len(carries) :], inner[len(carries) :], shapes, strict=True)
            scf.YieldOp([*yielded[: len(carries)], *(_with_row(low, *entry, place) for entry in stacked)])
        return list(op.results)

    def _place(self, number: mlir.Value, size: Dim) -> mlir.Value:
        """The index of a step's row among `size` rows."""
        if not self.reverse:
            return number
        low = self.low
        return low.arith.subi(low.arith.subi(low.size(size), low.size(1)), number)


def _sizes(low: LoopEmitter, dims: Sequence[Dim]) -> tuple[list[mlir.Value], list[int]]:
    """Dynamic and static sizes of one row."""
    unknown = low.ir.ShapedType.get_dynamic_size()
    dynamic = [low.size(d) for d in dims if type(d) is not int]
    return dynamic, [1, *(d if type(d) is int else unknown for d in dims)]


def _row(low: LoopEmitter, value: mlir.Value, shape: Shape, step: mlir.Value) -> mlir.Value:
    """`value[step]`."""
    rank, rest = shape.rank, shape.dims[1:]
    if 0 in rest:  # an empty tensor has no valid index
        return low.empty(rest, storage_type(shape.dtype))
    dynamic, static = _sizes(low, rest)
    offsets = [low.ir.ShapedType.get_dynamic_size()] + [0] * (rank - 1)
    type_ = sized_tensor_type(rest, storage_type(shape.dtype))
    return low.tensor.extract_slice(type_, value, [step], dynamic, [], offsets, static, [1] * rank)


def _with_row(low: LoopEmitter, row: mlir.Value, into: mlir.Value, shape: Shape, step: mlir.Value) -> mlir.Value:
    """`into` with `into[step] = row`."""
    rank = shape.rank
    if 0 in shape.dims[1:]:
        return into
    dynamic, static = _sizes(low, shape.dims[1:])
    offsets = [low.ir.ShapedType.get_dynamic_size()] + [0] * (rank - 1)
    return low.tensor.insert_slice(row, into, [step], dynamic, [], offsets, static, [1] * rank)

"""`StepCode`: the code of a step of a loop in a kernel, by its plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rlx import mlir
from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import f32, i64
from rlx.ir.op import opview
from rlx.ir.shape import shape_of
from rlx.kernels.buffer import Buffer, Lanes, Size
from rlx.kernels.elements import INDEX
from rlx.kernels.kernel import Kernel
from rlx.kernels.pulled import Place, element, lanes_of
from rlx.kernels.step_plan import StepPlan, is_update, product_tile
from rlx.kernels.values import Value


@dataclass(frozen=True)
class Memory:
    """A tensor in memory: a part of a buffer.

    Attributes:
        buffer: The buffer.
        prefix: The positions on its leading axes.
    """

    buffer: Buffer
    prefix: tuple[Size, ...] = ()

    @classmethod
    def of(cls, buffer: Buffer) -> Memory:
        """Return a whole buffer. A tensor without axes is the only element of a buffer with one axis."""
        return cls(buffer) if buffer.rank else cls(buffer.view(1), (0,))

    def read(self, place: Place) -> Value:
        return self.buffer[(*self.prefix, *place)]

    def write(self, place: Place, value: Value) -> None:
        self.buffer[(*self.prefix, *place)] = value


class StepCode:
    """The code of a region.

    Args:
        k: The kernel.
        plan: Which values are in memory.
        memory: The places of arguments and captured values.
        workspace: Buffers of `plan.workspace`, in order.
        sizes: The sizes of all tensors that are not known.

    Attributes:
        memory: The places of values.
    """

    def __init__(
        self,
        k: Kernel,
        plan: StepPlan,
        memory: Mapping[mlir.Value, Memory],
        workspace: Iterator[Buffer],
        sizes: Mapping[Dim, Size],
    ) -> None:
        self.k, self.plan, self.sizes = k, plan, sizes
        self.memory = {**memory, **{value: Memory.of(next(workspace)) for value in plan.stored}}
        self._following = {number: Memory.of(next(workspace)) for number in plan.buffered}
        self._packed = {matrix: next(workspace) for matrix in plan.packed}
        self._computed: dict[object, tuple[Value, Place]] = {}

    def before(self) -> None:
        """Compute the values that are the same in each step."""
        self.store(self.plan.invariant)
        self._pack_matrices()

    def step(self, stacks: Mapping[int, Memory]) -> None:
        """Compute a step. The carries get their next values; those whose old values it reads to the end get them last.

        Args:
            stacks: The place of each yielded value that is not a carry, by number.
        """
        plan = self.plan
        carries = {number: self.memory[plan.arguments[number]] for number in range(plan.num_carries)}
        targets = {**carries, **self._following, **stacks}
        self.store([value for value in plan.stored if value not in plan.invariant])
        for values in plan.groups:
            self.copy(values, [[targets[n] for n in plan.places_of(value)] for value in values])
        for op in plan.updates.values():
            self.update(op)
        for number, memory in self._following.items():
            for place in self.positions(plan.arguments[number]):
                carries[number].write(place, memory.read(place))

    def scalar(self) -> Value:
        """Compute the region, which yields one number or condition, and return it."""
        self.store([value for value in self.plan.stored if value not in self.plan.invariant])
        self._computed = {}
        return self.read(self.plan.yielded[0], ())

    def size(self, dim: Dim) -> Size:
        """Return a size of a tensor."""
        return dim if type(dim) is int else self.sizes[dim]

    def read(self, value: mlir.Value, place: Place) -> Value:
        """Return an element of a value, or the elements of a vector. At one position it is computed once."""
        if value in self.memory:
            return self.memory[value].read(place)
        key = (value, tuple(map(_key, place)))
        if key not in self._computed:
            self._computed[key] = element(self, self.plan.maker[value], place), place
        return self._computed[key][0]

    def positions(self, value: mlir.Value) -> Iterator[Place]:
        """Loop over the elements of a value: over its leading axes, and the last one in vectors."""
        yield from self._nested([self.size(d) for d in shape_of(value).dims], ())

    def _nested(self, sizes: Sequence[Size], place: Place) -> Iterator[Place]:
        if not sizes:
            yield self._at(place)
        elif isinstance(sizes[0], int) and sizes[0] == 1:
            yield from self._nested(sizes[1:], (*place, 0))
        elif len(sizes) > 1:
            for i in self.k.range(sizes[0]):
                yield from self._nested(sizes[1:], (*place, i))
        else:
            for c in self.k.vectors(sizes[0], f32, unroll=1):
                yield self._at((*place, c))

    def _at(self, place: Place) -> Place:
        self._computed = {}  # values of other positions belong to other blocks
        return place

    # --- values in memory -------------------------------------------------------------------------

    def store(self, values: Sequence[mlir.Value]) -> None:
        """Compute stored values, in order."""
        for value in values:
            op = self.plan.maker[value]
            name = opview.name_of(op)
            if name == "matmul":
                self._matmul(op)
            elif name == "reduce":
                self._reduce(op)
            elif name == "concat":
                self._concat(op)
            else:
                self.copy([value], [[self.memory[value]]], pulled=True)

    def copy(self, values: Sequence[mlir.Value], targets: Sequence[Sequence[Memory]], *, pulled: bool = False) -> None:
        """Compute values of one shape in one loop, each to some targets; with `pulled`, those that are stored there."""
        for place in self.positions(values[0]):
            found = [element(self, self.plan.maker[v], place) if pulled else self.read(v, place) for v in values]
            lanes = lanes_of(place)
            for one, memories in zip(found, targets, strict=True):
                for memory in memories:
                    memory.write(place, one if lanes is None or one.lanes is not None else one.splat(lanes))

    def update(self, op: mlir.Operation) -> None:
        """Replace rows of a carry."""
        assert is_update(op)
        carry, indices, updates = op.operands
        count = shape_of(indices).dims[-1]
        target, adds = self.memory[carry], op.attributes["reduction"].value == "add"
        assert type(count) is int
        rows = shape_of(indices).dims[:-1]
        for row in self._nested_rows([self.size(d) for d in rows], ()):
            index = [self.read(indices, (*row, i)).to(i64).to(INDEX) for i in range(count)]
            is_inside: Value | None = None
            for i, d in zip(index, shape_of(carry).dims, strict=False):
                own = (i >= 0) & (i < self.size(d))
                is_inside = own if is_inside is None else is_inside & own
            assert is_inside is not None
            for _ in self.k.when(is_inside):
                for rest in self._nested([self.size(d) for d in shape_of(carry).dims[count:]], ()):
                    value, place = self.read(updates, (*row, *rest)), (*index, *rest)
                    target.write(place, target.read(place) + value if adds else value)

    def _reduce(self, op: mlir.Operation) -> None:
        (x,), (result,) = op.operands, op.results
        values = opview.attributes_of(op)
        kind, dims = values["kind"], shape_of(x).dims
        dtype, size = shape_of(x).dtype, self.size(dims[-1])
        for place in self._nested_rows([self.size(d) for d in dims[:-1]], ()):
            total = self.k.accumulator("add" if kind in ("sum", "mean") else kind, dtype)
            for c in self.k.vectors(size, dtype):
                self._computed = {}
                value = self.read(x, (*place, c))
                total.include(c, value if value.lanes is not None else value.splat(c.count))
            found = total.result()
            if kind == "mean":
                found = found / self.k.number(size, dtype)
            self.memory[result].write((*place, *(0,) * values["keep_dims"]), found)

    def _nested_rows(self, sizes: Sequence[Size], place: Place) -> Iterator[Place]:
        if not sizes:
            yield place
            return
        for i in self.k.range(sizes[0]):
            yield from self._nested_rows(sizes[1:], (*place, i))

    def _concat(self, op: mlir.Operation) -> None:
        target, axis = self.memory[op.results[0]], op.attributes["axis"].value
        start: Size = 0
        for operand in op.operands:
            for place in self.positions(operand):
                at = place[axis]
                moved = at + start if not isinstance(start, int) or start else at
                target.write((*place[:axis], moved, *place[axis + 1 :]), self.read(operand, place))
            start = start + self.size(shape_of(operand).dims[axis])

    # --- products ---------------------------------------------------------------------------------

    def _pack_matrices(self) -> None:
        """Copy the matrices of `plan.packed` to buffers of `packed_shape`. The columns after the last one are 0."""
        for value, target in self._packed.items():
            inner, columns = shape_of(value).dims
            width = target.shape[-1]
            assert type(inner) is int and type(columns) is int and isinstance(width, int)
            self._pack(self.memory[value], target, (inner, columns, width))

    def _pack(self, source: Memory, target: Buffer, sizes: tuple[int, int, int]) -> None:
        k, (inner, columns, width) = self.k, sizes
        lanes = k.cpu.lanes(f32)
        whole = columns // width
        for p in k.range(whole) if whole else ():
            for d in k.range(inner):
                for u in range(0, width, lanes):
                    target[p, d, k.at(u)] = source.read((d, k.at(p * width + u)))
        if whole * width == columns:
            return
        parts = list(k.vectors(columns, f32, start=whole * width, unroll=width))
        zero = k.constant(0.0, f32, lanes)
        for d in k.range(inner):
            for u in range(width // lanes):
                target[whole, d, k.at(u * lanes)] = source.read((d, parts[u])) if u < len(parts) else zero

    def _matmul(self, op: mlir.Operation) -> None:
        """Compute the columns of a panel of some rows at once, with sums in registers."""
        x, w, y = (self.memory[v] for v in (*op.operands, *op.results))
        rows, inner = (self.size(d) for d in shape_of(op.operands[0]).dims)
        columns, lanes = shape_of(op.operands[1]).dims[-1], self.k.cpu.lanes(f32)
        packed = self._packed.get(op.operands[1])
        of_rows = self.plan.packed.get(op.operands[1], shape_of(op.operands[0]).dims[0])
        many, vectors = product_tile(self.k.cpu, of_rows)
        assert isinstance(columns, int)
        width = vectors * lanes
        whole = columns // width

        def panel(number: Size, places: Sequence[Lanes]) -> None:
            if packed is None:
                source, read = w, places
            else:
                source, read = Memory(packed, (number,)), [self.k.at(u * lanes) for u in range(len(places))]
            self._panel(_PanelProduct(x, source, y, inner, read, places), rows, many)

        for p in self.k.range(whole) if whole else ():
            panel(p, [self.k.at(p * width + u * lanes) for u in range(vectors)])
        if whole * width < columns:
            panel(whole, list(self.k.vectors(columns, f32, start=whole * width, unroll=vectors)))

    def _panel(self, product: _PanelProduct, rows: Size, many: int) -> None:
        whole = rows // many * many
        if not isinstance(whole, int) or whole:
            for i in self.k.range(0, whole, many):
                self._sums(product, i, many)
        if isinstance(whole, int) and isinstance(rows, int):
            if whole < rows:
                self._sums(product, whole, rows - whole)
        else:
            for i in self.k.range(whole, rows):
                self._sums(product, i, 1)

    def _sums(self, product: _PanelProduct, first: Size, many: int) -> None:
        lanes = self.k.cpu.lanes(f32)
        sums = [[self.k.register(self.k.constant(0.0, f32, lanes)) for _ in product.read] for _ in range(many)]
        for d in self.k.range(product.inner):
            factors = [product.w.read((d, c)) for c in product.read]
            for r, of_row in enumerate(sums):
                one = product.x.read((first + r, d)).splat(lanes)
                for total, factor in zip(of_row, factors, strict=True):
                    total.value = one.fma(factor, total.value)
        for r, of_row in enumerate(sums):
            for total, c in zip(of_row, product.written, strict=True):
                product.y.write((first + r, c), total.value)


@dataclass(frozen=True)
class _PanelProduct:
    """A panel of a product: the operands and the result, the size of the sums, and the columns to read and to write."""

    x: Memory
    w: Memory
    y: Memory
    inner: Size
    read: Sequence[Lanes]
    written: Sequence[Lanes]


def _key(position: object) -> object:
    """Return a key of a position that is equal for equal positions of one loop."""
    return position if isinstance(position, int) else id(position)

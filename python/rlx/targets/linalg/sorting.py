"""Lowering rule for argsort: sort blocks by counting, then merge pairs of sorted runs: n·log² n work in log n dispatches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx import mlir
from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import DType, i32
from rlx.ir.shape import Shape
from rlx.numerics.scalars import storage_type
from rlx.targets.linalg.loops import PARALLEL, LoopEmitter, product_of
from rlx.targets.linalg.order import Largest, key_dtype, lowest, order_key
from rlx.targets.linalg.rules import Lowered, lowers
from rlx.targets.linalg.shape import extract

# The block size, a power of two. Each element of a block is compared with all others, which is vector code. 64 would exceed the
# workgroup memory of some GPUs.
_BLOCK = 32


@lowers("argsort")
def argsort(low: LoopEmitter, results: list[Shape], x: Lowered, *, axis: int, descending: bool) -> mlir.Value:
    dims, dtype = x.shape.dims, x.shape.dtype
    position = storage_type(i32)
    if 0 in dims:
        return low.empty(dims, position)
    last = len(dims) - 1
    swapped = [last if i == axis else axis if i == last else i for i in range(len(dims))]
    moved = [dims[p] for p in swapped]
    rows, size = product_of(moved[:-1]), moved[-1]
    flat = low.reshape(low.transpose(x.value, dims, swapped), moved, (rows, size))
    integer = storage_type(key_dtype(dtype))

    def key(value: mlir.Value) -> mlir.Value:
        found = order_key(low, value, dtype)
        return found if descending else low.arith.xori(found, low.constant(-1, integer))

    keys = low.map((rows, size), integer, [Lowered(flat, Shape((rows, size), dtype))], key)
    order = _Descending(low, rows, key_dtype(dtype)).of(keys, size)
    return low.transpose(low.reshape(order, (rows, size), moved), moved, swapped)


class _Descending:
    """Positions of the keys of each row in descending order. The sort is stable.

    Args:
        low: The emitter.
        rows: The number of rows.
        dtype: The dtype of the keys.
    """

    def __init__(self, low: LoopEmitter, rows: Dim, dtype: DType):
        self.low, self.rows, self.dtype = low, rows, dtype
        self.element, self.position = storage_type(dtype), storage_type(i32)

    def of(self, keys: mlir.Value, size: Dim) -> mlir.Value:
        """`[rows, size]` i32 from keys `[rows, size]`."""
        low, rows = self.low, self.rows
        if type(size) is int and size <= _BLOCK:
            return Largest(low, rows, size, self.dtype).ranked(keys, size)
        # The padding comes last: its key is the least, and it is after all equal keys.
        count = (size + _BLOCK - 1) // _BLOCK
        whole = (rows, count * _BLOCK)
        sorted_keys, positions = self._blocks(low.padded(keys, (rows, size), whole, lowest(self.dtype)), count)
        merged = self._merged(sorted_keys, positions, whole[1])
        return extract(low, merged, (0, 0), (rows, size), (1, 1))

    def _blocks(self, keys: mlir.Value, count: Dim) -> tuple[mlir.Value, mlir.Value]:
        """Keys and positions, sorted within each block."""
        low, flat, split = self.low, (self.rows * count, _BLOCK), (self.rows, count, _BLOCK)
        keys = low.reshape(keys, (self.rows, count * _BLOCK), flat)
        places = Largest(low, flat[0], _BLOCK, self.dtype).ranked(keys, _BLOCK)
        keys, places = low.reshape(keys, flat, split), low.reshape(places, flat, split)

        def body(place: mlir.Value, *_: mlir.Value) -> tuple[mlir.Value, mlir.Value]:
            at = low.arith.index_cast(low.index_type, place)
            key = low.tensor.extract(keys, [low.scalar_index(0), low.scalar_index(1), at])
            start = low.arith.muli(low.scalar_index(1), low.size(_BLOCK))
            return key, low.arith.index_cast(self.position, low.arith.addi(start, at))

        outs = [(low.empty(split, kind), (0, 1, 2)) for kind in (self.element, self.position)]
        found = low.generic([(places, (0, 1, 2))], outs, [PARALLEL] * 3, body)
        key, position = (low.reshape(v, split, (self.rows, count * _BLOCK)) for v in found)
        return key, position

    def _merged(self, keys: mlir.Value, positions: mlir.Value, size: Dim) -> mlir.Value:
        """Merge all runs of a row. Each round doubles the length of runs."""
        low, scf = self.low, mlir.dialect("scf")
        op = scf.ForOp(low.size(0), self._rounds(size), low.size(1), [keys, positions])
        with low.ir.InsertionPoint(op.body):
            run, (keys, positions) = low.arith.shli(low.size(_BLOCK), op.induction_variable), op.inner_iter_args
            scf.YieldOp(list(self._with_runs_merged(run, keys, positions, size)))
        return op.results[1]

    def _rounds(self, size: Dim) -> mlir.Value:
        """The number of rounds until a run has the size of a row."""
        low, rounds = self.low, self.low.size(0)
        if type(size) is int:
            return low.size((-(-size // _BLOCK) - 1).bit_length())
        for i in range(_BLOCK.bit_length() - 1, 31):
            longer = low.arith.cmpi(low.arith.CmpIPredicate.sgt, low.size(size), low.size(1 << i))
            rounds = low.arith.addi(rounds, low.arith.index_castui(low.index_type, longer))
        return rounds

    def _with_runs_merged(
        self, run: mlir.Value, keys: mlir.Value, positions: mlir.Value, size: Dim
    ) -> tuple[mlir.Value, mlir.Value]:
        low = self.low

        def body(*_: mlir.Value) -> tuple[mlir.Value, mlir.Value]:
            row = low.scalar_index(0)
            source = _Merge(low, lambda at: low.tensor.extract(keys, [row, at]), run, low.size(size)).source()
            return low.tensor.extract(keys, [row, source]), low.tensor.extract(positions, [row, source])

        outs = [(low.empty((self.rows, size), kind), (0, 1)) for kind in (self.element, self.position)]
        return low.generic([], outs, [PARALLEL] * 2, body)


class _Merge:
    """The source of each element when neighbouring runs are merged, inside a loop body over the elements of rows.

    Args:
        low: The emitter.
        key: Loads the key at an index.
        run: The size of sorted runs, a power of two.
        size: The size of a row; the last runs may be shorter, or missing.
    """

    def __init__(self, low: LoopEmitter, key: Callable[[mlir.Value], mlir.Value], run: mlir.Value, size: mlir.Value):
        self.low, self.key, self.arith = low, key, low.arith
        arith, one = low.arith, low.size(1)
        place = low.scalar_index(1)
        self.place = arith.andi(place, arith.subi(arith.addi(run, run), one))
        self.left = arith.subi(place, self.place)  # the start of the left run
        rest = arith.subi(size, self.left)
        self.left_size = arith.minsi(run, rest)
        self.right_size = arith.minsi(run, arith.subi(rest, self.left_size))
        self.right = arith.addi(self.left, self.left_size)

    def source(self) -> mlir.Value:
        """The index of the source element."""
        low, arith = self.low, self.arith
        from_left = self._taken_from_left()
        from_right = arith.subi(self.place, from_left)
        has_left = arith.cmpi(arith.CmpIPredicate.slt, from_left, self.left_size)
        has_right = arith.cmpi(arith.CmpIPredicate.slt, from_right, self.right_size)
        own = arith.addi(self.left, arith.minsi(from_left, arith.subi(self.left_size, low.size(1))))
        other = arith.addi(self.right, arith.minsi(from_right, arith.subi(self.right_size, low.size(1))))
        missing = arith.xori(has_right, low.constant(1, has_right.type))
        chosen = arith.andi(has_left, arith.ori(missing, self._comes_first(own, other)))
        return arith.select(chosen, own, other)

    def _comes_first(self, left: mlir.Value, right: mlir.Value) -> mlir.Value:
        return self.arith.cmpi(self.arith.CmpIPredicate.sge, self.key(left), self.key(right))

    def _taken_from_left(self) -> mlir.Value:
        """The number of preceding elements from the left run, by bisection."""
        low, arith = self.low, self.arith
        bounds = [arith.maxsi(low.size(0), arith.subi(self.place, self.right_size))]
        bounds.append(arith.minsi(self.place, self.left_size))

        def step(least: mlir.Value, most: mlir.Value) -> list[mlir.Value]:
            middle = arith.shrui(arith.addi(least, most), low.size(1))
            other = arith.subi(arith.subi(self.place, low.size(1)), middle)
            first = self._comes_first(arith.addi(self.left, middle), arith.addi(self.right, other))
            above = arith.addi(middle, low.size(1))
            return [arith.select(first, above, least), arith.select(first, most, middle)]

        return _while(low, bounds, lambda least, most: arith.cmpi(arith.CmpIPredicate.slt, least, most), step)[0]


def _while(
    low: LoopEmitter,
    initial: Sequence[mlir.Value],
    condition: Callable[[mlir.Value, mlir.Value], mlir.Value],
    body: Callable[[mlir.Value, mlir.Value], Sequence[mlir.Value]],
) -> tuple[mlir.Value, ...]:
    """An `scf.while` that carries values or tensors."""
    scf, types = mlir.dialect("scf"), [v.type for v in initial]
    op = scf.WhileOp(types, list(initial))
    before, after = (r.blocks.append(*types, arg_locs=[low.ir.Location.unknown()] * len(types)) for r in op.regions)
    with low.ir.InsertionPoint(before):
        carries = list(before.arguments)
        scf.ConditionOp(condition(*carries), carries)
    with low.ir.InsertionPoint(after):
        scf.YieldOp(list(body(*after.arguments)))
    return tuple(op.results)

"""Lowering rules for cumulative sums, products and maxima."""

from __future__ import annotations

from math import isqrt, prod

from rlx.ir.dtype import DType, c64, c128, f32, f64, i32
from rlx.ir.shape import Shape
from rlx.targets.stablehlo.contraction import accumulator
from rlx.targets.stablehlo.emitter import HloEmitter, Scalar
from rlx.targets.stablehlo.reduce import JOIN, neutral
from rlx.targets.stablehlo.rules import Lowered, lowers

# The longest axis whose elements are combined with those at distances of 1, 2, 4 … by a few elementwise ops.
_FEW = 8
# The length from which an axis is split into segments, if there are few rows.
_SPLIT = 256
# The number of rows that a loop processes at once. Each step reads and writes one element of each row, and the cache lines of
# these rows stay in the first-level cache until the next step.
_ROWS = 128
# The number of neighbouring elements that fill a cache line. If they belong to different sums, a step takes all rows.
_LINE = 16
# The dtypes in which loops accumulate sums and products in order, as the evaluator does.
_WIDE = {f32: f64, c64: c128}


@lowers("cumsum")
def cumsum(emit: HloEmitter, results: list[Shape], x: Lowered, *, axis: int, exclusive: bool) -> Lowered:
    return _scan(emit, x, "sum", axis, exclusive)


@lowers("cumprod")
def cumprod(emit: HloEmitter, results: list[Shape], x: Lowered, *, axis: int, exclusive: bool) -> Lowered:
    return _scan(emit, x, "prod", axis, exclusive)


@lowers("cummax")
def cummax(emit: HloEmitter, results: list[Shape], x: Lowered, *, axis: int) -> Lowered:
    return _scan(emit, x, "max", axis, False)


def _scan(emit: HloEmitter, x: Lowered, kind: str, axis: int, exclusive: bool) -> Lowered:
    running, name = emit.convert(x, accumulator(x.dtype)), JOIN[kind]
    start = neutral(kind, running.dtype)
    if not emit.cpu or x.shape.num_elements == 0 or x.dims[axis] <= _FEW:
        return emit.convert(_by_doubling(emit, running, name, start, axis, exclusive), x.dtype)
    rows = (prod(x.dims[:axis]), x.dims[axis], prod(x.dims[axis + 1 :]))
    if kind == "sum" and x.dtype.is_float and not exclusive:
        start = -0.0  # a sum of -0 is -0
    loops = _Loops(emit, name, start, running.dtype if kind == "max" else _WIDE.get(running.dtype, running.dtype))
    return emit.convert(emit.reshape(loops.scan(emit.reshape(running, rows), exclusive), x.dims), x.dtype)


def _by_doubling(emit: HloEmitter, running: Lowered, name: str, start: Scalar, axis: int, exclusive: bool) -> Lowered:
    if exclusive:
        running = _shifted(emit, running, axis, 1, start)
    distance = 1
    while distance < running.dims[axis]:
        # Each element is the combination of the last `distance` elements. Each step doubles the distance.
        running = emit.elementwise(name, running, _shifted(emit, running, axis, distance, start))
        distance *= 2
    return running


def _shifted(emit: HloEmitter, x: Lowered, axis: int, distance: int, fill: Scalar) -> Lowered:
    """Shift towards the end, and fill with one number."""
    if x.dims[axis] == 0:
        return x
    low, high = [0] * x.rank, [0] * x.rank
    low[axis], high[axis] = distance, -distance
    return emit.pad(x, fill, low, high)


class _Loops:
    """Running reductions of `[rows, size, width]` along the middle axis, as loops over it that write their result in place.

    A step of a loop takes XLA's CPU client 0.2 µs and the time of its elements. Elements are combined in order, except that the
    totals of segments are combined first.

    Args:
        emit: The emitter.
        name: The op that combines two elements.
        start: Its neutral element.
        wide: The dtype of the accumulators.
    """

    def __init__(self, emit: HloEmitter, name: str, start: Scalar, wide: DType):
        self.emit, self.name, self.start, self.wide = emit, name, start, wide

    def scan(self, x: Lowered, exclusive: bool) -> Lowered:
        """The running reductions, like x."""
        emit, (rows, size, width) = self.emit, x.dims
        count = min(_ROWS // rows, isqrt(size)) if size > _SPLIT and width < _LINE else 0
        if count <= 1:
            return self._loop(x, self._neutral((rows, 1, width)), exclusive, x.dtype)
        # Segments as more rows. Each starts with the total of those before it.
        count = next((c for c in range(count, count // 2, -1) if size % c == 0), count)
        length = -(-size // count)
        added = count * length - size
        padded = emit.pad(x, self.start, (0, 0, 0), (0, added, 0)) if added else x
        # XLA would replace the sum of a broadcast by a product, which is -0 for -0.
        segments = emit.barrier(emit.reshape(padded, (rows * count, length, width)))
        totals = emit.reduce(emit.convert(segments, self.wide), self.name, [1], self.start)
        totals = emit.reshape(totals, (rows, count, width))
        before = self._loop(totals, self._neutral((rows, 1, width)), True, self.wide)
        found = self._loop(segments, emit.reshape(before, (rows * count, 1, width)), exclusive, x.dtype)
        return emit.slice_axis(emit.reshape(found, padded.dims), 1, 0, size) if added else emit.reshape(found, x.dims)

    def _neutral(self, dims: tuple[int, ...]) -> Lowered:
        return self.emit.full(dims, self.wide, self.start)

    def _loop(self, x: Lowered, starts: Lowered, exclusive: bool, kind: DType) -> Lowered:
        """The running reductions of rows in a dtype. Each row begins with one of `starts`. Rows are processed in blocks."""
        emit, (rows, size, width) = self.emit, x.dims
        height = rows if width >= _LINE or rows <= 2 * _ROWS else _ROWS
        blocks, part = -(-rows // height), (height, 1, width)

        def step(count: Lowered, total: Lowered, results: Lowered) -> list[Lowered]:
            row, column = emit.like(count, 0), count
            if blocks > 1:
                block = emit.div(count, size)
                column = emit.sub(count, emit.mul(block, size))
                # The last block overlaps the one before it.
                row = emit.min(emit.mul(block, height), rows - height)
                begins = emit.broadcast_in_dim(emit.compare("eq", column, 0), part, ())
                first = emit.dynamic_slice(starts, [row, emit.like(count, 0), emit.like(count, 0)], part)
                total = emit.select(begins, first, total)
            place = [row, column, emit.like(count, 0)]
            following = emit.elementwise(self.name, total, emit.convert(emit.dynamic_slice(x, place, part), self.wide))
            shown = emit.convert(total if exclusive else following, kind)
            written = emit.dynamic_update_slice(results, shown, place)
            return [emit.add(count, 1), following, written]

        def goes_on(count: Lowered, *_: Lowered) -> Lowered:
            return emit.compare("lt", count, blocks * size)

        total = starts if blocks == 1 else self._neutral(part)
        return emit.while_([emit.full((), i32, 0), total, emit.full(x.dims, kind, self.start)], goes_on, step)[2]

"""Running products and maxima."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import NUMBERS, REAL, i32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import Flags, Tensors
from rlx.ir.op.card import Card, OpSample, sample
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.contraction.contraction import adjoint
from rlx.ops.lift import axis_of, cast, check_axis
from rlx.ops.norm import statistics_input
from rlx.ops.reduction.reduce import counted, running


class Cumprod(Card, op="cumprod"):
    def infer(self, x: Shape, *, axis: int, exclusive: bool) -> Shape:
        check_axis(axis, x.rank)
        return x

    def evaluate(self, x: np.ndarray, *, axis: int, exclusive: bool) -> np.ndarray:
        return running(np.multiply, x, axis, exclusive)

    def build(self, b: Builder, x: Tensor, axis: int, exclusive: bool = False) -> Tensor:
        return b.emit("cumprod", (counted(b, x),), axis=axis_of(axis, x.rank), exclusive=exclusive)

    def jvp(
        self, b: Builder, operands: Tensors, tangents: Tensors, results: Tensors, *, axis: int, exclusive: bool
    ) -> Tensor:
        """Apply the product rule as a recurrence, `d ← x·d + before·t`. It does not divide, so factors may be zero."""
        factors, t = (_rows(b, v, axis) for v in (operands[0], tangents[0]))
        before = b.cumprod(factors, 0, exclusive=True)

        def step(d: Tensor, xs: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
            x, moved = xs
            following = d * x + moved
            return following, d if exclusive else following

        moved = b.scan(step, _start(b, factors), (factors, before * t))[1]
        return _back(b, moved, axis, operands[0])

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors, *, axis: int, exclusive: bool
    ) -> rules.Cotangents:
        """Return the product before each factor times the sum after it: `r ← dy + x·r` from the last factor to the first."""
        factors, dy = adjoint(b, _rows(b, operands[0], axis)), _rows(b, cotangents[0], axis)
        before = b.cumprod(factors, 0, exclusive=True)

        def step(r: Tensor, xs: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
            x, cotangent = xs
            if exclusive:
                return r * x + cotangent, r
            reached = r + cotangent
            return reached * x, reached

        after = b.scan(step, _start(b, factors), (factors, dy), reverse=True)[1]
        return (_back(b, before * after, axis, operands[0]),)

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, axis: int, exclusive: bool) -> Tensor:
        return b.emit("cumprod", operands, axis=axis + 1, exclusive=exclusive)

    def samples(self) -> Iterable[OpSample]:
        yield sample((3, 5), axis=1, dtypes=NUMBERS)
        yield sample((5, 3), axis=0, exclusive=True, dtypes=("f32", "i32"))
        yield sample((2, 33), axis=1, dtypes=("f32",))
        yield sample((2, 0), axis=1, exclusive=True, dtypes=("f32",))
        yield sample((2, "n"), axis=1, dtypes=("f32",))


def _rows(b: Builder, x: Tensor, axis: int) -> Tensor:
    """Return `x` with an axis moved to the front; f16 and bf16 are widened to f32."""
    return rules.move_axis(b, statistics_input(b, x), axis, 0)


def _start(b: Builder, rows: Tensor) -> Tensor:
    """Return zeros as the initial carry of a recurrence over rows."""
    return rules.zeros(b, rows.shape.with_dims(rows.shape.dims[1:]))


def _back(b: Builder, rows: Tensor, axis: int, like: Tensor) -> Tensor:
    """Return rows moved back to the axis of `like`, in its dtype."""
    return rules.move_axis(b, cast(b, rows, like.dtype), 0, axis)


class Cummax(Card, op="cummax"):
    def infer(self, x: Shape, *, axis: int) -> Shape:
        check_axis(axis, x.rank)
        return x

    def evaluate(self, x: np.ndarray, *, axis: int) -> np.ndarray:
        return np.maximum.accumulate(x, axis)

    def build(self, b: Builder, x: Tensor, axis: int) -> Tensor:
        return b.emit("cummax", (x,), axis=axis_of(axis, x.rank))

    def jvp(self, b: Builder, operands: Tensors, tangents: Tensors, results: Tensors, *, axis: int) -> Tensor:
        """Return the tangent of the running maximum, or the mean tangent of all elements that have attained it so far.

        JAX weights ties in the order of its tree of maxima. Here ties share evenly, as in a reduction.
        """
        last = results[0].rank - 1
        x, y, t = (
            rules.move_axis(b, v, axis, last) for v in (operands[0], results[0], statistics_input(b, tangents[0]))
        )
        dims = x.shape.dims
        shifted = b.pad(y, [(0, 0)] * last + [(1, 0)], value=-np.inf)
        place = b.iota(dims, axis=last)
        rises = y != b.narrow(shifted, last, 0, dims[last])
        first = b.cummax(b.where(rises, place, 0), last)
        ties = (x == y) & (place != first)

        def since_first(running: Tensor) -> Tensor:
            return running - b.gather_batched(running, first, axis=last)

        tied_sum = since_first(b.cumsum(b.where(ties, t, 0.0), last))
        count = cast(b, since_first(b.cumsum(cast(b, ties, i32), last)) + 1, t.dtype)
        mean = (b.gather_batched(t, first, axis=last) + tied_sum) / count
        return rules.move_axis(b, cast(b, mean, x.dtype), last, axis)

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, axis: int) -> Tensor:
        return b.emit("cummax", operands, axis=axis + 1)

    def samples(self) -> Iterable[OpSample]:
        yield sample((3, 5), axis=1, dtypes=REAL)
        yield sample((2, 33, 2), axis=1, dtypes=("f32",))
        yield sample((2, 0), axis=1, dtypes=("f32",))
        yield sample((2, "n"), axis=1, dtypes=("f32",))

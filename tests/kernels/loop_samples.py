"""Loops whose steps have every op that kernels have code for: products, reductions, elementwise ops, rows read and replaced."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.op.card import OpSample, SampleOperand, sample

_F32 = ("f32",)


def _until_large(b: Builder, x: Tensor, w: Tensor, *, max_iterations: int | None = None) -> object:
    """A condition with a product and a reduction."""
    small = lambda x: b.max(b.reshape(b.sum(x @ w * x, 1), (x.shape.num_elements // x.shape.dims[1],)), 0) < 50.0  # noqa: E731
    return b.while_(small, lambda x: x @ w * 0.5 + x + 0.5, x, max_iterations=max_iterations)


def _counted_rows(b: Builder, table: Tensor, first: Tensor, last: Tensor) -> object:
    def step(i: Tensor, table: Tensor) -> object:
        row = b.gather(table, i) + b.cast(i, "f32")
        return i + 1, b.scatter_nd(table, b.reshape(i + 1, (1,)), row)

    return b.while_(lambda i, table: i < last, step, first, table)


def _rotated(b: Builder, x: Tensor, y: Tensor, count: Tensor) -> object:
    """Carries that become each other, and a step that may not run at all."""
    return b.while_(lambda x, y, i: i > 0, lambda x, y, i: (y + y, x, i - 1), x, y, count, max_iterations=5)


def _rnn(b: Builder, h: Tensor, xs: Tensor, u: Tensor, bias: Tensor, **options: Any) -> object:
    def step(h: Tensor, x: Tensor) -> object:
        h = b.tanh(x + h @ u + bias)
        return h, h

    return b.scan(step, h, xs, **options)


def _lstm(b: Builder, h: Tensor, c: Tensor, xs: Tensor, u: Tensor) -> object:
    size = h.shape.dims[1]

    def step(carry: Any, x: Tensor) -> object:
        h, c = carry
        i, f, g, o = (b.narrow(x + h @ u, 1, n * size, size) for n in range(4))
        c = b.sigmoid(f) * c + b.sigmoid(i) * b.tanh(g)
        h = b.sigmoid(o) * b.tanh(c)
        return (h, c), (h, b.concat([h, c], 1))

    return b.scan(step, (h, c), xs)


def _of_constant_matrix(b: Builder, h: Tensor, xs: Tensor, u: Tensor) -> object:
    """The matrices of the step are computed from outside values, once."""

    def step(h: Tensor, x: Tensor) -> object:
        h = h @ b.transpose(u, (1, 0)) * 0.25 + x @ (u * 0.5)
        return h, b.max(h, 1)

    return b.scan(step, h, xs)


def _normalised(b: Builder, h: Tensor, xs: Tensor) -> object:
    """Carries that are read at other places: a mean over a row, and its first element."""

    def step(h: Tensor, x: Tensor) -> object:
        total = (h - b.mean(h, 1, keepdims=True)) * 0.5 + x
        scaled = total * b.sigmoid(b.narrow(h, 1, 0, 1))
        return b.where(x > 0.0, scaled, total), (b.sum(total, 1), b.min(h, 1, keepdims=True))

    return b.scan(step, h, xs)


def _fibonacci(b: Builder, first: Tensor, second: Tensor) -> object:
    return b.scan(lambda carry, _: ((carry[1], carry[0] * 0.5 + carry[1] * 0.5), carry[0]), (first, second), length=5)


def _rows(b: Builder, table: Tensor, places: Tensor) -> object:
    """Rows of a carry that are read and replaced in place. Positions outside of it are clamped and skipped."""

    def step(table: Tensor, i: Tensor) -> object:
        row = b.gather(table, i) * 0.5 + 1.0
        return b.scatter_nd(table, b.reshape(i + 1, (1,)), row), b.sum(row, 0)

    return b.scan(step, table, places)


def _added_rows(b: Builder, table: Tensor, places: Tensor, count: Tensor) -> object:
    def step(carry: Any, i: Tensor) -> object:
        table, count = carry
        several = b.reshape(b.concat([b.reshape(i, (1,)), b.reshape(count, (1,))], 0), (2, 1))
        rows = b.expand(b.reshape(b.gather(table, i), (1, table.shape.dims[1])), (2, table.shape.dims[1]))
        return (b.scatter_nd(table, several, rows * 0.5, reduction="add"), count + 1), i * count

    return b.scan(step, (table, count), places)


def _row_of_carry(b: Builder, table: Tensor, other: Tensor, row: Tensor, place: Tensor) -> object:
    """Rows and places that are carries themselves, and a carry whose rows are read after they were replaced."""

    def step(carry: Any, _: object) -> object:
        table, other, row, place = carry
        first = b.scatter_nd(table, place, row)
        second = b.scatter_nd(other, place, b.gather(table, b.reshape(place, ())))
        return (first, second, row * 0.5, place + 1), (b.sum(table, 0), row)

    return b.scan(step, (table, other, row, place), length=4)


def _tables_of_each_other(b: Builder, first: Tensor, second: Tensor, places: Tensor) -> object:
    """The rows of one carry are another one that is updated in place as well."""

    def step(carry: Any, i: Tensor) -> object:
        first, second = carry
        return (b.scatter_nd(first, i, second), b.scatter_nd(second, i, first * 0.5)), None

    return b.scan(step, (first, second), places)


def _moved(b: Builder, h: Tensor, xs: Tensor, bias: Tensor) -> object:
    """Ops that only move elements, and numbers that depend on the position."""

    def step(h: Tensor, x: Tensor) -> object:
        rows, columns = h.shape.dims
        turned = b.transpose(b.reshape(x, (rows, 1, columns)), (1, 0, 2))
        numbered = b.cast(b.iota((rows, columns), axis=1, dtype="i32"), "f32") + b.expand(
            b.reshape(bias, (1, columns)), (rows, columns)
        )
        chosen = b.where(numbered > 2.0, h, b.reshape(turned, (rows, columns)))
        return b.abs(chosen) - b.maximum(-h, x), (b.sqrt(b.abs(h)), b.exp(b.minimum(h, 1.0)))

    return b.scan(step, h, xs)


def _kept(b: Builder, h: Tensor, count: Tensor, w: Tensor) -> object:
    """A carry that no step changes, results that no step computes, and a number."""

    def step(carry: Any, _: object) -> object:
        h, count = carry
        return (h, count * 0.5 + 1.0), (w, h, count)

    return b.scan(step, (h, count), length=3)


def scans() -> Iterator[OpSample]:
    """Return samples of `scan`."""
    for batch, hidden in ((1, 1), (1, 17), (1, 70), (2, 3), (3, 8), (4, 31), (5, 24), (9, 50), (8, 100)):
        yield sample((batch, hidden), (3, batch, hidden), (hidden, hidden), (hidden,), build=_rnn, dtypes=_F32)
    open_sizes = ("batch", 12), ("steps", "batch", 12), (12, 12), (12,)
    yield sample(*open_sizes, build=_rnn, dtypes=_F32)
    yield sample(*open_sizes, build=_rnn, reverse=True, dtypes=_F32)
    for batch, hidden in ((1, 20), (6, 5)):
        state = (batch, hidden)
        yield sample(state, state, (4, batch, 4 * hidden), (hidden, 4 * hidden), build=_lstm, dtypes=_F32)
    yield sample((2, 5), (4, 2, 5), (5, 5), build=_of_constant_matrix, dtypes=_F32)
    for columns in (1, 4, 17, 40):
        yield sample((3, columns), (4, 3, columns), build=_normalised, dtypes=_F32)
        yield sample((2, columns), (3, 2, columns), (columns,), build=_moved, dtypes=_F32)
    yield sample(("m", "n"), ("t", "m", "n"), build=_normalised, dtypes=_F32)
    yield sample((2, 9), (2, 9), build=_fibonacci, dtypes=("f32", "f64"))
    places = SampleOperand((6,), "i32", low=-2, high=9)
    yield sample((5, 20), places, build=_rows, dtypes=_F32)
    yield sample(("n", 3), SampleOperand(("t",), "i64", low=-2, high=9), build=_rows, dtypes=_F32)
    yield sample((5, 9), places, SampleOperand((), "i32", low=-2, high=3), build=_added_rows, dtypes=_F32)
    yield sample((2, 3), (), (4,), build=_kept, dtypes=_F32)
    place = SampleOperand((1,), "i32", low=-2, high=4)
    yield sample((5, 9), (5, 9), (9,), place, build=_row_of_carry, dtypes=_F32)
    several = SampleOperand((4, 3, 1), "i32", low=0, high=3)
    yield sample((3, 5), (3, 5), several, build=_tables_of_each_other, dtypes=_F32)


def whiles() -> Iterator[OpSample]:
    """Return samples of `while`."""
    for rows, columns in ((1, 5), (3, 17), (5, 40)):
        x, w = (rows, columns), SampleOperand((columns, columns), low=0.0, high=1.0)
        for most in (None, 0, 1, 3):
            yield sample(SampleOperand(x, low=0.25, high=1.0), w, build=_until_large, dtypes=_F32, max_iterations=most)
    for first, last in ((-3, 2), (0, 4), (2, 9)):
        places = (SampleOperand((), "i32", low=n, high=n + 1) for n in (first, last))
        yield sample((5, 20), *places, build=_counted_rows, dtypes=_F32)
    yield sample((2, 9), (2, 9), SampleOperand((), "i32", low=-1, high=8), build=_rotated, dtypes=("f32", "i32"))
    yield sample(("n", 9), ("n", 9), SampleOperand((), "i32", low=-1, high=8), build=_rotated, dtypes=_F32)

"""Experiments with loops, branches, registers and operands of kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import rlx
from rlx.kernels.buffer import Buffer, Lanes
from rlx.kernels.elements import DTYPES
from rlx.kernels.kernel import Kernel
from tests.kernels.experiments import experiment, like_first, shape

_rng = np.random.default_rng(0)
NUMBERS = DTYPES[:-1]
SIZES = (0, 1, 3, 4, 7, 8, 9, 31, 32, 33, 64, 65, 131)


def floats(*sizes: int) -> np.ndarray:
    return _rng.normal(size=sizes).astype(np.float32)


def rows_of(name: str) -> np.ndarray:
    """A matrix of 3 rows and 13 columns."""
    return (np.arange(39).reshape(3, 13) % 2 if name == "bool" else np.arange(39).reshape(3, 13)).astype(
        rlx.dtype(name).numpy
    )


# --- masks --------------------------------------------------------------------------------------------


def _masks(name: str) -> None:
    def expected(x: np.ndarray) -> list[np.ndarray]:
        y = np.zeros_like(x)
        y[1, 2:9] = x[1, 3:10]
        y[2, 12:] = x[0, 12:]
        return [y]

    @experiment((rows_of(name),), results=like_first, name=f"masks_{name}", expected=expected)
    def masks(k: Kernel, xs: Sequence[Buffer], y: Buffer) -> None:
        (x,) = xs
        for i in k.range(3):
            for j in k.range(13):
                y[i, j] = False if name == "bool" else 0
        for c in k.vectors(9, x.element, start=2):
            y[1, c] = x[1, c + 1]
        for c in k.vectors(k.index(13), x.element, start=12):
            y[2, c] = x[0, c]


for _name in DTYPES:
    _masks(_name)


# --- loops --------------------------------------------------------------------------------------------


def _known_vectors(size: int) -> None:
    @experiment((floats(3, size),), results=like_first, name=f"vectors_of_{size}", expected=lambda x: [x + 1])
    def vectors(k: Kernel, xs: Sequence[Buffer], y: Buffer) -> None:
        (x,) = xs
        for i in k.parallel(3):
            for c in k.vectors(x.shape[1]):
                y[i, c] = x[i, c] + 1


for _size in SIZES:
    _known_vectors(_size)


def _first(x: np.ndarray) -> list[np.ndarray]:
    """Row i with its first i + 1 columns doubled; the others are 0."""
    return [np.where(np.arange(x.shape[1]) <= np.arange(x.shape[0])[:, None], x + x, 0).astype(x.dtype)]


@experiment((floats(3, 40),), results=like_first, expected=_first, name="first_lanes")
def first_lanes(k: Kernel, xs: Sequence[Buffer], y: Buffer) -> None:
    (x,) = xs
    for i in k.parallel(3):
        for c in k.vectors(40):
            y[i, c] = 0.0
        at = k.first_lanes(0, i + 1)
        y[i, at] = x[i, at] + x[i, at]


def _shifted(x: np.ndarray) -> list[np.ndarray]:
    """Rows whose columns from 2 on, except the last, are the left neighbours; the others are 0."""
    y = np.zeros_like(x)
    y[:, 2:-1] = x[:, 1:-2]
    return [y]


@experiment(
    *((floats(2, size),) for size in SIZES), shapes=[(2, "n")], results=like_first, expected=_shifted, name="starts"
)
def starts(k: Kernel, xs: Sequence[Buffer], y: Buffer) -> None:
    """Ranges of a row whose start is after its end if the row is short."""
    (x,) = xs
    columns = x.shape[1]
    for i in k.parallel(2):
        for c in k.vectors(columns, unroll=1):
            y[i, c] = 0.0
        for c in k.vectors(columns - 1, start=k.index(2), unroll=3):
            y[i, c] = x[i, c - 1]


@experiment((floats(2, 1),), results=like_first, expected=lambda x: [x], name="empty_ranges")
def empty_ranges(k: Kernel, xs: Sequence[Buffer], y: Buffer) -> None:
    (x,) = xs
    columns = x.shape[1]
    for i in k.parallel(2):
        y[i, 0] = x[i, 0]
        for c in k.vectors(columns - 1, start=1):
            y[i, c] = 5.0
        for j in k.range(columns, 0):
            y[i, j] = 6.0


@experiment(
    *((floats(size, 5), floats(3)) for size in (1, 2, 7, 8, 9)),
    shapes=[("n", 5), (3,)],
    results=lambda xs: [xs[0], shape(3)],
    expected=lambda x, z: [np.concatenate([x[1:], x[:1]]) * np.float32(2), z],
    name="groups",
)
def groups(k: Kernel, xs: Sequence[Buffer], y: Buffer, other: Buffer) -> None:
    """Several workgroups; what precedes the loop is computed in each of them."""
    x, z = xs
    rows = x.shape[0]
    factor, scratch = k.constant(2.0, rlx.f32), k.scratch(8)
    for n in k.parallel(rows, 3):
        for c in k.vectors(5, unroll=1):
            scratch[c] = x[k.where(n + 1 == rows, 0, n + 1), c]
            y[n, c] = scratch[c] * factor
        for _ in k.when(n == 0):
            for c in k.vectors(3):
                other[c] = z[c]


@experiment(
    *((floats(size),) for size in (0, 1, 2, 9)),
    shapes=[("n",)],
    results=like_first,
    expected=lambda x: [x[::-1]],
)
def reversal(k: Kernel, xs: Sequence[Buffer], y: Buffer) -> None:
    """A number of workgroups that is -1 if there are no elements, or that is not known; a chunk of 0."""
    (x,) = xs
    last = k.index(x.shape[0]) - 1
    for n in k.parallel(last + 1 - (last < 0).to("index"), chunk=last // 4):
        y[last - n] = x[n]


@experiment(
    (np.arange(20, dtype=np.int64),),
    results=lambda xs: [shape(4, dtype="i64")],
    expected=lambda x: [np.array([sum(range(0, 20, 3)), sum(range(2, 19, 4)), 45, 20], np.int64)],
)
def ranges(k: Kernel, xs: Sequence[Buffer], y: Buffer) -> None:
    (x,) = xs
    for row, (start, stop, step) in enumerate(((0, 20, 3), (2, k.index(19), 4), (k.index(5), 11, x[1]))):
        total = k.register(0, rlx.i64)
        for i in k.range(start, stop, step):
            total.value = total.value + x[i]
        y[row] = total.value
    count = k.register(0, "index")
    for i in k.range(x[4]):
        for _ in k.range(i, 20):
            for _ in k.when((i == 1) | (i == 19)):
                continue
            count.value = count.value + (i == 0).to("index")
    y[3] = count.value.to(rlx.i64)


@experiment(
    *((np.array([n], np.int64),) for n in (1, 2, 7, 27)),
    results=lambda xs: [shape(2, dtype="i64")],
    expected=lambda x: [_collatz(int(x[0]))],
)
def repeats(k: Kernel, xs: Sequence[Buffer], y: Buffer) -> None:
    """Collatz's sequence; and a loop in a loop in a branch."""
    n, steps = k.register(xs[0][0]), k.register(0, "i64")
    for _ in k.repeat():
        for _ in k.when(n.value != 1):
            n.value = k.where(n.value % 2 == 0, n.value // 2, n.value * 3 + 1)
            steps.value = steps.value + 1
        k.stop_unless(n.value != 1)
    y[0] = steps.value
    total, i = k.register(0, "i64"), k.register(0, "i64")
    for _ in k.when(xs[0][0] > 1):
        for _ in k.repeat():
            j = k.register(0, "i64")
            for _ in k.repeat():
                total.value = total.value + 1
                j.value = j.value + 1
                k.stop_unless(j.value < 3)
            i.value = i.value + 1
            k.stop_unless(i.value < 4)
    y[1] = total.value


def _collatz(n: int) -> np.ndarray:
    start, steps = n, 0
    while n != 1:
        n, steps = (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1
    return np.array([steps, 12 if start > 1 else 0], np.int64)


# --- registers, accumulators --------------------------------------------------------------------------


@experiment(
    *((floats(size),) for size in SIZES),
    shapes=[("n",)],
    results=lambda xs: [shape(6), shape(1, dtype="bool")],
)
def registers(k: Kernel, xs: Sequence[Buffer], y: Buffer, flag: Buffer) -> None:
    """Registers of vectors, conditions and positions, assigned in loops and branches."""
    (x,) = xs
    lanes = k.cpu.lanes(rlx.f32)
    greatest, where_, any_, mask = (
        k.register(float("-inf")),
        k.register(-1, "index"),
        k.register(False, rlx.bool_),
        k.register(k.constant(False, "bool", lanes)),
    )
    total = k.register(0.0, lanes=lanes)
    for i in k.range(x.shape[0]):
        for _ in k.when(x[i] > greatest.value):
            greatest.value, where_.value = x[i], i
        any_.value = any_.value | (x[i] < -1.0)
    for c in k.vectors(x.shape[0]):
        value = x[c] if c.mask is None else k.where(c.mask, x[c], 0.0)
        total.value = total.value + value
        mask.value = mask.value | (value > 1.5)
    y[0], y[1], y[2] = greatest.value, where_.value.to(rlx.f32), total.value.sum()
    y[3] = k.any_lane(mask.value).to(rlx.f32)
    y[4] = total.value.lane(0)
    y[5] = total.value.lane(k.index(lanes - 1))
    flag[0] = any_.value


def _accumulators(name: str) -> None:
    dtype = rlx.dtype(name)
    kinds = ("add", "mul", "max", "min", "fast_max")

    def expected(x: np.ndarray) -> list[np.ndarray]:
        joins = (np.add, np.multiply, np.maximum, np.minimum, np.maximum)
        first = {"max": -np.inf, "min": np.inf} if dtype.is_float else {}
        with np.errstate(all="ignore"):
            return [np.array([f.reduce(x, dtype=x.dtype, initial=_neutral(f, x, first)) for f in joins], x.dtype)]

    runs = [((np.arange(size) * 37 % 11 + 1) * (1 if size < 30 else 3)).astype(dtype.numpy) for size in SIZES]

    @experiment(
        *((x,) for x in runs),
        shapes=[("n",)],
        results=lambda xs: [shape(5, dtype=name)],
        name=f"accumulators_{name}",
        expected=expected,
        tolerance=1e-5 if dtype.is_float else 0,
    )
    def accumulators(k: Kernel, xs: Sequence[Buffer], y: Buffer) -> None:
        (x,) = xs
        for row, kind in enumerate(kinds):
            total = k.accumulator(kind, name, slots=1 + row % 4)
            for c in k.vectors(x.shape[0], name):
                total.include(c, x[c])
            y[row] = total.result()


def _neutral(f: np.ufunc, x: np.ndarray, first: dict[str, float]) -> object:
    if x.size or f in (np.add, np.multiply):
        return 0 if f is np.add else 1 if f is np.multiply else x[0]
    if first:
        return first["max" if f is np.maximum else "min"]
    info = np.iinfo(x.dtype)
    return info.min if f is np.maximum else info.max


for _name in NUMBERS:
    _accumulators(_name)


@experiment(
    *((np.array([1, value, 3, 2, 5, 4, 0, 9, 8], np.float32),) for value in (7, np.nan, np.inf, -np.inf, -0.0)),
    results=lambda xs: [shape(4)],
    expected=lambda x: [_reduced(x)],
    name="nan_in_rows",
)
def nan_in_rows(k: Kernel, xs: Sequence[Buffer], y: Buffer) -> None:
    (x,) = xs
    for row, kind in enumerate(("max", "min", "add", "mul")):
        total = k.accumulator(kind)
        for c in k.vectors(9):
            total.include(c, x[c])
        y[row] = total.result()


def _reduced(x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.array([x.max(), x.min(), x.sum(), x.prod()], np.float32)


# --- lanes --------------------------------------------------------------------------------------------


def _lanes(name: str) -> None:
    """Shuffles, lanes and joined lanes of vectors of four and eight numbers."""

    def expected(x: np.ndarray) -> list[np.ndarray]:
        a, b = x[:4], x[4:8]
        joined = [a.sum(dtype=x.dtype), a.max(), a[2], np.array([5, 0, 2, 1]).astype(x.dtype)[3]]
        both = np.concatenate([a, b])
        return [np.concatenate([both[[7, 0, 3, 4]], both[[0, 4, 1, 5]], both[[1]], np.stack(joined).astype(x.dtype)])]

    @experiment(
        (np.array([3, 1, 4, 1, 5, 9, 2, 6]).astype(rlx.dtype(name).numpy),),
        results=lambda xs: [shape(13, dtype=name)],
        name=f"lanes_{name}",
        expected=expected,
    )
    def lanes(k: Kernel, xs: Sequence[Buffer], y: Buffer) -> None:
        (x,) = xs
        a, b = x[Lanes(0, 4)], x[Lanes(4, 4)]
        y[Lanes(0, 4)] = a.shuffle(b, [7, 0, 3, 4])
        y[Lanes(4, 4)] = a.shuffle(b, (0, 4, 1, 5))
        y[8] = a.shuffle(a, [1]).lane(0)
        y[9], y[10] = a.sum(), a.joined(lambda p, q: p.maximum(q))
        y[11] = a.lane(k.index(2))
        y[12] = k.constants([5, 0, 2, 1], name).lane(3)


for _name in NUMBERS:
    _lanes(_name)


@experiment(
    (floats(37), floats(37), floats(37)),
    results=lambda xs: [shape(2, 37)],
    expected=lambda a, b, c: [np.stack([a * b + c, np.sqrt(np.abs(a)) * 2 + c])],
    tolerance=1e-5,
)
def fused(k: Kernel, xs: Sequence[Buffer], y: Buffer) -> None:
    a, b, c = xs
    for p in k.vectors(37):
        y[0, p] = a[p].fma(b[p], c[p])
        y[1, p] = abs(a[p]).sqrt().fma(2, c[p])


@experiment(
    *((x, x.astype(np.float64)) for x in [np.array([0.1, 3, -2.5, 1e10, 5, 7, 8, 9, 10], np.float32)]),
    results=lambda xs: [shape(9), shape(9, dtype="f64")],
    expected=lambda a, b: [a * a + 1, b * b + 1],
    tolerance=1e-6,
)
def fused_scalars(k: Kernel, xs: Sequence[Buffer], y: Buffer, z: Buffer) -> None:
    for i in k.range(9):
        y[i] = xs[0][i].fma(xs[0][i], 1)
        z[i] = xs[1][i].fma(xs[1][i], 1.0)


# --- operands and results -----------------------------------------------------------------------------


@experiment(
    *((floats(2, size, 6),) for size in (0, 1, 5)),
    shapes=[(2, "n", 6)],
    results=lambda xs: [xs[0], rlx.Shape([12], rlx.f32)],
    expected=lambda x: [x * np.float32(2), x.sum(1).reshape(-1)],
    tolerance=1e-5,
)
def views(k: Kernel, xs: Sequence[Buffer], doubled: Buffer, sums: Buffer) -> None:
    (x,) = xs
    rows, out, matrix = x.rows(), doubled.rows(), sums.view(2, 3, 2)
    count = x.shape[1]
    for i in k.parallel(2):
        for j in k.range(count):
            for c in k.vectors(6):
                out[i * count + j, c] = rows[i * count + j, c] * 2
        half = x.view(2, count, 3, 2)
        for a in k.range(3):
            for b in k.range(2):
                total = k.register(0.0)
                for j in k.range(count):
                    total.value = total.value + half[i, j, a, b]
                matrix[i, a, b] = total.value


@experiment(
    *((floats(size),) for size in (0, 1, 9)),
    shapes=[("n",)],
    results=like_first,
    expected=lambda x: [x[::-1]],
    workspace=lambda case: [case.tensors[0], rlx.Shape((3,), "i8")],
)
def with_workspace(k: Kernel, xs: Sequence[Buffer], y: Buffer, memory: Buffer, more: Buffer) -> None:
    (x,) = xs
    size = x.shape[0]
    more[2] = 1
    for c in k.vectors(size):
        memory[c] = x[c]
    for i in k.range(size):
        y[size - 1 - i] = memory[i] * more[2].to(rlx.f32)


@experiment(
    (np.array(3.5, np.float32), np.zeros((0, 3), np.float32)),
    results=lambda xs: [xs[0], xs[1]],
    expected=lambda x, z: [x + 1, z],
)
def without_axes(k: Kernel, xs: Sequence[Buffer], y: Buffer, empty: Buffer) -> None:
    y[()] = xs[0][()] + 1

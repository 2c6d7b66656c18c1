"""Experiments with values of kernels: operations, comparisons, conversions, lanes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import rlx
from rlx.kernels.buffer import Buffer
from rlx.kernels.elements import DTYPES, limits
from rlx.kernels.functions import exp, log
from rlx.kernels.kernel import Kernel
from rlx.kernels.operations import OPERATIONS
from rlx.kernels.values import Value
from rlx.numerics.arithmetic import COMPARISONS
from tests.kernels.experiments import experiment, shape

INTEGERS = DTYPES[2:-1]
Pair = Callable[[Any, Any], Any]
METHODS: dict[str, Pair] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "floordiv": lambda a, b: a // b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "shl": lambda a, b: a << b,
    "shr": lambda a, b: a >> b,
    "maximum": lambda a, b: a.maximum(b),
    "minimum": lambda a, b: a.minimum(b),
    "neg": lambda a, b: -a,
    "abs": lambda a, b: abs(a),
    "sqrt": lambda a, b: a.sqrt(),
    "trailing_zeros": lambda a, b: a.trailing_zeros(),
}
UNARY = ("neg", "abs", "sqrt", "trailing_zeros")
RELATIONS: dict[str, Pair] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
# Operations with numbers: of kernels, and of arrays.
FLOAT_FORMS: list[Pair] = [
    lambda a, b: a + 1,
    lambda a, b: 2.5 - a,
    lambda a, b: 1 / a,
    lambda a, b: a * np.float32(0.5),
    lambda a, b: np.float32(3) * a,
    lambda a, b: -a + abs(b),
    lambda a, b: 1 / (a * b),  # the sign of a zero
    lambda a, b: 1 / -a,
]
INTEGER_FORMS: list[Pair] = [
    lambda a, b: a + 1,
    lambda a, b: 3 - a,
    lambda a, b: a * 2,
    lambda a, b: a << 1,
    lambda a, b: a >> 2,
    lambda a, b: 1 << b,
    lambda a, b: 5 & a,
    lambda a, b: a | 5,
    lambda a, b: a ^ 1,
    lambda a, b: ~a,
    lambda a, b: -a,
    lambda a, b: np.uint8(3) + a,
]
# Divisions are computed lane by lane, so the compiler takes long for vectors of many lanes.
DIVISIONS: list[Pair] = [
    lambda a, b: a // b,
    lambda a, b: a // 3,
    lambda a, b: a % 3,
    lambda a, b: 7 // a,
    lambda a, b: a // 0,
]
SIGNED_FORMS: list[Pair] = [lambda a, b: a + -2]
SIGNED_DIVISIONS: list[Pair] = [lambda a, b: a // -1, lambda a, b: a // -3, lambda a, b: a % -3]


def edges(name: str) -> np.ndarray:
    """Numbers at the limits of a dtype. IREE flushes denormals, so results must not be any."""
    dtype = rlx.dtype(name)
    if dtype.is_bool:
        return np.array([False, True])
    if dtype.is_float:
        return np.array([0.0, -0.0, 1, -1.5, np.inf, -np.inf, np.nan, 1e30, 2.75], dtype.numpy)
    least, greatest = limits(dtype)
    return np.array([0, 1, 2, least, greatest, greatest - 1, 3, greatest // 2 + 1, -1 if least else 7, 31], dtype.numpy)


def pairs(name: str) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of edges, and some more, so that the last vector is masked."""
    a, b = (np.array(part) for part in zip(*itertools.product(edges(name), repeat=2), strict=True))
    return np.append(a, a[:3]), np.append(b, b[1:4])


def _forms(name: str) -> tuple[list[Pair], list[Pair], list[Pair]]:
    """The operations on a dtype: of kernels, divisions of kernels, and all of NumPy."""
    dtype = rlx.dtype(name)
    chosen = [n for n, operation in OPERATIONS.items() if operation.mlir_op(dtype) and n != "floordiv"]
    numpy: list[Pair] = [lambda a, b, n=n: OPERATIONS[n].numpy(*((a,) if n in UNARY else (a, b))) for n in chosen]
    more = [lambda a, b: ~a] if dtype.is_bool else FLOAT_FORMS if dtype.is_float else INTEGER_FORMS
    is_integer = not (dtype.is_bool or dtype.is_float)
    divisions = [*DIVISIONS, *(SIGNED_DIVISIONS if dtype.is_signed else [])] if is_integer else []
    more = [*more, *(SIGNED_FORMS if dtype.is_signed and is_integer else [])]
    written = [partial(_with_arrays, form) for form in (*more, *divisions)]
    return [METHODS[n] for n in chosen] + more, divisions, numpy + written


def _with_arrays(form: Pair, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Evaluate a form on arrays; their numbers are of the same dtype."""
    return np.asarray(form(a, b)).astype(a.dtype)


def _chosen(a: Any, b: Any, where: Any) -> list[Any]:
    return [where(a < b, a, b), where(a > b, a, b), where(a < b, a, b), where(a == b, b, 1)]


def _operations(name: str) -> None:
    ours, divisions, numpy = _forms(name)
    a, b = pairs(name)
    size, first, count = len(a), len(ours), len(ours) + len(divisions) + 4

    def compute(a: Value, b: Value, k: Kernel) -> list[Value]:
        return [form(a, b) for form in ours]

    def compute_more(a: Value, b: Value, k: Kernel) -> list[Value]:
        greater = [k.where(a < b, a, b), a.greater_or_second(b), a.less_or_second(b), k.where(a == b, b, 1)]
        return [form(a, b) for form in divisions] + greater

    def expected(a: np.ndarray, b: np.ndarray) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            numbers = np.stack([f(a, b) for f in numpy] + [x.astype(a.dtype) for x in _chosen(a, b, np.where)])
            relations = np.stack([COMPARISONS[kind](a, b) for kind in RELATIONS])
        return [numbers, relations, numbers, relations]

    @experiment(
        (a, b),
        results=lambda xs: [shape(count, size, dtype=name), shape(6, size, dtype="bool")] * 2,
        name=f"operations_{name}",
        expected=expected,
    )
    def operations(
        k: Kernel, xs: Sequence[Buffer], vectors: Buffer, masks: Buffer, scalars: Buffer, bools: Buffer
    ) -> None:
        a, b = xs
        for _ in k.parallel(1):
            for c in k.vectors(size, a.element, unroll=1):
                for row, value in enumerate(compute(a[c], b[c], k)):
                    vectors[row, c] = value
                for row, relation in enumerate(RELATIONS.values()):
                    masks[row, c] = relation(a[c], b[c])
            for c in k.vectors(size, "f64", unroll=1):
                for row, value in enumerate(compute_more(a[c], b[c], k), first):
                    vectors[row, c] = value
            for i in k.range(size):
                for row, value in enumerate([*compute(a[i], b[i], k), *compute_more(a[i], b[i], k)]):
                    scalars[row, i] = value
                for row, relation in enumerate(RELATIONS.values()):
                    bools[row, i] = relation(a[i], b[i])


def _indices() -> None:
    plain, divisions, numpy = _forms("i64")
    ours = plain + divisions
    a, b = pairs("i64")
    size, count = len(a), len(ours)

    def expected(a: np.ndarray, b: np.ndarray) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            return [np.stack([f(a, b) for f in numpy]), np.stack([COMPARISONS[kind](a, b) for kind in RELATIONS])]

    @experiment(
        (a, b),
        results=lambda xs: [shape(count, size, dtype="i64"), shape(6, size, dtype="bool")],
        name="operations_index",
        expected=expected,
    )
    def operations(k: Kernel, xs: Sequence[Buffer], numbers: Buffer, bools: Buffer) -> None:
        for i in k.range(size):
            a, b = (x[i].to("index") for x in xs)
            for row, form in enumerate(ours):
                numbers[row, i] = form(a, b).to(rlx.i64)
            for row, relation in enumerate(RELATIONS.values()):
                bools[row, i] = relation(a, b)


def _conversions(name: str) -> None:
    """Convert edges; to integers, floats in their range."""
    source = rlx.dtype(name)
    targets = DTYPES[:-1]
    small = np.resize(np.array([0, 1, 2.5, 99.99, 100], source.numpy), 21)
    numbers = small if source.is_float else np.resize(edges(name), 21)
    wide = np.resize(edges(name), 21)

    def operand(target: str, numbers: Any, wide: Any) -> Any:
        signed = rlx.dtype(target).is_signed and source.is_float
        return wide if rlx.dtype(target).is_float else -numbers if signed else numbers

    def expected(numbers: np.ndarray, wide: np.ndarray) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            made = [operand(t, numbers, wide).astype(rlx.dtype(t).numpy) for t in targets]
        return [np.stack([a, a]) for a in made]

    @experiment(
        (numbers, wide),
        results=lambda xs: [shape(2, 21, dtype=t) for t in targets],
        name=f"conversions_{name}",
        expected=expected,
    )
    def conversions(k: Kernel, xs: Sequence[Buffer], *results: Buffer) -> None:
        for c in k.vectors(21, "f64"):
            for target, result in zip(targets, results, strict=True):
                result[0, c] = operand(target, xs[0][c], xs[1][c]).to(target)
        for i in k.range(21):
            for target, result in zip(targets, results, strict=True):
                result[1, i] = operand(target, xs[0][i], xs[1][i]).to(target)


def _index_conversions(name: str) -> None:
    numbers = np.resize(edges(name) if name not in ("f32", "f64") else np.array([0, 2.5, 7, -3]), 21)
    numbers = numbers.astype(rlx.dtype(name).numpy)

    @experiment(
        (numbers,),
        results=lambda xs: [shape(21, dtype="i64"), shape(21, dtype="i64"), *[shape(21, dtype=t) for t in DTYPES[:-1]]],
        name=f"index_conversions_{name}",
        expected=lambda x: (
            [x.astype(np.int64)] * 2 + [x.astype(np.int64).astype(rlx.dtype(t).numpy) for t in DTYPES[:-1]]
        ),
    )
    def conversions(k: Kernel, xs: Sequence[Buffer], vectors: Buffer, scalars: Buffer, *others: Buffer) -> None:
        for c in k.vectors(21, "f64"):
            vectors[c] = xs[0][c].to("index").to("i64")
        for i in k.range(21):
            scalars[i] = xs[0][i].to("index").to("i64")
            for other in others:
                other[i] = xs[0][i].to("index").to(other.element)


def _bits(size: int) -> None:
    """See dtypes of a size as each other."""
    group = [t for t in DTYPES[:-1] if rlx.dtype(t).itemsize == size]
    forms = [(a, b) for a in group for b in group]
    arrays = [np.resize(np.array([0, 1, 2, 101, 100], rlx.dtype(a).numpy), 9) for a, _ in forms]

    @experiment(
        arrays,
        results=lambda xs: [shape(9, dtype=b) for _, b in forms],
        name=f"bits_{size}",
        expected=lambda *xs: [x.view(rlx.dtype(b).numpy) for x, (_, b) in zip(xs, forms, strict=True)],
    )
    def bits(k: Kernel, xs: Sequence[Buffer], *results: Buffer) -> None:
        for x, y in zip(xs, results, strict=True):
            y[0] = x[0].bits(y.element)
            for c in k.vectors(9, y.element, start=1):
                y[c] = x[c].bits(y.element.name)


def _products_of_bytes(lanes: int) -> None:
    """Sums of products of bytes, entries of tables of bytes, and joined lanes; with the ends of the ranges."""
    rng = np.random.default_rng(lanes)
    a, b = rng.integers(0, 256, lanes).astype(np.uint8), rng.integers(-128, 128, lanes).astype(np.int8)
    a[:8], b[:4], b[4:8] = 255, -128, 127
    table = rng.integers(0, 256, 16).astype(np.uint8)
    numbers = [int(v) for v in rng.integers(0, 256, 16)]

    def expected(a: np.ndarray, b: np.ndarray, table: np.ndarray) -> list[np.ndarray]:
        products = a.astype(np.int32) * b
        words = a.view(np.int32)
        indices = a & 15
        return [
            products.reshape(-1, 4).sum(-1, dtype=np.int32) + words,
            table[indices],
            np.array(numbers, np.uint8)[indices],
        ]

    @experiment(
        (a, b, table),
        results=lambda xs: [shape(lanes // 4, dtype="i32"), shape(lanes, dtype="u8"), shape(lanes, dtype="u8")],
        name=f"products_of_{lanes}_bytes",
        expected=expected,
    )
    def products(k: Kernel, xs: Sequence[Buffer], y: Buffer, of_value: Buffer, of_numbers: Buffer) -> None:
        steps = xs[0][k.at(0, "u8", lanes)]
        words = steps.bits("i32")
        y[k.at(0, "i32", lanes // 4)] = words.bits("u8").quad_products(xs[1][k.at(0, "i8", lanes)], words)
        of_value[k.at(0, "u8", lanes)] = (steps & 15).table_entries(xs[2][k.at(0, "u8", 16)])
        of_numbers[k.at(0, "u8", lanes)] = (steps & 15).table_entries(numbers)


@experiment(
    (np.arange(7, dtype=np.float32),),
    results=lambda xs: [shape(4), shape(8, dtype="u8")],
    expected=lambda x: [x[[3, 0, 6, 3]], x[[3, 0]].view(np.uint8)],
)
def vector_of_scalars(k: Kernel, xs: Sequence[Buffer], y: Buffer, z: Buffer) -> None:
    y[k.at(0, "f32", 4)] = k.vector([xs[0][i] for i in (3, 0, 6, 3)])
    z[k.at(0, "u8", 8)] = k.vector([xs[0][3], xs[0][0]]).bits("u8")


for _lanes in (16, 32, 64, 128):
    _products_of_bytes(_lanes)
for _name in DTYPES:
    _operations(_name)
    _conversions(_name)
    _index_conversions(_name)
_indices()
for _size in (1, 2, 4, 8):
    _bits(_size)


@experiment(
    (np.exp(np.linspace(-87, 88, 1001)).astype(np.float32), np.array([0, -1, np.inf, np.nan, 1, 2, 0.5], np.float32)),
    results=lambda xs: [shape(2, 1001), shape(7)],
    tolerance=2e-5,
    expected=lambda x, special: [np.stack([_log(x), np.exp(_log(x))]), _log(special)],
)
def functions(k: Kernel, xs: Sequence[Buffer], y: Buffer, z: Buffer) -> None:
    for c in k.vectors(1001):
        y[0, c] = log(xs[0][c])
        y[1, c] = exp(y[0, c])
    for c in k.vectors(7):
        z[c] = log(xs[1][c])


def _log(x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.log(x)

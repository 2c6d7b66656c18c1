"""Experiments with the memory of kernels: scratch memory, tables, complex numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import rlx
from rlx.kernels.buffer import Buffer, product
from rlx.kernels.elements import DTYPES
from rlx.kernels.kernel import Kernel
from tests.kernels.experiments import experiment, like_first, shape
from tests.kernels.experiments_of_control import NUMBERS, rows_of


def _scratch(name: str) -> None:
    stored = "i64" if name == "index" else name

    @experiment((rows_of(stored),), results=like_first, name=f"scratch_{name}", expected=lambda x: [x[:, ::-1]])
    def scratch(k: Kernel, xs: Sequence[Buffer], y: Buffer) -> None:
        (x,) = xs
        memory = k.scratch(2, 13, element=name)
        for i in k.parallel(3):
            for c in k.vectors(13, x.element):
                memory[1, c] = x[i, c].to(name) if name == "index" else x[i, c]
            for j in k.range(13):
                value = memory[1, 12 - j]
                y[i, j] = value.to(stored) if name == "index" else value


for _name in (*DTYPES, "index"):
    _scratch(_name)


def _tables(name: str) -> None:
    dtype = rlx.dtype(name)
    numbers = np.arange(39).reshape(3, 13) * 5 % 41 - (7 if dtype.is_signed or dtype.is_float else 0)
    positions = np.array([[2, 0, 1], [12, 3, 3]], np.int32)

    @experiment(
        (positions,),
        results=lambda xs: [shape(3, dtype=name), shape(3, 13, dtype=name)],
        name=f"tables_{name}",
        expected=lambda x: [numbers[x[0], x[1]].astype(dtype.numpy), (numbers[x[0]] + 1).astype(dtype.numpy)],
    )
    def tables(k: Kernel, xs: Sequence[Buffer], y: Buffer, rows: Buffer) -> None:
        (x,) = xs
        table, ones = k.table(numbers, name), k.table(np.ones(13), name)
        for i in k.parallel(3):
            y[i] = table[x[0, i], x[1, i]]
            again = k.table(numbers, name)  # the same memory
            for c in k.vectors(13, name):
                rows[i, c] = again[x[0, i], c] + ones[c]


for _name in NUMBERS:
    _tables(_name)


@experiment(
    (np.random.default_rng(0).normal(size=(5, 4, 2)).astype(np.float32).view(np.complex64)[..., 0],),
    shapes=[("n", 4)],
    results=lambda xs: [xs[0]],
    expected=lambda x: [x.conj()],
)
def complex_numbers(k: Kernel, xs: Sequence[Buffer], y: Buffer) -> None:
    """Operands and results of complex numbers, element by element and in vectors."""
    (x,) = xs
    assert x.shape[1:] == (4, 2) and x.element is rlx.f32
    numbers, results = x.view(product(x.shape[:1]) * 4, 2), y.rows()
    for i in k.parallel(x.shape[0]):
        for j in k.range(4):
            y[i, j, 0] = x[i, j, 0]
            results[i * 4 + j, 1] = -numbers[i * 4 + j, 1]

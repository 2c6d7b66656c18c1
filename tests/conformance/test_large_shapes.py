"""Products, reductions and movements of large and high-rank tensors.

Compilers pass some of them to libraries, depending on size, rank and dtype. The values make results exact in every
order of summation, so the bits must be those of the evaluator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import rlx
from tests.conformance.compiled_xla import Joint
from tests.conformance.failures import Failures
from tests.drawing import drawn, graph_seed

_DTYPES = ("f32", "f32", "f32", "f16", "bf16", "f64", "i8", "u8", "i32", "u32")
_LONG, _SHORT = (1, 2, 3, 5, 8, 17, 64, 300, 4097, 32769), (1, 2, 3, 8, 8, 16)
_LARGEST, _MOST_WORK = 1 << 17, 1 << 22
# 16-bit dtypes have few elements: their sums in f32 are exact although their products are rounded.
_LARGEST_HALF = 1 << 14
_GRAPHS = 32


class _Random:
    """A random graph with one result, and values for its inputs."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.dtype = rlx.dtype(str(self.rng.choice(_DTYPES)))
        self.is_half = self.dtype.name in ("f16", "bf16")
        self.values: dict[str, np.ndarray] = {}
        self.graph: Any = rlx.Graph()
        make = self.rng.choice(3, p=(0.5, 0.35, 0.15))
        self.graph.set_outputs([(self.reduced_product, self.matrix_product, self.elementwise)[make]()])

    def likely(self, chance: float) -> bool:
        return bool(self.rng.random() < chance)

    def input(self, dims: Sequence[int]) -> Any:
        values = self.rng.integers(-7, 8, dims) * (1 + 2.0**-7) if self.is_half else self.rng.integers(-15, 16, dims)
        name = f"x{len(self.values)}"
        with np.errstate(invalid="ignore"):
            self.values[name] = values.astype(np.int64 if self.dtype.is_integer else np.float32).astype(
                self.dtype.numpy
            )
        return self.graph.input(name, tuple(dims), self.dtype)

    def dims(self) -> list[int]:
        """Return few axes, some of them long, or many short axes."""
        rank = int(self.rng.integers(1, 9))
        while True:
            dims = [int(size) for size in self.rng.choice(_SHORT if rank > 4 else _LONG, rank)]
            if math.prod(dims) <= (_LARGEST_HALF if self.is_half else _LARGEST):
                return dims

    def permuted(self, x: Any) -> Any:
        return self.graph.transpose(x, [int(axis) for axis in self.rng.permutation(x.rank)])

    def reduced(self, x: Any) -> Any:
        number = 1 if self.likely(0.6) else int(self.rng.integers(1, x.rank + 1))
        axes = sorted(map(int, self.rng.choice(x.rank, number, replace=False)))
        return getattr(self.graph, str(self.rng.choice(["sum", "sum", "max", "min"])))(x, axes)

    def reduced_product(self) -> Any:
        dims = self.dims()
        x = self.input(dims) * self.input([1 if self.likely(0.1) else size for size in dims])
        x = self.permuted(x) if self.likely(0.3) else x
        return self.reduced(self.graph.cast(x, "f32") if self.dtype.is_float and self.likely(0.5) else x)

    def matrix_product(self) -> Any:
        m, k, n = (int(size) for size in self.rng.choice((1, 2, 3, 8, 17, 64, 300, 32769), 3))
        while m * k * n > _MOST_WORK or (self.is_half and k * max(m, n) > _LARGEST_HALF):
            m, k, n = m // 2 + 1, k // 2 + 1, n // 2 + 1
        batch = [int(size) for size in self.rng.integers(1, 4, self.rng.integers(0, 3))]
        sides = []
        for rows, columns in ((m, k), (k, n)):
            is_turned = self.likely(0.5)
            x = self.input([*batch, *((columns, rows) if is_turned else (rows, columns))])
            sides.append(self.graph.swapaxes(x, -1, -2) if is_turned else x)
        product = self.graph.matmul(*sides)
        return self.reduced(product) if self.likely(0.6) else product

    def elementwise(self) -> Any:
        dims = self.dims()
        x, y = self.input(dims), self.input(dims)
        return self.permuted(x * y - x)


@drawn("share", range(8), of_each=2)
def test_bits_are_those_of_the_evaluator(share: int, seed: int) -> None:
    made = [_Random(graph_seed(seed, share * _GRAPHS + i)) for i in range(_GRAPHS)]
    joint, failures = Joint([m.graph for m in made]), Failures()
    for program in joint.programs:
        failures.expect(str(program.graph), program.problem is None, str(program.problem))
    for i, (result,) in joint.run([list(m.values.values()) for m in made]):
        (expected,) = rlx.evaluate(made[i].graph, made[i].values)
        wrong = np.count_nonzero(result != expected)
        failures.expect(str(made[i].graph), wrong == 0, f"{wrong} of {expected.size} elements differ")
    failures.check()

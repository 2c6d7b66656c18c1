"""Random loops of the ops that kernels of loops have code for, to compare the kernel with the evaluator.

Numbers stay near 1 and their effects on each other are exact in f64, so that only wrong places and orders make a difference:
steps add, subtract and halve small integers in f64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import rlx
from rlx.ir.graph.builder import Tensor

_SIZES = (1, 2, 3, 5)


@dataclass
class LoopWriter:
    """Writes the step of a loop: random ops on the values that exist.

    Attributes:
        g: The graph.
        random: The source of choices.
        table: The shape of all tables, of rows and columns.
        values: The values so far, all of the table's shape, a row's or a column's.
    """

    g: Any
    random: Random
    table: tuple[int, int]
    values: list[Tensor]

    def pick(self) -> Tensor:
        return self.random.choice(self.values)

    def whole(self, value: Tensor) -> Tensor:
        """Return a value broadcast to the table's shape."""
        return value if value.shape.dims == self.table else self.g.expand(value, self.table)

    def write(self, place: Tensor) -> None:
        """Add a value. `place` is a number that differs from step to step."""
        forms = (self._sum, self._where, self._row, self._column, self._turned, self._joined, self._halves, self._total)
        self.values.append(self.random.choice(forms)(place))

    def _sum(self, place: Tensor) -> Tensor:
        combine: Callable[[Tensor, Tensor], Tensor] = self.random.choice((lambda a, b: a + b, lambda a, b: a - b))
        return combine(self.pick(), self.pick())

    def _halves(self, place: Tensor) -> Tensor:
        return self.pick() * 0.5

    def _where(self, place: Tensor) -> Tensor:
        return self.g.where(
            self.whole(self.pick()) > self.whole(self.pick()), self.whole(self.pick()), self.whole(self.pick())
        )

    def _row(self, place: Tensor) -> Tensor:
        row = self.g.gather(self.whole(self.pick()), place - self.random.randrange(2))
        return self.g.reshape(row, (1, self.table[1]))

    def _column(self, place: Tensor) -> Tensor:
        return self.g.narrow(self.whole(self.pick()), 1, self.random.randrange(self.table[1]), 1)

    def _turned(self, place: Tensor) -> Tensor:
        rows = self.table[0]
        first = self.random.randrange(rows + 1)
        parts = [
            self.g.narrow(self.whole(self.pick()), 0, *part) for part in ((first, rows - first), (0, first)) if part[1]
        ]
        return parts[0] if len(parts) == 1 else self.g.concat(parts, 0)

    def _joined(self, place: Tensor) -> Tensor:
        value = self.whole(self.pick())
        if self.random.random() < 0.5:
            return self.g.concat([value, self.whole(self.pick())], 1)[:, self.table[1] :]
        return self.g.maximum(value, -self.whole(self.pick()))

    def _total(self, place: Tensor) -> Tensor:
        kind = self.random.choice((self.g.max, self.g.min))
        return kind(self.whole(self.pick()), 1, keepdims=True)

    def updated(self, carry: Tensor, place: Tensor) -> Tensor:
        """Return a carry with a row replaced, which a kernel may do in place."""
        row = self.g.gather(self.whole(self.pick()), place)
        return self.g.scatter_nd(carry, self.g.reshape(place - self.random.randrange(2), (1,)), row)


def random_loop(seed: int) -> rlx.Graph:
    """Return a graph with one loop of up to 3 carries."""
    random = Random(seed)
    g: Any = rlx.Graph("loop")
    table = (random.choice(_SIZES), random.choice(_SIZES))
    carries = [g.input(f"c{i}", table, "f64") for i in range(random.randint(1, 3))]
    outside = g.input("outside", random.choice((table, (1, table[1]))), "f64")
    xs, places = g.input("xs", (3, *table), "f64"), g.input("places", (3,), "i32")

    def step(own: tuple[Tensor, ...], slices: tuple[Tensor, Tensor]) -> object:
        x, place = slices
        writer = LoopWriter(g, random, table, [*own, x, outside])
        for _ in range(random.randint(0, 6)):
            writer.write(place)
        following = [
            writer.updated(carry, place) if random.random() < 0.3 else writer.whole(writer.pick()) for carry in own
        ]
        return tuple(following), tuple(writer.pick() for _ in range(random.randint(0, 2)))

    last, stacks = g.scan(step, tuple(carries), (xs, places), reverse=random.random() < 0.3)
    g.set_outputs([*last, *stacks])
    return g

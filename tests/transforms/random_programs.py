"""Random programs with nested regions: loops and branches whose bodies read outer values.

All numbers are f64 and stay small, so that central differences are accurate.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import rlx

_SHAPES = ((), (3,), (2, 3), (3, 3))
_DEEPEST = 2


class Program:
    """A graph, and values for its arguments.

    Args:
        seed: The seed of all choices.
        bounded: Give every while loop a bound, which reverse mode needs.
    """

    def __init__(self, seed: int, *, bounded: bool = True):
        self.random = random.Random(seed)
        self.bounded = bounded
        self.graph: Any = rlx.Graph("program")
        rng = np.random.default_rng(seed)
        self.values: dict[str, np.ndarray] = {}
        self.known: list[Any] = []
        for i, shape in enumerate(_SHAPES):
            self.known.append(self.graph.input(f"x{i}", shape, "f64"))
            self.values[f"x{i}"] = np.asarray(rng.uniform(-1.5, 1.5, shape))
        self.counts = [self.graph.input("count", (), "i32")]
        self.values["count"] = np.asarray(rng.integers(0, 4), np.int32)
        self._body(self.random.randint(4, 9), 0)
        outputs = self.random.sample(self.known[len(_SHAPES) :], 2)
        self.graph.set_outputs([self.graph.sum(self.graph.sin(outputs[0])), outputs[1]])

    def _body(self, steps: int, depth: int) -> None:
        plain: list[Callable[[int], Any]] = [self._unary, self._binary, self._product, self._shaped, self._chosen]
        regions: list[Callable[[int], Any]] = [self._branch, self._loop, self._scan, self._checkpoint, self._function]
        for _ in range(steps):
            steps_here = plain + (regions if depth < _DEEPEST else [])
            made = self.random.choice(steps_here)(depth)
            self.known += made if isinstance(made, (tuple, list)) else [made]

    def _inside(
        self, depth: int, own: Sequence[Any], shapes: Sequence[tuple[int, ...]], count: Any = None
    ) -> list[Any]:
        """Return the results of a region: tensors of given shapes, from its own values and outer ones."""
        before, counts = self.known, self.counts
        self.known = [*before, *own]
        self.counts = [*counts, count] if count is not None else counts
        self._body(self.random.randint(0, 2), depth + 1)
        made = [self._of_shape(shape) for shape in shapes]
        self.known, self.counts = before, counts
        return made

    def _any(self, shape: tuple[int, ...] | None = None) -> Any:
        """Return a tensor, preferring later ones."""
        fitting = [t for t in self.known if shape is None or t.shape.dims == shape]
        return self.random.choice([*fitting, *fitting[-2:]])

    def _of_shape(self, shape: tuple[int, ...]) -> Any:
        """Return a tensor of a shape, which may depend on any other."""
        g, other = self.graph, self._any()
        base = self._any(shape)
        return self.random.choice(
            [base, base, g.sin(base + g.mean(other)), base * g.cos(g.sum(other)), g.constant(np.full(shape, 0.7))]
        )

    # --- ops --------------------------------------------------------------------------------------

    def _unary(self, _: int) -> Any:
        return self.graph.activation(self.random.choice(["tanh", "sin", "cos", "gelu", "relu", "abs"]), self._any())

    def _binary(self, _: int) -> Any:
        a = self._any()
        b = self._any(self.random.choice([a.shape.dims, ()]))
        return self.graph.tanh(self.graph.binary(self.random.choice(["add", "sub", "mul", "max"]), a, b))

    def _product(self, _: int) -> Any:
        return self.graph.tanh(self._any((2, 3)) @ self._any((3, 3)))

    def _shaped(self, _: int) -> Any:
        g, x = self.graph, self._any(self.random.choice([(2, 3), (3, 3)]))
        return self.random.choice(
            [
                lambda: g.mean(x, 0),
                lambda: g.max(x, 0),
                lambda: g.cumsum(x, 1) * 0.3,
                lambda: g.softmax(x, -1),
                lambda: g.sort(x, -1),
                lambda: g.concat([x[1:], x[:1]], 0),
                lambda: g.gather(x, self._count(), 0),
                lambda: g.reverse(x, [0]),
            ]
        )()

    def _count(self) -> Any:
        return self.random.choice(self.counts)

    def _chosen(self, _: int) -> Any:
        x = self._any()
        return self.graph.where(self._any(()) > x, x * 0.5, self.graph.sin(x))

    def _condition(self) -> Any:
        g = self.graph
        return self.random.choice([lambda: g.sum(self._any()) > 0.1, lambda: self._count() > 1])()

    # --- regions ----------------------------------------------------------------------------------

    def _branch(self, depth: int) -> Any:
        shapes = self._some_shapes()
        branches = [lambda: tuple(self._inside(depth, (), shapes)) for _ in range(2)]
        return self.graph.if_(self._condition(), *branches)

    def _loop(self, depth: int) -> Any:
        carries = [self._any() for _ in range(self.random.randint(1, 2))]
        shapes = [c.shape.dims for c in carries]
        last, threshold = self._count(), self.random.uniform(0.0, 3.0)
        by_count = self.random.random() < 0.5

        def holds(i: Any, *own: Any) -> Any:
            return i < last if by_count else (i < 4) & (self.graph.sum(own[0] * own[0]) < threshold)

        bound = self.random.randint(1, 4) if self.bounded else None
        body = lambda i, *own: (i + 1, *self._inside(depth, own, shapes, i))  # noqa: E731
        _, *results = self.graph.while_(holds, body, 0, *carries, max_iterations=bound)
        return results

    def _scan(self, depth: int) -> Any:
        g = self.graph
        carries = tuple(self._any() for _ in range(self.random.randint(0, 2)))
        xs = self.random.choice([None, self._any((2, 3)), self._any((3, 3)), (self._any((3,)), self._any((3, 3)))])
        rows = () if xs is None else xs if isinstance(xs, tuple) else (xs,)
        stacked = self.random.choice([(), (3,)]) if not carries or self.random.random() < 0.7 else None
        shapes = [c.shape.dims for c in carries] + ([] if stacked is None else [stacked])

        def body(own: tuple[Any, ...], x: Any) -> Any:
            count, *own_carries = own
            slices = () if x is None else x if isinstance(x, tuple) else (x,)
            made = self._inside(depth, [*own_carries, *slices], shapes, count)
            return (count + 1, *made[: len(carries)]), None if stacked is None else made[-1]

        options = {"reverse": self.random.random() < 0.5, "num_checkpoints": self.random.choice([None, None, 1, 2])}
        length = None if rows else self.random.randint(0, 3)
        (_, *last), stack = g.scan(body, (g.constant(0), *carries), xs, length=length, **options)
        return [*last, *([] if stack is None else [g.mean(stack, 0) if length != 0 else g.sum(stack, 0)])]

    def _checkpoint(self, depth: int) -> Any:
        with self.graph.checkpoint():
            made = self._inside(depth, (), self._some_shapes())
        return made

    def _function(self, depth: int) -> Any:
        arguments = [self._any() for _ in range(self.random.randint(1, 2))]
        shapes = self._some_shapes()
        return self.graph.custom_fn(lambda *own: tuple(self._inside(depth, own, shapes)), *arguments)

    def _some_shapes(self) -> list[tuple[int, ...]]:
        return [self.random.choice(_SHAPES) for _ in range(self.random.randint(1, 2))]

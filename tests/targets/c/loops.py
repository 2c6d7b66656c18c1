"""Random graphs with branches and loops, nested, over integers and floats."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx
from tests.targets.c.graphs import numbers

SHAPES: tuple[tuple[int, ...], ...] = ((), (1,), (5,), (2, 3), (4, 1), (1, 8))
DTYPES = ("i8", "i16", "i32", "f32", "u8", "i64")
DEEPEST = 2


class LoopCase:
    """One output of a graph, computed by a random branch or loop.

    Args:
        g: The graph.
        rng: The random generator.
        name: The prefix of its inputs.
    """

    def __init__(self, g: Any, rng: np.random.Generator, name: str):
        self.g, self.rng, self.name = g, rng, name
        self.inputs: dict[str, np.ndarray] = {}

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def drawn(self, values: Any) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def kind(self) -> tuple[tuple[int, ...], str]:
        return self.drawn(SHAPES), self.drawn(DTYPES)

    def input(self, dims: tuple[int, ...], dtype: str) -> Any:
        name = f"{self.name}x{len(self.inputs)}"
        if dtype == "f32":
            self.inputs[name] = self.rng.uniform(-2, 2, dims).astype(np.float32)
        elif dtype == "i64":
            self.inputs[name] = self.rng.integers(-(2**40), 2**40, dims)
        else:
            self.inputs[name] = numbers(self.rng, dims, dtype)
        return self.g.input(name, dims, dtype)

    # --- values -------------------------------------------------------------------------------------

    def fitted(self, x: Any, dims: tuple[int, ...], dtype: str) -> Any:
        """A value as one of another shape and dtype."""
        g = self.g
        if x.dtype.name != dtype:
            x = g.cast(g.clamp(x, -100.0, 100.0) if x.dtype.name == "f32" else x, dtype)
        if x.shape.static == dims:
            return x
        if int(np.prod(x.shape.static)) == int(np.prod(dims)):
            return g.reshape(x, dims)
        x = g.max(x) if x.rank else x
        return g.expand(x, dims) if dims else x

    def expression(self, values: list[Any], dims: tuple[int, ...], dtype: str) -> Any:
        """A value of a shape and dtype, of others; sometimes one of them, or a constant."""
        g = self.g
        same = [v for v in values if v.shape.static == dims and v.dtype.name == dtype]
        if same and self.chance(0.15):
            return self.drawn(same)
        if self.chance(0.08):
            return g.constant(np.full(dims, 3, rlx.dtype(dtype).numpy))
        if self.chance(0.05):
            return g.constant(np.arange(np.prod(dims)).reshape(dims).astype(rlx.dtype(dtype).numpy))
        x = self.fitted(self.drawn(same if same and self.chance(0.7) else values), dims, dtype)
        for _ in range(int(self.rng.integers(1, 4))):
            y = self.fitted(self.drawn(values), dims, dtype)
            which = self.rng.integers(6)
            if which <= 1:
                x = g.where(x < y, x, y) if which else x + y
            elif which == 2:
                x = g.clamp(x * y, -3.0, 3.0) if dtype == "f32" else x - y
            elif which == 3:
                x = g.maximum(x, y)
            elif which == 4 and dims:
                x = g.reverse(x, (len(dims) - 1,))
            elif dims and dims[-1] > 1:
                first = g.narrow(x, len(dims) - 1, 0, 1)
                x = g.concat([g.narrow(x, len(dims) - 1, 1, dims[-1] - 1), first], len(dims) - 1)
            else:
                x = g.minimum(x, y)
        return g.clamp(x, -3.0, 3.0) if dtype == "f32" else x  # functions of <math.h> are not in the emulator

    def value(self, values: list[Any], dims: tuple[int, ...], dtype: str, depth: int) -> Any:
        """An expression, or the result of a branch or a loop."""
        if depth < DEEPEST and self.chance(0.2):
            return self.fitted(self.drawn(self.control(values, depth + 1)), dims, dtype)
        return self.expression(values, dims, dtype)

    # --- branches and loops ---------------------------------------------------------------------------

    def control(self, values: list[Any], depth: int) -> list[Any]:
        """The results of a branch or a loop."""
        which = self.rng.integers(5)
        made = self.branch(values, depth) if which == 0 else self.scan(values, depth) if which < 4 else None
        made = self.loop(values, depth) if made is None else made
        return [r for r in made if 0 not in r.shape.static] or values

    def branch(self, values: list[Any], depth: int) -> list[Any]:
        kinds = [self.kind() for _ in range(self.rng.integers(1, 3))]
        condition = self.expression(values, (), "i32") > 1
        made = self.g.if_(
            condition,
            lambda: tuple(self.value(values, *kind, depth) for kind in kinds),
            lambda: tuple(self.value(values, *kind, depth) for kind in kinds),
        )
        return list(made) if isinstance(made, tuple) else [made]

    def scan(self, values: list[Any], depth: int) -> list[Any]:
        g = self.g
        length = int(self.rng.choice([0, 1, 2, 3, 5], p=[0.1, 0.1, 0.2, 0.3, 0.3]))
        carries = [self.value(values, *self.kind(), DEEPEST) for _ in range(self.rng.integers(0, 4))]
        kinds = [self.kind() for _ in range(self.rng.integers(0, 3))]
        xs = [self.value(values, (length, *dims), dtype, DEEPEST) for dims, dtype in kinds] if length else []
        stacked = [self.kind() for _ in range(self.rng.integers(0 if carries else 1, 3))]
        carried = [(c.shape.static, c.dtype.name) for c in carries]

        def body(old: Any, rows: Any) -> Any:
            inside = [*values, *old, *(rows or ())]
            if len(carried) > 1 and carried[0] == carried[1] and self.chance(0.5):
                new = [old[1], old[0], *old[2:]]
            else:
                new = [self.value(inside, *kind, depth) for kind in carried]
            return tuple(new), tuple(self.value([*inside, *new], *kind, depth) for kind in stacked)

        last, every = g.scan(body, tuple(carries), tuple(xs) or None, length=length, reverse=self.chance(0.4))
        return [*last, *(every or ())]

    def loop(self, values: list[Any], depth: int) -> list[Any]:
        g = self.g
        carries = [self.expression(values, *self.kind()) for _ in range(self.rng.integers(1, 3))]
        carried = [(c.shape.static, c.dtype.name) for c in carries]
        start = g.minimum(
            g.maximum(self.expression(values, (), "i32"), g.constant(np.int32(0))), g.constant(np.int32(4))
        )
        limit = int(self.rng.integers(0, 6))

        def body(number: Any, *old: Any) -> Any:
            return (number + 1, *(self.value([*values, *old, number], *kind, depth) for kind in carried))

        bound = self.drawn([None, 0, 2, 9])
        made = g.while_(lambda number, *_: number < limit, body, start, *carries, max_iterations=bound)
        return list(made)


def random_loops(seed: int, cases: int) -> tuple[rlx.Graph, dict[str, np.ndarray]]:
    """A graph with several independent branches and loops, and values for its inputs."""
    rng = np.random.default_rng(seed)
    g: Any = rlx.Graph(f"loops_{seed}")
    inputs: dict[str, np.ndarray] = {}
    outputs: dict[str, Any] = {}
    for number in range(cases):
        c = LoopCase(g, rng, f"c{number}_")
        values = [c.input(*c.kind()) for _ in range(3)]
        made = c.control(values, 0)
        if c.chance(0.3):
            made = c.control([*values, *made], 0)
        outputs |= {f"c{number}_y{i}": v if c.chance(0.6) else c.expression([v], *c.kind()) for i, v in enumerate(made)}
        inputs |= c.inputs
    g.set_outputs(outputs)
    return g, inputs

"""Random integer graphs from a seed: chains of the ops that the C back end supports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import rlx

INTEGERS = ("i8", "u8", "i16", "i32")
MODES = ("double", "single", "short")


class Case:
    """One chain of ops in a graph.

    Args:
        g: The graph.
        rng: The random generator.
        name: The prefix of its inputs and outputs.
    """

    def __init__(self, g: rlx.Graph, rng: np.random.Generator, name: str):
        self.g, self.rng, self.name = g, rng, name
        self.inputs: dict[str, np.ndarray] = {}
        self.values: list[Any] = []

    def input(self, dims: tuple[int, ...], dtype: str) -> Any:
        """A new input with values, including the limits of its dtype."""
        name = f"{self.name}x{len(self.inputs)}"
        self.inputs[name] = numbers(self.rng, dims, dtype)
        return self.g.input(name, dims, dtype)

    def pick(self, *dtypes: str, rank: int | None = None) -> Any:
        """An existing value, or a new input."""
        found = [v for v in self.values if v.dtype.name in dtypes and rank in (None, v.rank)]
        if found and self.rng.random() < 0.9:
            return found[-1] if self.rng.random() < 0.6 else found[self.rng.integers(len(found))]
        dims = tuple(int(d) for d in self.rng.integers(1, 7, 4 if rank is None else rank))
        value = self.input(dims, dtypes[self.rng.integers(len(dtypes))])
        self.values.append(value)
        return value

    def step(self) -> None:
        """Add an op."""
        op = STEPS[self.rng.integers(len(STEPS))]
        result = op(self)
        if result is not None and int(np.prod(result.shape.static)) <= 4096:
            self.values.append(result)

    # --- helpers ------------------------------------------------------------------------------------

    def integer(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def constant(self, dims: tuple[int, ...], low: int, high: int, dtype: str = "i8") -> Any:
        return self.g.constant(self.rng.integers(low, high + 1, dims).astype(rlx.dtype(dtype).numpy))

    def weights(self, dims: tuple[int, ...]) -> Any:
        """Weights of 8, 4 or 2 bits."""
        bound = int(self.rng.choice([127, 127, 7, 1]))
        low = -128 if bound == 127 and self.rng.random() < 0.3 else -bound
        return self.constant(dims, low, bound)

    def requantized(self, x: Any, channels: tuple[int, ...], likely: float) -> Any:
        """Requantise a sum of about `likely` to 8 bits, with factors for each channel or one factor."""
        mode = MODES[self.rng.integers(3)]
        dims = channels if self.rng.random() < 0.7 else ()
        scale = self.rng.uniform(0.3, 3.0, dims) * 100.0 / max(likely, 1.0)
        dtype = ["i8", "i8", "i8", "u8", "i16"][self.rng.integers(5)]
        kind = rlx.dtype(dtype)
        zero = self.integer(max(int(kind.min), -128), min(int(kind.max), 255))
        result = self.g.rescale(x, scale, zero_point=zero, mode=mode, dtype=dtype)
        if self.rng.random() < 0.3:
            result = self.g.maximum(result, self.g.constant(np.array(zero, kind.numpy)))
        return result


def numbers(rng: np.random.Generator, dims: tuple[int, ...], dtype: str) -> np.ndarray:
    """Integers of a dtype, including its limits. i32 numbers are mostly small."""
    kind = rlx.dtype(dtype)
    if kind.is_bool:
        return rng.integers(0, 2, dims).astype(bool)
    low, high = int(kind.min), int(kind.max)
    values = rng.integers(low, high + 1, dims)
    if dtype == "i32":
        values = values >> rng.integers(0, 28, dims)
    values = np.where(rng.random(dims) < 0.05, rng.choice([low, high, 0]), values)
    return values.astype(kind.numpy)


def conv(c: Case) -> Any:
    x = c.pick("i8", rank=4)
    _, channels, height, width = x.shape.static
    groups = int(c.rng.choice([g for g in range(1, channels + 1) if channels % g == 0]))
    outputs = groups * c.integer(1, 5)
    kernel = c.integer(1, 3), c.integer(1, 3)
    dilation = c.integer(1, 2), c.integer(1, 2)
    padding = [(c.integer(0, 2), c.integer(0, 2)) for _ in range(2)]
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    if any(s + sum(p) < span for s, p, span in zip((height, width), padding, spans, strict=True)):
        return None
    per_group = channels // groups
    w = c.weights((outputs, per_group, *kernel))
    bias = c.constant((outputs,), -3000, 3000, "i32") if c.rng.random() < 0.7 else None
    sums = c.g.q_conv2d(
        *(x, w, bias),
        stride=(c.integer(1, 2), c.integer(1, 2)),
        padding=padding,
        dilation=dilation,
        groups=groups,
        x_zero_point=c.integer(-128, 127),
        w_zero_point=0 if c.rng.random() < 0.9 else c.integer(-128, 127),
        dtype="i32",
    )
    if c.rng.random() < 0.15:
        return sums
    return c.requantized(sums, (outputs, 1, 1), 80.0 * 70 * np.sqrt(per_group * kernel[0] * kernel[1]))


def block(c: Case) -> Any:
    """A convolution whose result is added to its input, to a function of its input, or to another value."""
    x = c.pick("i8", rank=4)
    channels = x.shape.static[1]
    kernel = int(c.rng.choice([1, 3]))
    which = c.integer(0, 2)
    other = [x, c.g.maximum(x, c.g.constant(np.array(c.integer(-99, 0), np.int8))), c.input(x.shape.static, "i8")][
        which
    ]
    sums = c.g.q_conv2d(x, c.weights((channels, channels, kernel, kernel)), None, padding=kernel // 2, dtype="i32")
    y = c.g.rescale(sums, c.rng.uniform(0.5, 2.0, (channels, 1, 1)) * 0.01, zero_point=c.integer(-9, 9))
    return c.g.maximum(y + other, other) if c.rng.random() < 0.5 else y + other


def dense(c: Case) -> Any:
    x = c.pick("i8")
    if x.rank < 2:
        return None
    depth, outputs = x.shape.static[-1], c.integer(1, 11)
    if c.rng.random() < 0.5:
        x = c.g.reshape(x, (x.shape.static[0], -1))
        depth = x.shape.static[-1]
    bias = c.constant((outputs,), -3000, 3000, "i32") if c.rng.random() < 0.7 else None
    zeros = {"x_zero_point": c.integer(-128, 127), "w_zero_point": 0 if c.rng.random() < 0.9 else c.integer(-128, 127)}
    sums = c.g.q_matmul(x, c.weights((depth, outputs)), bias, **zeros, dtype="i32")
    return sums if c.rng.random() < 0.2 else c.requantized(sums, (outputs,), 80.0 * 70 * np.sqrt(depth))


def residual(c: Case) -> Any:
    """`requantize(requantize(x - a) + requantize(y - b))`, the form of quantised sums."""
    x = c.pick("i8")
    y = c.pick("i8") if c.rng.random() < 0.7 else c.input(x.shape.static, "i8")
    if y.shape.dims != x.shape.dims:
        y = c.input(x.shape.static, "i8")
    mode = MODES[c.rng.integers(2)]
    sides = [
        c.g.rescale(
            (c.g.cast(v, "i32") - c.integer(-128, 127)) * 1048576, c.rng.uniform(0.1, 0.9), mode=mode, dtype="i32"
        )
        for v in (x, y)
    ]
    return c.g.rescale(sides[0] + sides[1], 1e-6, zero_point=c.integer(-128, 127), mode=mode)


def product(c: Case) -> Any:
    x = c.pick("i8")
    y = c.pick("i8")
    if y.shape.dims != x.shape.dims:
        y = c.input(x.shape.static[-1:] if x.rank else (), "i8")
    wide = [c.g.cast(v, "i32") - c.integer(-128, 127) for v in (x, y)]
    return c.requantized(wide[0] * wide[1], (), 5000.0)


def pool(c: Case) -> Any:
    kind = "max" if c.rng.random() < 0.6 else "sum"
    x = c.pick(*INTEGERS, rank=4)
    if kind == "sum":
        x = c.g.cast(x, "i32")
    kernel = [c.integer(1, min(3, d)) for d in x.shape.static[2:]]
    padding = [(c.integer(0, k - 1), c.integer(0, k - 1)) for k in kernel]
    stride = kernel if c.rng.random() < 0.5 else [c.integer(1, 2) for _ in kernel]
    return c.g.pool(x, kind, kernel, stride, padding)


def mean(c: Case) -> Any:
    x = c.pick("i8", rank=4)
    total = c.g.sum(c.g.cast(x, "i32"), axes=(2, 3), keep_dims=bool(c.rng.random() < 0.5))
    size = x.shape.static[2] * x.shape.static[3]
    return c.g.rescale(total, c.rng.uniform(0.5, 1.0) / size, zero_point=c.integer(-5, 5))


def reduction(c: Case) -> Any:
    kind = ["sum", "max", "min", "prod"][c.rng.integers(4)]
    x = c.pick(*(("i32",) if kind in ("sum", "prod") else INTEGERS))
    if not x.rank:
        return None
    axes = tuple(sorted(c.rng.choice(x.rank, c.integer(1, x.rank), replace=False).tolist()))
    return c.g.reduce(kind, x, axes, bool(c.rng.random() < 0.5))


def position(c: Case) -> Any:
    x = c.pick(*INTEGERS)
    if not x.rank:
        return None
    find = c.g.argmax if c.rng.random() < 0.6 else c.g.argmin
    return find(x, c.integer(0, x.rank - 1), bool(c.rng.random() < 0.5))


def arithmetic(c: Case) -> Any:
    x = c.pick(*INTEGERS)
    dims = x.shape.static
    kept = tuple(d if c.rng.random() < 0.7 else 1 for d in dims)
    if c.rng.random() < 0.5:
        y = c.g.constant(numbers(c.rng, kept if c.rng.random() < 0.6 else (), x.dtype.name))
    else:
        y = c.input(kept, x.dtype.name)
    kinds = ["add", "sub", "mul", "max", "min", "rem", "trunc_div", "and", "or", "xor", "shift_left", "shift_right"]
    kind = kinds[c.rng.integers(5 if c.rng.random() < 0.6 else len(kinds))]
    if kind.startswith("shift") and c.rng.random() < 0.7:
        y = c.g.constant(np.array(c.integer(0, 33), x.dtype.numpy))
    return c.g.binary(kind, x, y)


def choice(c: Case) -> Any:
    x = c.pick(*INTEGERS)
    y = c.input(x.shape.static[-1:] if x.rank else (), x.dtype.name)
    test = c.g.compare(["eq", "ne", "lt", "le", "gt", "ge"][c.rng.integers(6)], x, y)
    return c.g.where(test, x, y) if c.rng.random() < 0.8 else test


def cast(c: Case) -> Any:
    x = c.pick(*INTEGERS, "bool")
    return c.g.cast(x, INTEGERS[c.rng.integers(4)])


def unary(c: Case) -> Any:
    x = c.pick(*INTEGERS)
    return [c.g.abs, c.g.relu, c.g.bitwise_not, c.g.popcount, lambda v: -v][c.rng.integers(5)](x)


def table(c: Case) -> Any:
    """A function of i8 as a table."""
    x = c.pick("i8")
    entries = c.constant((256,), -128, 127) if c.rng.random() < 0.6 else c.constant((256,), -(2**31), 2**31 - 1, "i32")
    return c.g.gather(entries, c.g.cast(x, "i32") + 128)


def lookup(c: Case) -> Any:
    """Rows of a table, at indices that may be out of range."""
    x = c.pick(*INTEGERS)
    if not x.rank or 0 in x.shape.static:
        return None
    axis = c.integer(0, x.rank - 1)
    indices = c.g.constant(c.rng.integers(-2, 8, tuple(c.rng.integers(1, 4, c.integer(0, 2)))).astype(np.int32))
    return c.g.gather(x, indices, axis)


def moved(c: Case) -> Any:
    x = c.pick(*INTEGERS, "bool")
    if not x.rank:
        return None
    which = c.integer(0, 5)
    dims = x.shape.static
    if which == 0:
        return c.g.transpose(x, c.rng.permutation(x.rank).tolist())
    if which == 1:
        starts = [c.integer(0, d - 1) for d in dims]
        limits = [c.integer(s + 1, d) for s, d in zip(starts, dims, strict=True)]
        return c.g.slice(x, starts, limits, [c.integer(1, 2) for _ in dims])
    if which == 2:
        return c.g.reverse(x, c.rng.choice(x.rank, c.integer(1, x.rank), replace=False).tolist())
    if which == 3:
        return c.g.expand(x, (c.integer(1, 3), *dims))
    if which == 4:
        return c.g.reshape(x, (-1,))
    axis = c.integer(0, x.rank - 1)
    return c.g.concat(
        [x, c.input(tuple(c.integer(1, 3) if i == axis else d for i, d in enumerate(dims)), x.dtype.name)], axis
    )


def padded(c: Case) -> Any:
    x = c.pick(*INTEGERS)
    mode = ["constant", "constant", "replicate", "reflect", "circular"][c.rng.integers(5)]
    room = [2 if mode in ("constant", "replicate") else d - 1 if mode == "reflect" else d for d in x.shape.static]
    padding = [(c.integer(0, min(2, r)), c.integer(0, min(2, r))) for r in room]
    return c.g.pad(x, padding, mode, c.integer(0, 100)) if x.rank else None


def product_of_matrices(c: Case) -> Any:
    x = c.pick("i8", "i32")
    if x.rank < 1:
        return None
    depth = x.shape.static[-1]
    y = c.input((depth, c.integer(1, 4)), "i8")
    return c.g.cast(x, "i32") @ c.g.cast(y, "i32")


STEPS: list[Callable[[Case], Any]] = [
    *([conv] * 4),
    *([dense] * 3),
    *([block] * 2),
    *([residual, pool, table] * 2),
    *(product, mean, reduction, position, arithmetic, arithmetic, choice, cast, unary, lookup, moved, moved, padded),
    product_of_matrices,
]


def random_graph(seed: int, cases: int = 1, longest: int = 8) -> tuple[rlx.Graph, dict[str, np.ndarray]]:
    """A graph with several independent chains of ops, and values for its inputs."""
    rng = np.random.default_rng(seed)
    g = rlx.Graph(f"random_{seed}")
    inputs: dict[str, np.ndarray] = {}
    outputs: dict[str, Any] = {}
    for number in range(cases):
        c = Case(g, rng, f"c{number}_")
        dims = tuple(int(d) for d in (rng.choice([1, 1, 2]), *rng.integers(1, 8, 3)))
        c.values.append(c.input(dims, "i8"))
        for _ in range(int(rng.integers(1, longest))):
            c.step()
        kept = [c.values[-1], *(v for v in c.values[1:-1] if rng.random() < 0.15)]
        outputs |= {f"c{number}_y{i}": v for i, v in enumerate(kept)}
        inputs |= c.inputs
    g.set_outputs(outputs)
    return g, inputs

"""Random integer graphs of the ops that the FPGA target supports."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx
from rlx.ops.quantization.requantize import fixed_point
from rlx.targets.fpga.flags import PRESET_NAMES

_LIMITS = {8: 127, 4: 7, 2: 1}


class Maker:
    """A generator of random graphs. Values have rank 4 (images) or 2 (rows), and are mostly i8."""

    def __init__(self, rng: np.random.Generator, ops: int):
        self.rng, self.ops = rng, ops
        self.g: Any = rlx.Graph("random")

    def graph(self) -> Any:
        rng = self.rng
        if rng.random() < 0.75:
            shape = (int(rng.integers(1, 3)), *map(int, rng.integers(1, 7, 3)))
        else:
            shape = (int(rng.integers(1, 4)), int(rng.integers(1, 20)))
        states = [
            self.g.state(f"state{i}", shape, "i8", init=int(rng.integers(-128, 128)))
            for i in range(int(rng.integers(1, 3)) if rng.random() < 0.25 else 0)
        ]
        values = [self.g.input("x", shape, str(rng.choice(["i8", "i8", "i8", "u8"])))]
        if rng.random() < 0.3:
            values.append(self.g.input("other", shape, "i8"))
        values = [values[0], *states, *values[1:]]
        for _ in range(self.ops):
            value = values[-1] if rng.random() < 0.8 else values[int(rng.integers(len(values)))]
            choices = self.image_steps if value.rank == 4 else self.row_steps
            values.append(choices[int(rng.integers(len(choices)))](self, value, values))
        outputs = {"y": values[-1]}
        if rng.random() < 0.2 and len(values) > 2:
            outputs["z"] = values[-2]
        self.g.set_outputs(outputs)
        for state in states:
            fitting = [v for v in values[1:] if v.shape.static == shape] + [values[0]]
            self.g.update(state, self.mixed(fitting[-1], state))
        return self.g

    def mixed(self, x: Any, state: Any) -> Any:
        """The next value of a state, from another value and sometimes from its old value."""
        x = self.small(x)
        if self.rng.random() < 0.3:
            return x
        return self.requantised(self.wide(x) + self.wide(state), (), 0.5, "i8")

    # --- helpers ----------------------------------------------------------------------------------------

    def weights(self, *shape: int) -> Any:
        limit = _LIMITS[int(self.rng.choice([8, 8, 4, 2]))]
        return self.g.constant(self.rng.integers(-limit, limit + 1, shape).astype(np.int8))

    def small(self, x: Any) -> Any:
        """A value as i8."""
        return x if x.dtype.name == "i8" else self.g.requantize(self.wide(x), *self.scales((), 0.5), zero_point=3)

    def wide(self, x: Any) -> Any:
        """A value as i32."""
        return x if x.dtype.name == "i32" else self.g.cast(x, "i32")

    def scales(self, shape: tuple[int, ...], about: float, mode: str = "double") -> tuple[Any, Any]:
        per = shape if self.rng.random() < 0.6 else ()
        scale = about * 2.0 ** self.rng.uniform(-2, 2, per)
        multiplier, shift = fixed_point(scale, mode)
        return self.g.constant(multiplier), self.g.constant(shift)

    def requantised(self, x: Any, shape: tuple[int, ...], about: float, dtype: str = "") -> Any:
        mode = str(self.rng.choice(["double", "double", "single", "short"]))
        dtype = dtype or str(self.rng.choice(["i8", "i8", "i8", "u8", "i16"]))
        zero = int(self.rng.integers(-128, 128)) if dtype != "u8" else int(self.rng.integers(0, 256))
        multiplier, shift = self.scales(shape, about, mode)
        y = self.g.requantize(x, multiplier, shift, zero_point=zero, mode=mode, dtype=dtype)
        if self.rng.random() < 0.3:
            y = self.g.maximum(y, self.g.constant(np.array(zero, y.dtype.numpy)))
        return y

    # --- ops of images ----------------------------------------------------------------------------------

    def conv(self, x: Any, values: list[Any]) -> Any:
        rng, x = self.rng, self.small(x)
        _, channels, height, width = x.shape.static
        kernel = tuple(int(rng.integers(1, min(4, n + 2))) for n in (height, width))
        pads = [0 if k == 1 else int(rng.integers(0, k)) for k in kernel for _ in (0, 1)]
        dilation = [
            int(rng.integers(1, 3)) if n + pads[2 * i] + pads[2 * i + 1] >= 2 * (k - 1) + 1 else 1
            for i, (k, n) in enumerate(zip(kernel, (height, width), strict=True))
        ]
        for i, (k, n) in enumerate(zip(kernel, (height, width), strict=True)):
            pads[2 * i] += max(0, (k - 1) * dilation[i] + 1 - n - pads[2 * i] - pads[2 * i + 1])
        kind = rng.choice(["dense", "dense", "depthwise", "grouped"])
        groups = {"dense": 1, "depthwise": channels}.get(
            kind, int(rng.choice([d for d in (1, 2, 3) if not channels % d]))
        )
        results = channels if kind == "depthwise" else groups * int(rng.integers(1, 5))
        w = self.weights(results, channels // groups, *kernel)
        bias = self.bias(results) if rng.random() < 0.8 else None
        strides = tuple(map(int, rng.integers(1, 3, 2)))
        zeros = {"x_zero_point": int(rng.integers(-128, 128)), "w_zero_point": int(rng.choice([0, 0, 0, 3]))}
        sides = [(pads[0], pads[1]), (pads[2], pads[3])]
        window = {"stride": strides, "padding": sides, "dilation": tuple(dilation), "groups": groups}
        y = self.g.q_conv2d(x, w, bias, **window, **zeros, dtype="i32")
        about = 1.0 / (30 * np.sqrt(channels // groups * np.prod(kernel)))
        return y if rng.random() < 0.1 else self.requantised(y, (results, 1, 1), about)

    def bias(self, count: int) -> Any:
        return self.g.constant(self.rng.integers(-3000, 3000, count).astype(np.int32))

    def pool(self, x: Any, values: list[Any]) -> Any:
        rng = self.rng
        kind = str(rng.choice(["max", "max", "sum"]))
        x = self.wide(x) if kind == "sum" else x
        kernel = tuple(int(rng.integers(1, min(3, n) + 1)) for n in x.shape.static[2:])
        stride = tuple(int(rng.integers(1, 4)) for _ in kernel)
        padding = [tuple(map(int, rng.integers(0, k, 2))) for k in kernel]
        y = self.g.pool(x, kind, kernel=kernel, stride=stride, padding=padding)
        return self.requantised(y, (y.shape.static[1], 1, 1), 1 / np.prod(kernel)) if kind == "sum" else y

    def flatten(self, x: Any, values: list[Any]) -> Any:
        return self.g.reshape(x, (x.shape.static[0], -1))

    def residual(self, x: Any, values: list[Any]) -> Any:
        fitting = [v for v in values if v.shape.static == x.shape.static] or [x]
        other = fitting[int(self.rng.integers(len(fitting)))]
        a, b = (self.g.requantize(self.wide(v) - 3, *self.scales((), 1.5), dtype="i32") for v in (x, other))
        total = a * b if self.rng.random() < 0.2 else a + b
        return self.requantised(total, (), 0.3 if self.rng.random() < 0.8 else 0.01)

    def concat(self, x: Any, values: list[Any]) -> Any:
        axis = 1 if self.rng.random() < 0.7 else int(self.rng.integers(x.rank))
        others = [
            v for v in values
            if v.rank == x.rank and v.dtype.name == x.dtype.name
            and all(i == axis or m == n for i, (m, n) in enumerate(zip(v.shape.static, x.shape.static, strict=True)))
        ]  # fmt: skip
        other = others[int(self.rng.integers(len(others)))] if others else x
        if self.rng.random() < 0.3:
            info = np.iinfo(x.dtype.numpy)
            other = self.g.constant(self.rng.integers(info.min, info.max, x.shape.static, x.dtype.numpy, endpoint=True))
        if np.prod(x.shape.static) > 600:
            return x
        return self.g.concat([x, other] if self.rng.random() < 0.5 else [other, x], axis=axis)

    def table(self, x: Any, values: list[Any]) -> Any:
        entries = self.rng.integers(-128, 128, 256).astype(np.int8)
        return self.g.gather(self.g.constant(entries), self.g.cast(self.small(x), "i32") + 128, axis=0)

    def elementwise(self, x: Any, values: list[Any]) -> Any:
        rng, g = self.rng, self.g
        kind = str(
            rng.choice(["add", "sub", "mul", "max", "min", "where", "relu", "neg", "abs", "constants", "bits", "shift"])
        )
        if kind in ("relu", "neg", "abs"):
            return getattr(g, kind)(x)
        if kind == "where":
            return g.where(x > g.constant(np.array(5, x.dtype.numpy)), x, g.constant(np.array(7, x.dtype.numpy)))
        info = np.iinfo(x.dtype.numpy)
        if kind == "bits":
            numbers = g.constant(rng.integers(info.min, info.max, x.shape.static[-1:], x.dtype.numpy, endpoint=True))
            return g.binary(str(rng.choice(["and", "or", "xor"])), x, numbers if rng.random() < 0.5 else x + numbers)
        if kind == "shift":
            count = np.array(int(rng.integers(0, 8 * x.dtype.itemsize + 2)) % 128, x.dtype.numpy)
            return g.binary(str(rng.choice(["shift_left", "shift_right"])), x, g.constant(count))
        if kind == "constants":
            numbers = rng.integers(max(info.min, -999), min(info.max, 999), x.shape.static)
            return x + g.constant(numbers.astype(x.dtype.numpy))
        number = g.constant(np.array(int(rng.integers(max(info.min, -99), 99)), x.dtype.numpy))
        return {"add": g.add, "sub": g.sub, "mul": g.mul, "max": g.maximum, "min": g.minimum}[kind](x, number)

    def move(self, x: Any, values: list[Any]) -> Any:
        rng, g = self.rng, self.g
        kind = str(rng.choice(["transpose", "slice", "pad", "expand"]))
        dims = x.shape.static
        if kind == "transpose":
            return g.transpose(x, tuple(int(i) for i in rng.permutation(x.rank)))
        if kind == "slice":
            starts = [int(rng.integers(0, n)) for n in dims]
            limits = [int(rng.integers(s + 1, n + 1)) for s, n in zip(starts, dims, strict=True)]
            return x[tuple(slice(s, e) for s, e in zip(starts, limits, strict=True))]
        if kind == "pad" and np.prod(dims) < 300:
            return g.pad(x, [tuple(map(int, rng.integers(0, 2, 2))) for _ in dims], value=int(rng.integers(0, 9)))
        if kind == "expand" and 1 in dims and np.prod(dims) < 200:
            return g.expand(x, tuple(2 if n == 1 else n for n in dims))
        return g.reshape(x, (dims[0], -1)) if x.rank == 4 else g.reshape(x, (*dims, 1, 1))

    def spatial_mean(self, x: Any, values: list[Any]) -> Any:
        axes = [(2, 3), (1,), (3,), (1, 2, 3)][int(self.rng.integers(4))]
        y = self.g.sum(self.wide(x), axes=axes, keep_dims=True)
        return self.residual(y, [y, self.g.abs(y)]) if self.rng.random() < 0.3 else self.requantised(y, (), 0.1)

    # --- ops of rows --------------------------------------------------------------------------------------

    def dense(self, x: Any, values: list[Any]) -> Any:
        x = self.small(x)
        length, results = x.shape.static[-1], int(self.rng.integers(1, 9))
        w = self.weights(length, results)
        bias = self.bias(results) if self.rng.random() < 0.8 else None
        y = self.g.q_matmul(x, w, bias, x_zero_point=int(self.rng.integers(-128, 128)), dtype="i32")
        return y if self.rng.random() < 0.1 else self.requantised(y, (results,), 1.0 / (30 * np.sqrt(length)))

    def reduce(self, x: Any, values: list[Any]) -> Any:
        kind = str(self.rng.choice(["sum", "max", "min"]))
        axis = int(self.rng.integers(x.rank))
        return getattr(self.g, kind)(self.wide(x) if kind == "sum" else x, axes=(axis,), keep_dims=True)

    def argmax(self, x: Any, values: list[Any]) -> Any:
        place = self.g.argmax if self.rng.random() < 0.5 else self.g.argmin
        return place(x, axis=int(self.rng.integers(x.rank)), keep_dims=True)

    # --- products of two computed tensors ---------------------------------------------------------------------

    def product(self, x: Any, values: list[Any]) -> Any:
        """A product of a value's rows with those of another value, or with its own: `matmul`, `q_matmul` or `dot_general`."""
        rng, g = self.rng, self.g
        x = self.small(x)
        length = x.shape.static[-1]
        others = [v for v in values if v.dtype.name == "i8" and v.rank == x.rank and v.shape.static[-1] == length]
        others = [v for v in others if v.shape.static[:-2] == x.shape.static[:-2]]
        other = others[int(rng.integers(len(others)))] if others else x
        last = (*range(x.rank - 2), x.rank - 1, x.rank - 2)
        zeros = tuple(int(v) for v in rng.integers(-128, 128, 2))
        kind = str(rng.choice(["q_matmul", "matmul", "dot_general", "columns", "constant"]))
        if kind == "q_matmul" and x.rank == 2:
            bias = self.bias(other.shape.static[0]) if rng.random() < 0.5 else None
            y = g.q_matmul(x, g.transpose(other, last), bias, x_zero_point=zeros[0], w_zero_point=zeros[1], dtype="i32")
        elif kind == "dot_general":
            batch, axis = tuple(range(x.rank - 2)), (x.rank - 1,)
            y = g.dot_general(self.wide(x), self.wide(other), axis, axis, batch, batch)
        elif kind == "columns":
            a, b = self.wide(x) - zeros[0], self.wide(other) - zeros[1]
            y = g.transpose(a, last) @ (b if a.shape.static[-2] == b.shape.static[-2] else a)
        elif kind == "constant":
            w = rng.integers(-99, 99, (int(rng.integers(1, 5)), x.shape.static[-2])).astype(np.int32)
            y = g.constant(w) @ self.wide(x)
        else:
            y = (self.wide(x) - zeros[0]) @ g.transpose(self.wide(other) - zeros[1], last)
        return y if rng.random() < 0.1 else self.requantised(y, (), 1.0 / (100 * np.sqrt(length)))

    image_steps = (
        conv,
        conv,
        conv,
        conv,
        pool,
        pool,
        flatten,
        residual,
        concat,
        table,
        elementwise,
        move,
        spatial_mean,
        product,
    )
    row_steps = (dense, dense, product, product, residual, concat, table, elementwise, move, reduce, argmax)


def random_graph(rng: np.random.Generator, ops: int | None = None) -> Any:
    """A graph of one to eight of these ops, and their helper ops."""
    return Maker(rng, int(rng.integers(1, 9)) if ops is None else ops).graph()


def random_options(rng: np.random.Generator) -> dict[str, str]:
    """A preset, and sometimes additional options that are valid for every graph."""
    options = {"preset": str(rng.choice(PRESET_NAMES))}
    for name in ("clock-enable", "shared-requant"):
        if rng.random() < 0.3:
            options[name] = str(rng.choice(["yes", "no"]))
    for name in ("parallel", "lanes"):
        if rng.random() < 0.1:
            options[name] = "1"
    return options


def inputs_of(graph: Any, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Values for the inputs, including the limits of their range."""
    values = {}
    for a in graph.inputs:
        low, high = int(a.shape.dtype.min), int(a.shape.dtype.max)
        drawn = rng.integers(low, high + 1, a.shape.static)
        ends = rng.random(drawn.shape)
        values[a.name] = np.where(ends < 0.05, low, np.where(ends > 0.95, high, drawn)).astype(a.shape.dtype.numpy)
    return values

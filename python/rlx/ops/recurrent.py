"""Recurrences over a sequence. Values that do not depend on the carry are computed before the loop, which is a scan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import FLOATS
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.ir.op.card import Attributes, Card, Cost, OpSample, SampleOperand, Shapes, moved_bytes, sample
from rlx.ir.shape import DimLike, Shape
from rlx.ops.lift import cast, same_dtype
from rlx.ops.norm import statistics_input
from rlx.ops.rules import move_axis
from rlx.support.errors import ShapeError

V = TypeVar("V")


def expect_dims(name: str, shape: Shape, *dims: Dim) -> None:
    """Check that an operand has these dimensions.

    Raises:
        ShapeError: It has other dimensions.
    """
    if shape.dims != dims:
        raise ShapeError(f"{name} must be [{', '.join(map(str, dims))}], got {shape}")


def sizes_of(name: str, shape: Shape, axes: str) -> tuple[Dim, ...]:
    """Return the dimensions of an operand with the given axes, one letter per axis.

    Raises:
        ShapeError: It has another rank.
    """
    if shape.rank != len(axes):
        raise ShapeError(f"{name} must be [{', '.join(axes)}], got {shape}")
    return shape.dims


def _swapped(b: Builder, x: Tensor) -> Tensor:
    """Swap batch and time: scans run along the first axis."""
    return move_axis(b, x, 0, 1)


def _wide(*arrays: np.ndarray) -> list[np.ndarray]:
    return [a.astype(np.float64) for a in arrays]


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


class SelectiveScan(Card, op="selective_scan"):
    def infer(self, x: Shape, delta: Shape, a: Shape, b: Shape, c: Shape) -> Shape:
        same_dtype(x, delta, a, b, c)
        batch, steps, width = sizes_of("x", x, "BSH")
        _, size = sizes_of("a", a, "HN")
        expect_dims("delta", delta, batch, steps, width)
        expect_dims("a", a, width, size)
        expect_dims("b", b, batch, steps, size)
        expect_dims("c", c, batch, steps, size)
        return x

    def evaluate(self, x: np.ndarray, delta: np.ndarray, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        wide_x, wide_delta, wide_a, wide_b, wide_c = _wide(x, delta, a, b, c)
        state = np.zeros((x.shape[0], *a.shape))
        result = np.zeros(x.shape)
        for step in range(x.shape[1]):
            change = (wide_delta[:, step] * wide_x[:, step])[..., None] * wide_b[:, step, None, :]
            state = np.exp(wide_delta[:, step, :, None] * wide_a) * state + change
            result[:, step] = np.einsum("bhn,bn->bh", state, wide_c[:, step])
        return result.astype(x.dtype)

    def decompose(self, builder: Builder, x: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        batch, _, width = x.shape.dims
        size = a.shape.dims[1]
        rates = statistics_input(builder, a)
        sequences = [_swapped(builder, statistics_input(builder, t)) for t in (x, delta, b, c)]
        state = builder.expand(builder.constant(0.0, dtype=rates.dtype), (batch, width, size))

        # For all steps, exp(delta·a) and delta·b·x would have N times the size of x, so each step computes its own
        # part.
        def step(state: Tensor, slices: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
            x_t, delta_t, b_t, c_t = slices
            decay = builder.exp(builder.reshape(delta_t, (batch, width, 1)) * rates)
            change = builder.reshape(delta_t * x_t, (batch, width, 1)) * builder.reshape(b_t, (batch, 1, size))
            state = decay * state + change
            return state, builder.sum(state * builder.reshape(c_t, (batch, 1, size)), -1)

        _, rows = builder.scan(step, state, sequences)
        return cast(builder, _swapped(builder, rows), x.dtype)

    def build(
        self,
        builder: Builder,
        x: Tensor,
        delta: Tensor,
        a: Tensor,
        b: Tensor,
        c: Tensor,
        state_size: int | None = None,
    ) -> Tensor:
        result = builder.emit("selective_scan", (x, delta, a, b, c))
        if state_size is not None and a.shape.dims[1] != state_size:
            raise ShapeError(f"state_size is {state_size}, but a is {a.shape} = [H, N]")
        return result

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(7 * results[0].num_elements * operands[2].dims[1], moved_bytes(operands, results))

    def samples(self) -> Iterable[OpSample]:
        def case(batch: DimLike, steps: DimLike, width: int, size: int, **options: Any) -> OpSample:
            rates = SampleOperand((width, size), low=-1.5, high=-0.2)
            steps_of = SampleOperand((batch, steps, width), low=0.05, high=1)
            return sample((batch, steps, width), steps_of, rates, (batch, steps, size), (batch, steps, size), **options)

        yield case(2, 6, 3, 4, dtypes=FLOATS)
        yield case(1, 19, 5, 1, dtypes=("f32",))
        yield case(2, 0, 3, 4, dtypes=("f32",))
        yield case("batch", "seq", 3, 4, dtypes=("f32", "f16"))


@dataclass(frozen=True)
class DeltaNetInputs(ArgumentGroup, Generic[V]):
    """The inputs of all steps of a gated delta net: shapes, arrays or tensors."""

    q: V
    k: V
    v: V
    g: V
    beta: V

    def __iter__(self) -> Iterator[V]:
        return iter((self.q, self.k, self.v, self.g, self.beta))


class GatedDeltaNetCarry(Card, op="gated_delta_net_carry"):
    def infer(self, inputs: DeltaNetInputs[Shape], state: Shape) -> tuple[Shape, Shape]:
        batch, _, heads, size = _delta_net_sizes(inputs)
        q = inputs.q
        same_dtype(q, state)
        expect_dims("state", state, batch, heads, size, size)
        return q, state

    def evaluate(self, inputs: DeltaNetInputs[np.ndarray], state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return _delta_net(inputs, state)

    def decompose(self, b: Builder, inputs: DeltaNetInputs[Tensor], state: Tensor) -> tuple[Tensor, Tensor]:
        q = inputs.q
        batch, _, heads, size = q.shape.dims
        assert type(size) is int
        query = statistics_input(b, q) * size**-0.5
        decay = b.exp(statistics_input(b, inputs.g))
        key, value, rate = (statistics_input(b, t) for t in (inputs.k, inputs.v, inputs.beta))
        sequences = [_swapped(b, t) for t in (query, key, value, decay, rate)]

        def along(x: Tensor, *dims: Dim) -> Tensor:
            return b.reshape(x, (batch, heads, *dims))

        def step(s: Tensor, slices: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
            query, key, value, decay, rate = slices
            s = s * along(decay, 1, 1)
            predicted = b.sum(s * along(key, size, 1), 2)
            change = (value - predicted) * along(rate, 1)
            s = s + along(key, size, 1) * along(change, 1, size)
            return s, b.sum(s * along(query, size, 1), 2)

        last, rows = b.scan(step, statistics_input(b, state), sequences)
        return cast(b, _swapped(b, rows), q.dtype), cast(b, last, state.dtype)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return _delta_net_cost(operands, results)

    def samples(self) -> Iterable[OpSample]:
        yield _delta_net_case(2, 5, 3, 4, state=True, dtypes=FLOATS)
        yield _delta_net_case(1, 0, 2, 3, state=True, dtypes=("f32",))
        yield _delta_net_case("batch", "seq", 2, 4, state=True, dtypes=("f32",))


class GatedDeltaNet(Card, op="gated_delta_net"):
    def infer(self, inputs: DeltaNetInputs[Shape]) -> Shape:
        _delta_net_sizes(inputs)
        return inputs.q

    def evaluate(self, inputs: DeltaNetInputs[np.ndarray]) -> np.ndarray:
        q = inputs.q
        state = np.zeros((q.shape[0], *q.shape[2:], q.shape[3]), q.dtype)
        return _delta_net(inputs, state)[0]

    def decompose(self, b: Builder, inputs: DeltaNetInputs[Tensor]) -> Tensor:
        q = inputs.q
        batch, _, heads, size = q.shape.dims
        state = b.expand(b.constant(0.0, dtype=q.dtype), (batch, heads, size, size))
        return b.emit("gated_delta_net_carry", (*inputs, state))[0]

    def build(
        self, b: Builder, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        """With a state, it returns the results of `gated_delta_net_carry`: the result and the next state."""
        if state is not None:
            return b.gated_delta_net_carry(q, k, v, g, beta, state)
        return b.emit("gated_delta_net", (q, k, v, g, beta))

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return _delta_net_cost(operands, results)

    def samples(self) -> Iterable[OpSample]:
        yield _delta_net_case(2, 5, 3, 4, state=False, dtypes=FLOATS)
        yield _delta_net_case("batch", "seq", 2, 4, state=False, dtypes=("f32",))


def _delta_net(inputs: DeltaNetInputs[np.ndarray], state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The result and the last state."""
    q = inputs.q
    query, key, value, decay, rate, s = _wide(*inputs, state)
    result = np.zeros(q.shape)
    for step in range(q.shape[1]):
        s = s * np.exp(decay[:, step])[..., None, None]
        predicted = np.einsum("bhkv,bhk->bhv", s, key[:, step])
        change = (value[:, step] - predicted) * rate[:, step, :, None]
        s = s + key[:, step, :, :, None] * change[:, :, None, :]
        result[:, step] = np.einsum("bhkv,bhk->bhv", s, query[:, step]) * q.shape[3] ** -0.5
    return result.astype(q.dtype), s.astype(state.dtype)


def _delta_net_sizes(inputs: DeltaNetInputs[Shape]) -> tuple[Dim, ...]:
    q = inputs.q
    same_dtype(*inputs)
    dims = sizes_of("q", q, "BSHN")
    if type(dims[3]) is not int or dims[3] < 1:
        raise ShapeError(f"the size N of the heads must be a positive number, since q is divided by sqrt(N); got q {q}")
    for name, shape in (("k", inputs.k), ("v", inputs.v)):
        expect_dims(name, shape, *dims)
    for name, shape in (("g", inputs.g), ("beta", inputs.beta)):
        expect_dims(name, shape, *dims[:3])
    return dims


def _delta_net_cost(operands: Shapes, results: Shapes) -> Cost:
    return Cost(7 * operands[0].num_elements * operands[0].dims[3], moved_bytes(operands, results))


def _delta_net_case(
    batch: DimLike, steps: DimLike, heads: int, size: int, *, state: bool, dtypes: Sequence[str]
) -> OpSample:
    vectors = SampleOperand((batch, steps, heads, size), low=-0.7, high=0.7)
    decay = SampleOperand((batch, steps, heads), low=-1, high=0)
    rate = SampleOperand((batch, steps, heads), low=0, high=1)
    carried = [SampleOperand((batch, heads, size, size))] if state else []
    return sample(vectors, vectors, vectors, decay, rate, *carried, dtypes=dtypes)


def _check_cell(x: Shape, w_input: Shape, w_hidden: Shape, gates: int, **vectors: Shape) -> None:
    """Check the weights and biases of a cell with `gates` gates; `vectors` are states and biases."""
    same_dtype(x, w_input, w_hidden, *vectors.values())
    batch, _, width = sizes_of("x", x, "BSI")
    _, hidden = sizes_of("h", vectors["h"], "BH")
    expect_dims("w_input", w_input, width, gates * hidden)
    expect_dims("w_hidden", w_hidden, hidden, gates * hidden)
    for name, shape in vectors.items():
        expect_dims(name, shape, *((batch, hidden) if name in ("h", "c") else (gates * hidden,)))


def _projected(b: Builder, x: Tensor, w_input: Tensor, bias: Tensor) -> Tensor:
    """Return `x·w_input + bias` for all steps at once, `[S, B, gates·H]` in wide precision."""
    return _swapped(b, b.matmul(statistics_input(b, x), statistics_input(b, w_input)) + statistics_input(b, bias))


def _gates(b: Builder, x: Tensor, count: int) -> list[Tensor]:
    """Split the last axis into equal parts."""
    size = x.shape.dims[-1] // count
    return [b.narrow(x, -1, i * size, size) for i in range(count)]


def _cell_cost(operands: Shapes, results: Shapes, gates: int) -> Cost:
    x, hidden = operands[0], operands[1].dims[1]
    batch, steps, width = x.dims
    work = 2 * gates * (width + hidden) + 10 * gates
    return Cost(batch * steps * hidden * work, moved_bytes(operands, results))


@dataclass(frozen=True)
class LstmWeights(ArgumentGroup, Generic[V]):
    """The weights of an `lstm`: shapes, arrays or tensors."""

    w_input: V
    w_hidden: V
    bias: V


class Lstm(Card, op="lstm"):
    def infer(
        self, x: Shape, h: Shape, c: Shape, weights: LstmWeights[Shape], **_: object
    ) -> tuple[Shape, Shape, Shape]:
        _check_cell(x, weights.w_input, weights.w_hidden, 4, h=h, c=c, bias=weights.bias)
        return x.with_dims((*x.dims[:2], h.dims[1])), h, c

    def evaluate(
        self,
        x: np.ndarray,
        h: np.ndarray,
        c: np.ndarray,
        weights: LstmWeights[np.ndarray],
        *,
        reverse: bool,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        weight, recurrent, shift = _wide(weights.w_input, weights.w_hidden, weights.bias)
        steps, state, cell = _wide(x, h, c)
        inputs = steps @ weight + shift
        result = np.zeros((*x.shape[:2], h.shape[1]))
        for step in range(x.shape[1])[:: -1 if reverse else 1]:
            i, f, g, o = np.split(inputs[:, step] + state @ recurrent, 4, -1)
            cell = _sigmoid(f) * cell + _sigmoid(i) * np.tanh(g)
            state = _sigmoid(o) * np.tanh(cell)
            result[:, step] = state
        return result.astype(x.dtype), state.astype(x.dtype), cell.astype(x.dtype)

    def decompose(
        self, b: Builder, x: Tensor, h: Tensor, c: Tensor, weights: LstmWeights[Tensor], *, reverse: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        recurrent = statistics_input(b, weights.w_hidden)

        def step(carry: tuple[Tensor, Tensor], inputs: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
            h, c = carry
            i, f, g, o = _gates(b, inputs + b.matmul(h, recurrent), 4)
            c = b.sigmoid(f) * c + b.sigmoid(i) * b.tanh(g)
            h = b.sigmoid(o) * b.tanh(c)
            return (h, c), h

        inputs = _projected(b, x, weights.w_input, weights.bias)
        last, rows = b.scan(step, (statistics_input(b, h), statistics_input(b, c)), inputs, reverse=reverse)
        return cast(b, _swapped(b, rows), x.dtype), cast(b, last[0], x.dtype), cast(b, last[1], x.dtype)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return _cell_cost(operands, results, 4)

    def samples(self) -> Iterable[OpSample]:
        def case(batch: DimLike, steps: DimLike, width: int, hidden: int, **options: Any) -> OpSample:
            weights = [(width, 4 * hidden), (hidden, 4 * hidden), (4 * hidden,)]
            return sample((batch, steps, width), (batch, hidden), (batch, hidden), *weights, **options)

        yield case(2, 5, 3, 4, dtypes=FLOATS)
        yield case(2, 4, 3, 2, reverse=True, dtypes=("f32",))
        yield case(1, 0, 3, 4, dtypes=("f32",))
        yield case("batch", "seq", 3, 4, dtypes=("f32",))


@dataclass(frozen=True)
class GruWeights(ArgumentGroup, Generic[V]):
    """The weights of a `gru`: shapes, arrays or tensors."""

    w_input: V
    w_hidden: V
    bias_input: V
    bias_hidden: V


class Gru(Card, op="gru"):
    def infer(self, x: Shape, h: Shape, weights: GruWeights[Shape], **_: object) -> tuple[Shape, Shape]:
        biases = {"bias_input": weights.bias_input, "bias_hidden": weights.bias_hidden}
        _check_cell(x, weights.w_input, weights.w_hidden, 3, h=h, **biases)
        return x.with_dims((*x.dims[:2], h.dims[1])), h

    def evaluate(
        self, x: np.ndarray, h: np.ndarray, weights: GruWeights[np.ndarray], *, reverse: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        steps, state, weight, recurrent = _wide(x, h, weights.w_input, weights.w_hidden)
        shift, hidden_shift = _wide(weights.bias_input, weights.bias_hidden)
        inputs = steps @ weight + shift
        result = np.zeros((*x.shape[:2], h.shape[1]))
        for step in range(x.shape[1])[:: -1 if reverse else 1]:
            a_r, a_z, a_n = np.split(inputs[:, step], 3, -1)
            b_r, b_z, b_n = np.split(state @ recurrent + hidden_shift, 3, -1)
            z = _sigmoid(a_z + b_z)
            state = (1 - z) * np.tanh(a_n + _sigmoid(a_r + b_r) * b_n) + z * state
            result[:, step] = state
        return result.astype(x.dtype), state.astype(x.dtype)

    def decompose(
        self, b: Builder, x: Tensor, h: Tensor, weights: GruWeights[Tensor], *, reverse: bool
    ) -> tuple[Tensor, Tensor]:
        recurrent, shift = statistics_input(b, weights.w_hidden), statistics_input(b, weights.bias_hidden)

        def step(h: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
            a_r, a_z, a_n = _gates(b, inputs, 3)
            b_r, b_z, b_n = _gates(b, b.matmul(h, recurrent) + shift, 3)
            z = b.sigmoid(a_z + b_z)
            h = (1.0 - z) * b.tanh(a_n + b.sigmoid(a_r + b_r) * b_n) + z * h
            return h, h

        inputs = _projected(b, x, weights.w_input, weights.bias_input)
        last, rows = b.scan(step, statistics_input(b, h), inputs, reverse=reverse)
        return cast(b, _swapped(b, rows), x.dtype), cast(b, last, x.dtype)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return _cell_cost(operands, results, 3)

    def samples(self) -> Iterable[OpSample]:
        def case(batch: DimLike, steps: DimLike, width: int, hidden: int, **options: Any) -> OpSample:
            weights = [(width, 3 * hidden), (hidden, 3 * hidden), (3 * hidden,), (3 * hidden,)]
            return sample((batch, steps, width), (batch, hidden), *weights, **options)

        yield case(2, 5, 3, 4, dtypes=FLOATS)
        yield case(2, 4, 3, 2, reverse=True, dtypes=("f32",))
        yield case("batch", "seq", 3, 4, dtypes=("f32",))

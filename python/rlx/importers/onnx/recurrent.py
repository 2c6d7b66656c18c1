"""RNN, GRU and LSTM with all ONNX options: directions, lengths, peepholes, clipping, other activations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rlx.importers.onnx.rules import (
    element_count,
    imports,
    static_dims,
)
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.support.errors import UnsupportedError

# Each is a function of the graph, a tensor, alpha and beta. ONNX's defaults are in `_DEFAULTS`.
_ACTIVATIONS: dict[str, Callable[..., Tensor]] = {
    "sigmoid": lambda g, x, a, b: g.sigmoid(x),
    "tanh": lambda g, x, a, b: g.tanh(x),
    "relu": lambda g, x, a, b: g.relu(x),
    "affine": lambda g, x, a, b: g.add(g.mul(x, a), b),
    "leakyrelu": lambda g, x, a, b: g.leaky_relu(x, a),
    "thresholdedrelu": lambda g, x, a, b: g.where(g.gt(x, a), x, 0.0),
    "scaledtanh": lambda g, x, a, b: g.mul(g.tanh(g.mul(x, b)), a),
    "hardsigmoid": lambda g, x, a, b: g.clamp(g.add(g.mul(x, a), b), 0.0, 1.0),
    "elu": lambda g, x, a, b: g.elu(x, a),
    "softsign": lambda g, x, a, b: g.soft_sign(x),
    "softplus": lambda g, x, a, b: g.softplus(x),
}
_DEFAULTS = {
    **{"affine": (1.0, 0.0), "leakyrelu": (0.01, 0.0), "thresholdedrelu": (1.0, 0.0), "scaledtanh": (1.0, 1.0)},
    **{"hardsigmoid": (0.2, 0.5), "elu": (1.0, 0.0)},
}
# The activations that have an alpha and a beta, in the order of the attribute lists.
_WITH_ALPHA = ("affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu")
_WITH_BETA = ("affine", "scaledtanh", "hardsigmoid")


@dataclass(frozen=True)
class RecurrentOperands(ArgumentGroup):
    """The operands of recurrent ops, in their order: `w` multiplies the input, `r` the hidden state."""

    x: Tensor
    w: Tensor
    r: Tensor
    b: Tensor | None = None
    lengths: Tensor | None = None
    h: Tensor | None = None

    @property
    def states(self) -> list[Tensor | None]:
        """The states before, each None if it is left out."""
        return [self.h]


@dataclass(frozen=True)
class LstmOperands(RecurrentOperands):
    """Operands of an LSTM: those of every recurrent op, a cell state and peepholes."""

    c: Tensor | None = None
    peepholes: Tensor | None = None

    @property
    def states(self) -> list[Tensor | None]:
        return [self.h, self.c]


@dataclass(frozen=True, kw_only=True)
class CellAttributes(ArgumentGroup):
    """The attributes that all recurrent ops have, with ONNX's names."""

    activation_alpha: Sequence[float] | None = None
    activation_beta: Sequence[float] | None = None
    activations: Sequence[str] | None = None
    clip: float = 0.0
    direction: str = "forward"
    hidden_size: int | None = None

    def functions(self, default: Sequence[str], directions: int) -> list[list[Callable[[Graph, Tensor], Tensor]]]:
        """The activations of each direction, as functions of the graph and a tensor."""
        given = [n.lower() for n in self.activations] if self.activations else list(default) * directions
        if len(given) != len(default) * directions or any(n not in _ACTIVATIONS for n in given):
            raise UnsupportedError(f"with the activations {', '.join(given)} cannot be imported")
        alpha, beta = iter(self.activation_alpha or ()), iter(self.activation_beta or ())
        made = []
        for name in given:
            first, second = _DEFAULTS.get(name, (0.0, 0.0))
            first = next(alpha, first) if name in _WITH_ALPHA else first
            second = next(beta, second) if name in _WITH_BETA else second
            made.append(lambda g, x, f=_ACTIVATIONS[name], a=first, b=second: f(g, x, a, b))
        return [made[i : i + len(default)] for i in range(0, len(made), len(default))]


@dataclass(frozen=True, kw_only=True)
class LayoutAttributes(CellAttributes):
    """The attributes of recurrent ops with a `layout`: 1 puts the batch axis first."""

    layout: int = 0


def _loop(
    g: Graph, x: Tensor, lengths: Tensor | None, states: Sequence[Tensor], step: Callable[..., Any], reverse: bool
) -> tuple[Tensor, list[Tensor]]:
    """Run a recurrence. Return the first state after each step, zero after the end of a sequence, and all final states.

    Args:
        g: The graph.
        x: `[sequence, batch, …]`.
        lengths: The number of steps of each sequence, `[batch]`, or None for all.
        states: The initial states, each `[batch, hidden]`.
        step: A function from the states and a slice of `x` to the next states.
        reverse: Whether a sequence is read from its end.
    """
    numbers = g.iota((x.shape.dims[0],), 0, "i32")

    def masked(carry: Sequence[Tensor], slices: Sequence[Tensor]) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        now, number = slices
        following = step(carry, now)
        if lengths is None:
            return tuple(following), (following[0],)
        inside = g.reshape(g.lt(number, g.cast(lengths, "i32")), (-1, 1))
        kept = tuple(g.where(inside, new, old) for new, old in zip(following, carry, strict=True))
        return kept, (g.where(inside, following[0], 0.0),)

    last, stacked = g.scan(masked, tuple(states), (x, numbers), reverse=reverse)
    return stacked[0], list(last)


class Cell:
    """Shared code of RNN, GRU and LSTM. The products of inputs and weights of all steps are computed before the loop.

    Args:
        g: The graph.
        operands: The operands.
        attributes: The attributes.
        batch_first: Whether the first axis is the batch.
        hidden_axis: The axis of the weights of states that has the size of a state.
        has_late_bias: Whether steps add the second bias, that of the products of states, by themselves.
    """

    def __init__(
        self,
        g: Graph,
        operands: RecurrentOperands,
        attributes: CellAttributes,
        batch_first: bool,
        hidden_axis: int = -1,
        has_late_bias: bool = False,
    ):
        x, w, self.b, self.lengths = operands.x, operands.w, operands.b, operands.lengths
        self.g, self.w, self.r, self.batch_first = g, w, operands.r, batch_first
        self.has_late_bias = has_late_bias
        (self.hidden,) = static_dims(self.r, hidden_axis)
        self.x = g.transpose(x, (1, 0, 2)) if self.batch_first else x
        self.directions = element_count(static_dims(w, 0)[0], "directions", 2)
        direction = attributes.direction
        if direction not in ("forward", "reverse", "bidirectional") or (direction == "bidirectional") != (
            self.directions == 2
        ):
            raise UnsupportedError(f"with the direction '{direction}' and {self.directions} weights cannot be imported")
        self.reverse = [direction == "reverse", True][: self.directions]
        batch = self.x.shape.dims[1]
        zeros = g.zeros((self.directions, batch, self.hidden), dtype=x.dtype)
        self.states = [
            zeros if s is None else g.transpose(s, (1, 0, 2)) if self.batch_first else s for s in operands.states
        ]
        clip = attributes.clip
        self.clip = (lambda t: t) if not clip else (lambda t: g.clamp(t, -clip, clip))

    def run(self, step: Callable[..., Any], outputs: int) -> list[Tensor]:
        """Return the results, for a function that returns the step of a direction."""
        g = self.g
        sequences, last = [], []
        for d in range(self.directions):
            before = [s[d] for s in self.states]
            stacked, states = _loop(g, self.sequence(d), self.lengths, before, step(d), self.reverse[d])
            sequences.append(stacked)
            last.append(states)
        end = 1 if self.batch_first else 0
        whole = g.stack(sequences, 1)
        whole = g.transpose(whole, (2, 0, 1, 3)) if self.batch_first else whole
        return [whole, *(g.stack([s[i] for s in last], end) for i in range(len(self.states)))][:outputs]

    def sequence(self, d: int) -> Tensor:
        """Return the products of a sequence with the weights of a direction, plus biases: `[sequence, batch, gates]`."""
        products = self.of_inputs(d)
        if self.b is None:
            return products
        first, second = self.g.split(self.b[d], 2)
        return self.g.add(products, first if self.has_late_bias else self.g.add(first, second))

    def of_inputs(self, d: int) -> Tensor:
        """Return the products of a sequence with the weights of a direction."""
        return self.g.matmul(self.x, self.g.transpose(self.w[d], (1, 0)))

    def sums(self, d: int, now: Tensor, hidden: Tensor) -> list[Tensor]:
        """Return the sums of all gates, for an element of a sequence of `sequence`."""
        return self.parts(self.g.add(now, self.of_hidden(d, hidden)))

    def of_hidden(self, d: int, hidden: Tensor) -> Tensor:
        """Return the products of a state with the weights of a direction."""
        return self.g.matmul(hidden, self.g.transpose(self.r[d], (1, 0)))

    def parts(self, t: Tensor) -> list[Tensor]:
        """Split a tensor into gates along the last axis."""
        count = element_count(static_dims(t, -1)[0] // self.hidden, "gates", 4)
        return [self.g.narrow(t, -1, k * self.hidden, self.hidden) for k in range(count)]


@imports("RNN")
def rnn(g: Graph, operands: RecurrentOperands, *, outputs: int, attributes: LayoutAttributes) -> list[Tensor]:
    cell = Cell(g, operands, attributes, bool(attributes.layout))
    functions = attributes.functions(("tanh",), cell.directions)

    def step(d: int) -> Any:
        return lambda carry, now: [functions[d][0](g, cell.clip(cell.sums(d, now, carry[0])[0]))]

    return cell.run(step, outputs)


@imports("GRU")
def gru(
    g: Graph,
    operands: RecurrentOperands,
    *,
    outputs: int,
    attributes: LayoutAttributes,
    linear_before_reset: int = 0,
) -> list[Tensor]:
    """Run a GRU, gates in the order update, reset, hidden. With `linear_before_reset`, the reset follows the product."""
    cell = Cell(g, operands, attributes, bool(attributes.layout), has_late_bias=True)
    functions = attributes.functions(("sigmoid", "tanh"), cell.directions)
    r, b = operands.r, operands.b

    def step(d: int) -> Any:
        f, h_of = functions[d]
        size = 3 * cell.hidden
        of_hidden = None if b is None else g.split(b[d], 2)[1]
        columns = g.transpose(r[d], (1, 0))

        def next_states(carry: Sequence[Tensor], now: Tensor) -> list[Tensor]:
            before = carry[0]
            right = g.matmul(before, columns)
            right = right if of_hidden is None else g.add(right, of_hidden)
            (xz, xr, xh), (hz, hr, hh) = cell.parts(now), cell.parts(right)
            z, reset = f(g, cell.clip(g.add(xz, hz))), f(g, cell.clip(g.add(xr, hr)))
            if linear_before_reset:
                candidate = g.add(xh, g.mul(reset, hh))
            else:
                inner = g.matmul(g.mul(reset, before), g.narrow(columns, 1, size - cell.hidden, cell.hidden))
                inner = inner if of_hidden is None else g.add(inner, cell.parts(of_hidden)[2])
                candidate = g.add(xh, inner)
            candidate = h_of(g, cell.clip(candidate))
            return [g.add(g.mul(g.sub(1.0, z), candidate), g.mul(z, before))]

        return next_states

    return cell.run(step, outputs)


@dataclass(frozen=True, kw_only=True)
class LstmAttributes(LayoutAttributes):
    """The attributes of an LSTM, with ONNX's names."""

    input_forget: int = 0


@imports("LSTM")
def lstm(g: Graph, operands: LstmOperands, *, outputs: int, attributes: LstmAttributes) -> list[Tensor]:
    """Run an LSTM, gates in the order input, output, forget, cell, and peepholes in the order input, output, forget."""
    cell = Cell(g, operands, attributes, bool(attributes.layout))
    return run_lstm(g, cell, operands.peepholes, attributes, bool(attributes.input_forget), outputs)


def run_lstm(
    g: Graph, cell: Cell, peepholes: Tensor | None, attributes: CellAttributes, is_coupled: bool, outputs: int
) -> list[Tensor]:
    """Return the results of an LSTM.

    Args:
        g: The graph.
        cell: Its operands, and the products of its weights.
        peepholes: The weights of its states, or None.
        attributes: Its attributes.
        is_coupled: Whether it forgets what it does not take in.
        outputs: The number of results.
    """
    functions = attributes.functions(("sigmoid", "tanh", "tanh"), cell.directions)

    def step(d: int) -> Any:
        f, g_of, h_of = functions[d]
        peep: Sequence[Tensor | None] = [None] * 3 if peepholes is None else cell.parts(peepholes[d])

        def seen(total: Tensor, state: Tensor, weight: Tensor | None) -> Tensor:
            return cell.clip(total if weight is None else g.add(total, g.mul(state, weight)))

        def next_states(carry: Sequence[Tensor], now: Tensor) -> list[Tensor]:
            hidden, before = carry
            to_input, to_output, to_forget, to_cell = cell.sums(d, now, hidden)
            enters = f(g, seen(to_input, before, peep[0]))
            stays = g.sub(1.0, enters) if is_coupled else f(g, seen(to_forget, before, peep[2]))
            state = g.add(g.mul(stays, before), g.mul(enters, g_of(g, cell.clip(to_cell))))
            leaves = f(g, seen(to_output, state, peep[1]))
            return [g.mul(leaves, h_of(g, state)), state]

        return next_states

    return cell.run(step, outputs)

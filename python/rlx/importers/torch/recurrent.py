"""Recurrent networks: one scan per layer and direction. PyTorch's decompositions would unroll all steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rlx.functions.recurrent import stacked
from rlx.importers.torch.rules import aten
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.support.errors import UnsupportedError

# From x [B, S, I], the states [B, H], the weights of a layer, and whether it goes backwards: the sequence and the last states.
Layer = Callable[[Graph, Tensor, Sequence[Tensor], Sequence[Tensor], bool], Sequence[Tensor]]


@dataclass(frozen=True)
class RecurrentOptions(ArgumentGroup):
    """The options of a recurrent network, in PyTorch's order."""

    has_biases: bool
    num_layers: int
    dropout: float
    train: bool
    bidirectional: bool
    batch_first: bool


def _run(
    g: Graph,
    x: Tensor,
    states: Sequence[Tensor],
    params: Sequence[Tensor],
    layer: Layer,
    options: RecurrentOptions,
) -> list[Tensor]:
    """Run all layers. The states are `[layers·directions, B, H]`. An unbatched sequence is treated as a batch of one."""
    num_layers, batch_first = options.num_layers, options.batch_first
    if options.train and options.dropout > 0 and num_layers > 1:
        raise UnsupportedError("with dropout cannot be imported", hint="module.eval() before it")
    single = x.rank == 2
    if single:
        x, states = g.expand_dims(x, 0), [g.expand_dims(s, 1) for s in states]
    elif not batch_first:
        x = g.swapaxes(x, 0, 1)
    directions = 2 if options.bidirectional else 1
    count = len(params) // (num_layers * directions)

    def one(x: Tensor, first: Sequence[Any], number: int, direction: int) -> Sequence[Tensor]:
        place = number * directions + direction
        return layer(g, x, first, params[place * count : (place + 1) * count], direction == 1)

    x, ends = stacked(g, x, states, one, num_layers, directions)
    if single:
        return [g.squeeze(x, 0), *(g.squeeze(s, 1) for s in ends)]
    return [x if batch_first else g.swapaxes(x, 0, 1), *ends]


def _scanned(
    g: Graph, x: Tensor, states: Sequence[Tensor], reverse: bool, step: Callable[[Tensor, Any], Sequence[Tensor]]
) -> list[Tensor]:
    """Scan `step` over x. Return the first state of every step, and the last states."""

    def body(carry: Sequence[Tensor], now: Sequence[Tensor]) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        following = tuple(step(now[0], carry))
        return following, (following[0],)

    last, stacked = g.scan(body, tuple(states), (g.swapaxes(x, 0, 1),), reverse=reverse)
    return [g.swapaxes(stacked[0], 0, 1), *last]


def _biases(g: Graph, x: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    if len(weights) > 3:
        return weights[2], weights[3]
    zeros = g.zeros((weights[0].shape.dims[0],), dtype=x.dtype)
    return zeros, zeros


def _lstm(g: Graph, x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor], reverse: bool) -> Sequence[Tensor]:
    if len(weights) in (3, 5):
        return _projected_lstm(g, x, states, weights, reverse)
    (first, second), (hidden, cell) = _biases(g, x, weights), states
    matrices = g.transpose(weights[0]), g.transpose(weights[1])
    return g.lstm(x, hidden, cell, *matrices, g.add(first, second), reverse=reverse)


def _projected_lstm(
    g: Graph, x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor], reverse: bool
) -> Sequence[Tensor]:
    """Run an LSTM with a projection after each step, from the cell output to the smaller hidden state."""
    w_input, w_hidden, projection = (g.transpose(w) for w in (*weights[:2], weights[-1]))
    first, second = _biases(g, x, weights)

    def step(now: Tensor, carry: Sequence[Tensor]) -> list[Tensor]:
        hidden, cell = carry
        total = g.add(g.add(g.matmul(now, w_input), g.matmul(hidden, w_hidden)), g.add(first, second))
        enters, stays, new, leaves = g.split(total, 4, axis=-1)
        cell = g.add(g.mul(g.sigmoid(stays), cell), g.mul(g.sigmoid(enters), g.tanh(new)))
        return [g.matmul(g.mul(g.sigmoid(leaves), g.tanh(cell)), projection), cell]

    return _scanned(g, x, states, reverse, step)


def _gru(g: Graph, x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor], reverse: bool) -> Sequence[Tensor]:
    matrices = g.transpose(weights[0]), g.transpose(weights[1])
    (hidden,) = states
    return g.gru(x, hidden, *matrices, *_biases(g, x, weights), reverse=reverse)


def _plain(method: str) -> Layer:
    def layer(
        g: Graph, x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor], reverse: bool
    ) -> Sequence[Tensor]:
        w_input, w_hidden = g.transpose(weights[0]), g.transpose(weights[1])
        bias = g.add(*_biases(g, x, weights))
        to_all = g.add(g.matmul(x, w_input), bias)

        def step(now: Tensor, carry: Sequence[Tensor]) -> list[Tensor]:
            return [getattr(g, method)(g.add(now, g.matmul(carry[0], w_hidden)))]

        return _scanned(g, to_all, states, reverse, step)

    return layer


@aten("lstm.input")
def lstm(
    g: Graph, x: Tensor, states: Sequence[Tensor], params: Sequence[Tensor], options: RecurrentOptions
) -> list[Tensor]:
    return _run(g, x, states, params, _lstm, options)


def _register(name: str, layer: Layer) -> None:
    @aten(f"{name}.input")
    def rule(g: Graph, x: Tensor, state: Tensor, params: Sequence[Tensor], options: RecurrentOptions) -> list[Tensor]:
        return _run(g, x, [state], params, layer, options)


_register("gru", _gru)
_register("rnn_tanh", _plain("tanh"))
_register("rnn_relu", _plain("relu"))

"""Shared parts of layers that carry a state from token to token: states of graphs, and causal convolution."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from rlx.ir.graph.builder import Tensor
from rlx.support.errors import Error


class RecurrentStates:
    """The states of the recurrent layers of one graph.

    Without the option `context`, each text begins with zeros. With it, the states are those of the graph, f32, and a text
    that begins at position 0 begins with zeros. Options:

    - `slots` other than 0 makes each state one of `[slots, 1, size]`, and adds inputs `read_slots` and `written_slots`,
      `[batch]` i32: where the state of each text is, and where the next one is written.
    - `consecutive=True` makes the rows of a batch consecutive tokens of one text. The state after each is written to its
      slot. The first row reads its slot, and `read_slots` of the others are not used.

    Args:
        g: The graph.
        batch: The number of texts.
        sizes: The options of the graph.
        start: The input `start`; None without `context`.

    Attributes:
        batch: The number of texts whose states a layer computes: 1 for consecutive tokens.
    """

    def __init__(self, g: Any, batch: Any, sizes: Mapping[str, Any], start: Tensor | None):
        self.g, self.batch, self._rows, self._start = g, batch, batch, start
        self._states: dict[str, Tensor] = {}
        self._is_consecutive: bool = sizes["consecutive"]
        for name in ("past", "cache", "attention_mask"):
            if sizes.get(name):
                raise Error(f"graph: '{name}' is not supported by models with recurrent layers", hint="give context=")
        self._slots = _number_of_slots(sizes)
        if self._slots:
            self._read = g.input("read_slots", (batch,), "i32")
            self._written = g.input("written_slots", (batch,), "i32")
        if start is not None:
            self._is_continued = start > 0
        if self._is_consecutive:
            self.batch = 1
            self._read, self._is_continued = (g.narrow(t, 0, 0, 1) for t in (self._read, self._is_continued))

    def in_sequence(self, x: Tensor) -> Tensor:
        """Return the rows `x [B, S, …]` of a layer as it computes them: consecutive tokens are those of one text."""
        return time_first(self.g, x) if self._is_consecutive else x

    def in_rows(self, x: Tensor) -> Tensor:
        """Return the result of a layer as rows of the batch: the inverse of `in_sequence`."""
        return self.in_sequence(x)

    def _previous(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Return the state after the earlier tokens, `[batch, *shape]`."""
        g, dims = self.g, (self.batch, *shape)
        if self._start is None:
            return g.expand(g.constant(0.0, dtype="f32"), dims)
        if self._slots:
            state = g.state(name, (self._slots, 1, prod(shape)), "f32")
            own = g.reshape(g.gather(state, self._read, axis=0), dims)
        else:
            own = state = g.state(name, dims, "f32")
        self._states[name] = state
        is_continued = g.reshape(self._is_continued, (self.batch, *(1 for _ in shape)))
        return g.where(is_continued, own, 0.0)

    def _store(self, name: str, value: Tensor) -> None:
        """Store the states of all rows for later tokens, after `_previous`."""
        g = self.g
        if self._start is None:
            return
        state = self._states[name]
        if self._slots:
            rows = g.reshape(value, (self._rows, 1, state.shape.dims[2]))
            zeros = g.expand(g.constant(0, dtype="i32"), (self._rows,))
            value = g.update_cache(state, rows, zeros, self._written)
        g.update(state, value)

    def scanned(
        self,
        name: str,
        shape: tuple[int, ...],
        scan: Callable[..., tuple[Tensor, Tensor]],
        *sequences: Tensor,
    ) -> Tensor:
        """Return the results of a recurrence for all tokens, `[B, S, …]`.

        Args:
            name: The name of the state.
            shape: Its shape for one text.
            scan: A function from the state and the sequences to the results and the next state.
            *sequences: The inputs of the steps, each `[B, S, …]`.
        """
        state = self._previous(name, shape)
        if not self._is_consecutive:
            results, state = scan(state, *sequences)
            self._store(name, state)
            return results
        # A loop of one step for each token: the result has the bits that it has in a run for one token.
        parts, states = list[Tensor](), list[Tensor]()
        for i in range(self._rows):
            result, state = scan(state, *(self.g.narrow(x, 1, i, 1) for x in sequences))
            parts.append(result)
            states.append(state)
        self._store(name, self.g.concat(states, 0))
        return self.g.concat(parts, 1)

    def convolved(self, name: str, x: Tensor, weight: Tensor) -> Tensor:
        """Return the causal convolution of each channel of `x [B, S, C]` with its row of `weight [C, K]`."""
        g, length = self.g, x.shape.dims[1]
        channels, size = weight.shape.dims
        assert type(channels) is int and type(size) is int
        joined = g.concat([self._previous(name, (size - 1, channels)), x], 1)
        if self._is_consecutive:
            windows = [g.narrow(joined, 1, i + 1, size - 1) for i in range(self._rows)]
            self._store(name, g.concat(windows, 0))
        else:
            self._store(name, g.narrow(joined, 1, length, size - 1))
        columns = [g.reshape(g.narrow(weight, 1, i, 1), (channels,)) for i in range(size)]
        result = g.narrow(joined, 1, 0, length) * columns[0]
        for i in range(1, size):
            result = result + g.narrow(joined, 1, i, length) * columns[i]
        return result


def _number_of_slots(sizes: Mapping[str, Any]) -> int:
    """Return the option `slots`, after checking it and `consecutive`."""
    slots = sizes["slots"]
    if type(slots) is not int or (slots and not sizes["context"]):
        raise Error("graph: 'slots' must be an integer, and needs context=, since states have fixed sizes")
    if sizes["consecutive"] and (not slots or sizes["sequence"] != 1):
        raise Error("graph: 'consecutive' needs slots= and sequence=1: each row of the batch is a token")
    return slots


def start_input(g: Any, sizes: Mapping[str, Any]) -> Tensor:
    """Return the input `start` of a graph with `context`: the position of the first token of each text, i32 `[batch]`."""
    if type(sizes["context"]) is not int or type(sizes["batch"]) is not int:
        raise Error("graph: with context, 'context' and 'batch' must be integers, since states have fixed sizes")
    return g.input("start", (sizes["batch"],), "i32")


def time_first(g: Any, x: Tensor) -> Tensor:
    """Return `x [B, S, …]` as `[S, B, …]`; the function is its own inverse."""
    return g.transpose(x, (1, 0, *range(2, x.shape.rank)))

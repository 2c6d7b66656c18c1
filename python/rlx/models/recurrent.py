"""Shared parts of layers that carry a state from token to token: states of graphs, and causal convolution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlx.ir.graph.builder import Tensor
from rlx.support.errors import Error


class RecurrentStates:
    """The states of the recurrent layers of one graph.

    Without the option `context`, each text begins with zeros. With it, the states are those of the graph, f32, and a text
    that begins at position 0 begins with zeros.

    Args:
        g: The graph.
        batch: The number of texts.
        sizes: The options of the graph.
        start: The input `start`; None without `context`.
    """

    def __init__(self, g: Any, batch: Any, sizes: Mapping[str, Any], start: Tensor | None):
        self.g, self.batch, self._start = g, batch, start
        self._states: dict[str, Tensor] = {}
        for name in ("past", "cache", "attention_mask"):
            if sizes.get(name):
                raise Error(f"graph: '{name}' is not supported by models with recurrent layers", hint="give context=")
        if start is not None:
            self._is_continued = start > 0

    def previous(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Return the state after the earlier tokens, `[batch, *shape]`."""
        g, dims = self.g, (self.batch, *shape)
        if self._start is None:
            return g.expand(g.constant(0.0, dtype="f32"), dims)
        self._states[name] = g.state(name, dims, "f32")
        is_continued = g.reshape(self._is_continued, (self.batch, *(1 for _ in shape)))
        return g.where(is_continued, self._states[name], 0.0)

    def store(self, name: str, value: Tensor) -> None:
        """Store the state for later tokens, after `previous`."""
        if self._start is not None:
            self.g.update(self._states[name], value)

    def convolved(self, name: str, x: Tensor, weight: Tensor) -> Tensor:
        """Return the causal convolution of each channel of `x [B, S, C]` with its row of `weight [C, K]`."""
        g, length = self.g, x.shape.dims[1]
        channels, size = weight.shape.dims
        assert type(channels) is int and type(size) is int
        joined = g.concat([self.previous(name, (size - 1, channels)), x], 1)
        self.store(name, g.narrow(joined, 1, length, size - 1))
        columns = [g.reshape(g.narrow(weight, 1, i, 1), (channels,)) for i in range(size)]
        result = g.narrow(joined, 1, 0, length) * columns[0]
        for i in range(1, size):
            result = result + g.narrow(joined, 1, i, length) * columns[i]
        return result


def start_input(g: Any, sizes: Mapping[str, Any]) -> Tensor | None:
    """Return the input `start` of a graph with states; None without `context`."""
    if not sizes["context"]:
        return None
    if type(sizes["context"]) is not int or type(sizes["batch"]) is not int:
        raise Error("graph: with context, 'context' and 'batch' must be integers, since states have fixed sizes")
    return g.input("start", (sizes["batch"],), "i32")


def time_first(g: Any, x: Tensor) -> Tensor:
    """Return `x [B, S, …]` as `[S, B, …]`; the function is its own inverse."""
    return g.transpose(x, (1, 0, *range(2, x.shape.rank)))

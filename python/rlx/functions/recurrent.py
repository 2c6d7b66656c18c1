"""Layers of recurrent cells over each other, in one direction or two."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx.ir.graph.builder import Builder, Tensor


def stacked(
    b: Builder,
    x: Tensor,
    states: Sequence[Tensor | None],
    layer: Callable[[Tensor, list[Tensor | None], int, int], Sequence[Tensor]],
    num_layers: int,
    directions: int,
    between: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, list[Tensor]]:
    """Run layers of recurrent cells. Each reads the joined results of both directions of the layer before.

    Args:
        b: The graph.
        x: `[B, S, I]`.
        states: The initial states of every layer and direction, each `[layers·directions, B, H]`, or None.
        layer: `layer(x, first, number, direction)` returns the sequence and the last states `[B, H]` of one layer and
            direction. `first` has its initial states `[B, H]`, or None.
        num_layers: The number of layers.
        directions: 1, or 2 for both.
        between: Applied to the sequence between two layers.

    Returns:
        The sequence, and the last states, each `[layers·directions, B, H]`.
    """
    last: list[list[Tensor]] = [[] for _ in states]
    for number in range(num_layers):
        if number and between is not None:
            x = between(x)
        parts: list[Tensor] = []
        for direction in range(directions):
            place = number * directions + direction
            first = [None if s is None else b.squeeze(b.narrow(s, 0, place, 1), 0) for s in states]
            y, *following = layer(x, first, number, direction)
            parts.append(y)
            for collected, state in zip(last, following, strict=True):
                collected.append(b.expand_dims(state, 0))
        x = parts[0] if len(parts) == 1 else b.concat(parts, -1)
    return x, [s[0] if len(s) == 1 else b.concat(s, 0) for s in last]

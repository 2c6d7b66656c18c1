"""A recurrent network of 8-bit integers, quantised by hand from a network of floats."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx

# Scales of the gates, of the cell and of the input; results of sigmoid have 1/256 and those of tanh 1/128.
GATE, CELL, INPUT = 1 / 16, 2.0**-11, 1 / 32


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


class FloatLstm:
    """A network of floats: an LSTM over a sequence, and a dense layer of its last state.

    Args:
        steps: The length of the sequence.
        width: The elements of a step.
        hidden: The elements of the state.
    """

    def __init__(self, steps: int, width: int = 8, hidden: int = 16):
        rng = np.random.default_rng(3)
        self.steps, self.width, self.hidden = steps, width, hidden
        self.w = rng.normal(0, 0.5, (width, 4 * hidden))
        self.u = rng.normal(0, 0.3, (hidden, 4 * hidden))
        self.bias = rng.normal(0, 0.2, 4 * hidden)
        self.head = rng.normal(0, 0.5, (hidden, 4))

    def run(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the scores and all states for a sequence `[steps, width]`."""
        h, c, every = np.zeros(self.hidden), np.zeros(self.hidden), []
        for row in x:
            i, f, g, o = np.split(row @ self.w + h @ self.u + self.bias, 4)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            every.append(h)
        return h @ self.head, np.array(every)

    def quantized(self) -> rlx.Graph:
        """The same network of integers: inputs of scale `INPUT`, states of 1/128, scores of 1/16."""
        g: Any = rlx.Graph("lstm")
        x = g.input("x", (self.steps, 1, self.width), "i8")
        (w, w_scale), (u, u_scale), (head, head_scale) = map(rounded, (self.w, self.u, self.head))
        ticks = np.arange(-128, 128) * GATE
        sigmoids = g.constant((np.clip(np.round(256 * sigmoid(ticks)), 0, 255) - 128).astype(np.int8))
        tanhs = g.constant(np.clip(np.round(128 * np.tanh(ticks)), -128, 127).astype(np.int8))
        w, u, head = g.constant(w), g.constant(u), g.constant(head)
        bias = np.round(self.bias / (INPUT * w_scale)).astype(np.int32)

        def looked_up(table: Any, index: Any, part: int) -> Any:
            return g.gather(table, g.narrow(index, 1, part * self.hidden, self.hidden))

        def step(old: Any, row: Any) -> Any:
            h, c = old
            of_x = g.rescale(
                g.q_matmul(row, w, bias=g.constant(bias), dtype="i32"), INPUT * w_scale / GATE * 64, dtype="i32"
            )
            of_h = g.rescale(g.q_matmul(h, u, dtype="i32"), u_scale / 128 / GATE * 64, dtype="i32")
            gates = g.cast(g.rescale(of_x + of_h, 1 / 64), "i32") + 128
            i, f, o = (g.cast(looked_up(sigmoids, gates, part), "i32") + 128 for part in (0, 1, 3))
            new = g.cast(looked_up(tanhs, gates, 2), "i32")
            c = g.rescale(f * g.cast(c, "i32") + i * new * 16, 2.0**-8, dtype="i16")
            squashed = g.gather(tanhs, g.cast(g.rescale(g.cast(c, "i32"), CELL / GATE), "i32") + 128)
            h = g.rescale(o * g.cast(squashed, "i32"), 2.0**-8)
            return (h, c), h

        start = g.constant(np.zeros((1, self.hidden), np.int8)), g.constant(np.zeros((1, self.hidden), np.int16))
        (last, _), every = g.scan(step, start, x)
        scores = g.rescale(g.q_matmul(last, head, dtype="i32"), head_scale / 128 * 16)
        g.set_outputs({"scores": scores, "every": every})
        return g


def rounded(weights: np.ndarray) -> tuple[np.ndarray, float]:
    """Weights of 8 bits, and their scale."""
    scale = float(np.abs(weights).max() / 127)
    return np.round(weights / scale).astype(np.int8), scale

"""Blocks of real models for plans: forward and differentiated, at sizes of tests or of measurements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import rlx

LOWER = "builtin.module(rlx-lower-blocks,rlx-simplify,rlx-decompose{for=rlx-to-linalg},canonicalize,cse)"


class _Weights:
    """Makes parameters with distinct names."""

    def __init__(self, g: Any):
        self.g, self.count = g, 0

    def __call__(self, *shape: Any) -> Any:
        self.count += 1
        return self.g.param(f"w{self.count}", shape)

    def all(self, *shapes: Any) -> list[Any]:
        return [self(*shape) for shape in shapes]


def encoder(g: Any, w: _Weights, s: int) -> Any:
    """Build two layers of BERT."""
    e, f = 8 * s, 32 * s
    x = g.input("x", (2, 4 * s, e))
    for _ in range(2):
        attention = w.all(*[(e, e), (e,)] * 4)
        x = g.transformer_encoder_block(
            x, *attention, *w.all((e,), (e,), (e, f), (f,), (f, e), (e,), (e,), (e,)), num_heads=4
        )
    return x


def llama(g: Any, w: _Weights, s: int) -> Any:
    """Build two layers of Llama, with half as many heads for keys and values."""
    e, f, d = 8 * s, 24 * s, 2 * s
    x = g.input("x", (1, 8 * s, e))
    table = [g.input(name, (8 * s, d // 2)) for name in ("cos", "sin")]
    for _ in range(2):
        shapes = [(e,), (e,), (e, e), (e, e // 2), (e, e // 2), (e, e), (e,), (e,), (e, f), (e, f), (f, e)]
        x = g.llama_decoder_block(x, *w.all(*shapes), *table, num_heads=4, head_dim=d, num_kv_heads=2)
    return x


def mamba(g: Any, w: _Weights, s: int) -> Any:
    """Build two blocks of Mamba."""
    e, inner, rank, size = 4 * s, 8 * s, s, 4
    x = g.input("x", (2, 4 * s, e))
    for _ in range(2):
        shapes = [(e, 2 * inner), (inner, 1, 1, 4), (inner,), (inner, rank + 2 * size), (rank, inner), (inner,)]
        x = x + g.mamba_block(x, *w.all(*shapes, (inner, size), (inner,), (inner, e)))
    return x


def delta_net(g: Any, w: _Weights, s: int) -> Any:
    """Build a gated delta net with its projections."""
    b, t, h, d = 2, 4 * s, 2, 2 * s
    x = g.input("x", (b, t, h * d))
    q, k, v = (g.reshape(x @ w(h * d, h * d), (b, t, h, d)) for _ in range(3))
    gate, beta = (x @ w(h * d, h) for _ in range(2))
    y = g.gated_delta_net(q, g.tanh(k), v, -g.sigmoid(gate), g.sigmoid(beta))
    return g.reshape(y, (b, t, h * d)) @ w(h * d, h * d) + x


def cnn(g: Any, w: _Weights, s: int) -> Any:
    """Build a CNN for digits: two convolutions with pooling, two linear layers."""
    x = g.input("x", (2, 1, 8 * s, 8 * s))
    for before, after in ((1, 2 * s), (2 * s, 4 * s)):
        x = g.relu(g.conv(x, w(after, before, 3, 3), padding=1) + g.reshape(w(after), (after, 1, 1)))
        x = g.pool(x, kind="max", kernel=(2, 2), stride=(2, 2))
    flat = g.reshape(x, (2, -1))
    return g.relu(flat @ w(flat.shape.dims[1], 16 * s) + w(16 * s)) @ w(16 * s, 10)


def unet(g: Any, w: _Weights, s: int) -> Any:
    """Build a U-Net: down, a middle block, and up with the values of the way down."""
    kept: list[Any] = []
    x = g.conv(g.input("x", (1, 3, 8 * s, 8 * s)), w(2 * s, 3, 3, 3), padding=1)
    for level in (1, 2):
        x = _residual(g, w, x, 2 * s * level)
        kept.append(x)
        x = g.pool(x, kind="mean", kernel=(2, 2), stride=(2, 2))
    x = _residual(g, w, x, 4 * s)
    for level in (2, 1):
        x = _twice(g, x)
        x = _residual(g, w, g.concat([x, kept.pop()], 1), 2 * s * level)
    return g.conv(x, w(3, 2 * s, 3, 3), padding=1)


def _twice(g: Any, x: Any) -> Any:
    b, c, h, v = x.shape.dims
    return g.reshape(g.expand(g.reshape(x, (b, c, h, 1, v, 1)), (b, c, h, 2, v, 2)), (b, c, 2 * h, 2 * v))


def _residual(g: Any, w: _Weights, x: Any, out: int) -> Any:
    c = x.shape.dims[1]
    weights = w.all((c,), (c,), (out, c, 3, 3), (out,), (out,), (out,), (out, out, 3, 3), (out,))
    skip = w.all((out, c, 1, 1), (out,)) if c != out else [None, None]
    return g.unet_residual_block(x, *weights, None, None, None, *skip, num_groups=2)


BLOCKS: dict[str, Callable[..., Any]] = {
    "encoder": encoder,
    "llama": llama,
    "mamba": mamba,
    "delta_net": delta_net,
    "cnn": cnn,
    "unet": unet,
}


def graph(name: str, scale: int = 2, *, differentiated: bool = False) -> Any:
    """Return a model made of blocks, or the gradient of the mean of its squares."""
    g = rlx.Graph("main", stage="hir")
    y = BLOCKS[name](g, _Weights(g), scale)
    g.set_outputs([g.mean(y * y) if differentiated else y])
    if differentiated:
        g = rlx.grad_with_loss(g, wrt=[p.name for p in g.params])
    return g


def model(name: str, scale: int = 2, *, differentiated: bool = False) -> Any:
    """Return the LIR of a model."""
    return rlx.passes.run(graph(name, scale, differentiated=differentiated), LOWER)


def values_of(graph: Any, seed: int = 0) -> dict[str, np.ndarray]:
    """Return values for the arguments of a graph."""
    rng = np.random.default_rng(seed)
    return {a.name: rng.uniform(-0.5, 0.5, a.shape.static).astype(a.shape.dtype.numpy) for a in graph.arguments}

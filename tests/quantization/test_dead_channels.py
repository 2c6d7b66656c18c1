"""`rlx.integer_only` of layers with some channels of tiny weights, as a folded batch norm leaves them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx

SCALES = (0.0, 1e-38, 1e-30, 1e-12, 1e-8, 1e-6, 1e-3, 1.0)


def layer(kind: str, rng: np.random.Generator, bits_of: float) -> tuple[Any, np.ndarray]:
    """Return a layer with one channel for each scale, and its input."""
    count = len(SCALES)
    offsets = (rng.choice([-1, 1], count) * rng.uniform(0.1, 1, count) * bits_of).astype(np.float32)
    g: Any = rlx.Graph(kind)
    if kind == "dense":
        x = rng.uniform(-1, 1, (4, 8)).astype(np.float32)
        w = (rng.standard_normal((8, count)) * np.array(SCALES)).astype(np.float32)
        y = g.matmul(g.input("x", x.shape), g.param("w", w.shape, value=w)) + g.param("b", (count,), value=offsets)
    else:
        groups = count if kind == "depthwise" else 1
        x = rng.uniform(-1, 1, (1, count, 5, 5)).astype(np.float32)
        w = rng.standard_normal((count, count // groups, 3, 3)) * np.array(SCALES)[:, None, None, None]
        w = w.astype(np.float32)
        y = g.conv(g.input("x", x.shape), g.param("w", w.shape, value=w), groups=groups)
        y = y + g.reshape(g.param("b", (count,), value=offsets), (1, count, 1, 1))
    g.set_outputs({"y": y})
    return g, x


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("kind", ["dense", "conv", "depthwise"])
def test_a_bias_is_kept_beside_tiny_weights(kind: str, bits: int) -> None:
    """Every channel is within the quantisation steps of weights and result, and C gives the same bits."""
    for seed, size in ((0, 1.0), (1, 30.0)):
        g, x = layer(kind, np.random.default_rng(seed), size)
        (wanted,) = rlx.evaluate(g, {"x": x})
        integers = rlx.integer_only(g, rlx.observe_ranges(g, [{"x": x}]), bits=bits)
        points = rlx.quantizations(integers)
        stored = np.clip(np.rint(x / points["x"].scale) + points["x"].zero_point, -128, 127).astype(np.int8)
        (found,) = rlx.evaluate(integers, {"x": stored})
        numbers = (found.astype(np.float64) - points["y"].zero_point) * points["y"].scale
        dead = [i for i, scale in enumerate(SCALES) if scale < 1e-2]
        assert np.abs(numbers - wanted)[:, dead].max() <= 0.51 * points["y"].scale + 1e-2, (kind, bits, seed)
        (in_c,) = rlx.Session("c").compile(integers).run({"x": stored})
        assert np.array_equal(in_c, found)

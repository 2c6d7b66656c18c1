"""`rlx.quantize` of layers with a channel of tiny weights, and a bias of normal size."""

from __future__ import annotations

import numpy as np
import pytest

import rlx


@pytest.mark.parametrize("tiny", [0.0, 1e-8, 1e-20, 1e-38, 1e-42])
@pytest.mark.parametrize("convolution", [False, True])
def test_a_bias_beside_tiny_weights(convolution: bool, tiny: float) -> None:
    """In steps of such weights the bias exceeds i32. It must not be clipped."""
    random, g = np.random.default_rng(0), rlx.Graph("net")
    shape, size = ((2, 4, 5, 5), (6, 4, 3, 3)) if convolution else ((5, 4), (4, 6))
    x, w, bias = g.input("x", shape), g.param("w", size), g.param("b", (6, 1, 1) if convolution else (6,))
    h = g.relu((g.conv(x, w) if convolution else x @ w) + bias)
    last = g.param("w2", (3, 6, 1, 1) if convolution else (6, 3))
    g.set_outputs([g.conv(h, last) if convolution else h @ last])
    params = {a.name: random.standard_normal(a.shape.static).astype(np.float32) for a in g.params}
    params["b"][...] = np.abs(params["b"]) + 1
    channel = (0,) if convolution else (slice(None), 0)
    params["w"][channel] = tiny
    batches = [{"x": random.standard_normal(shape).astype(np.float32)} for _ in range(2)]
    q = rlx.quantize(g, rlx.calibrate(g, batches, params=params), params=params)
    known = {name: array for name, array in params.items() if name in {a.name for a in q.params}}
    (found,) = rlx.Session().compile(q, params=known).run(batches[0])
    (wanted,) = rlx.evaluate(g, batches[0] | params)
    assert np.abs(found - wanted).max() < 0.03 * np.abs(wanted).max()

"""`rlx-conv-products`: the numbers of convolutions with long strides, and which of them become products."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx

_PASSES = "builtin.module(rlx-fuse-conv-bias-act,rlx-conv-products)"


def _random(g: rlx.Graph, rng: np.random.Generator, name: str) -> Any:
    """A convolution whose windows consist of 1 to 4 strides."""
    rank = int(rng.integers(1, 3))
    stride = rng.integers(1, 8, rank)
    stride[0] = rng.integers(5, 9)
    taps = stride * (rng.integers(1, 5 if rank == 1 else 3, rank))
    size = taps + rng.integers(0, 20, rank)
    padding = [(int(before), int(after)) for before, after in rng.integers(0, 3, (rank, 2))]
    batch, channels, outputs = (int(n) for n in rng.integers(1, 4, 3))
    x = g.input(f"x{name}", (batch, channels, *map(int, size)))
    w = g.input(f"w{name}", (outputs, channels, *map(int, taps)))
    y = g.conv(x, w, stride=tuple(map(int, stride)), padding=padding)
    if rng.random() < 0.5:
        y = y + g.input(f"b{name}", (outputs, *(1,) * rank))
        y = g.relu(y) if rng.random() < 0.5 else y
    return y


def _graph(seed: int, count: int) -> tuple[rlx.Graph, dict[str, np.ndarray]]:
    g, rng = rlx.Graph("g"), np.random.default_rng(seed)
    g.set_outputs([_random(g, rng, str(i)) for i in range(count)])
    return g, {a.name: rng.standard_normal(a.shape.static).astype(np.float32) for a in g.inputs}


def test_random_convolutions() -> None:
    for seed in range(12):
        g, values = _graph(seed, 6)
        made = rlx.passes.run(g, _PASSES)
        assert "conv" not in str(made).replace("rlx-conv-products", ""), seed
        for got, wanted in zip(rlx.evaluate(made, values), rlx.evaluate(g, values), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4, err_msg=str(seed))


def test_compiled() -> None:
    g, values = _graph(1000, 8)
    for got, wanted in zip(rlx.Session("cpu").compile(g).run(values), rlx.evaluate(g, values), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_an_open_batch() -> None:
    g = rlx.Graph("g")
    x, w = g.input("x", ("n", 3, 16, 16)), g.param("w", (5, 3, 8, 8))
    g.set_outputs([g.conv(x, w, stride=8)])
    made = rlx.passes.run(g, _PASSES)
    assert "rlx.conv" not in str(made)
    rng = np.random.default_rng(0)
    values = {"x": rng.standard_normal((2, 3, 16, 16)).astype("f"), "w": rng.standard_normal((5, 3, 8, 8)).astype("f")}
    np.testing.assert_allclose(rlx.evaluate(made, values)[0], rlx.evaluate(g, values)[0], rtol=1e-4, atol=1e-4)
    program = rlx.Session("cpu").compile(g, params={"w": values["w"]})
    np.testing.assert_allclose(program.run({"x": values["x"]})[0], rlx.evaluate(g, values)[0], rtol=1e-4, atol=1e-4)


def test_others_stay_convolutions() -> None:
    g = rlx.Graph("g")
    x = g.input("x", (1, 4, 24))
    others = [
        g.conv(x, g.param("short", (2, 4, 4)), stride=4),
        g.conv(x, g.param("part", (2, 4, 9)), stride=6),
        g.conv(x, g.param("long", (2, 4, 24)), stride=4),
        g.conv(x, g.param("grouped", (2, 2, 8)), stride=8, groups=2),
        g.conv(x, g.param("dilated", (2, 4, 6)), stride=6, dilation=2),
        g.conv(g.input("y", (1, 4, "n")), g.param("open", (2, 4, 8)), stride=8),
        g.conv(g.cast(x, "i32"), g.param("integers", (2, 4, 8), "i32"), stride=8),
    ]
    g.set_outputs(others)
    assert str(rlx.passes.run(g, _PASSES)).count("rlx.conv(") == len(others)

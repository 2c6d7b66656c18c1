"""Counts in arithmetic have a dtype that can represent them: f16 ends at 65504."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx

N = 70_000
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "mean": lambda g, x: g.mean(x),
    "nanmean": lambda g, x: g.nanmean(x),
    "mean of rows": lambda g, x: g.sum(g.mean(g.reshape(x, (1, N)), 1)),
    "average": lambda g, x: g.average(x),
    "var": lambda g, x: g.var(x),
    "std": lambda g, x: g.std(x),
    "norm": lambda g, x: g.norm(x),
    "logsumexp": lambda g, x: g.logsumexp(x),
    "log_softmax": lambda g, x: g.mean(g.log_softmax(x)),
    "mse_loss": lambda g, x: g.mse_loss(x, x * 0.5),
    "l1_loss": lambda g, x: g.l1_loss(x, x * 0.5),
    "avg_pool": lambda g, x: g.sum(g.avg_pool(g.reshape(x, (1, 1, N)), N)),
    "layer_norm": lambda g, x: g.mean(g.layer_norm(x, g.full((N,), 1, x.dtype), g.full((N,), 0, x.dtype)) * x),
    "rms_norm": lambda g, x: g.mean(g.rms_norm(x, g.full((N,), 1, x.dtype)) * x),
    "cross_entropy": lambda g, x: g.cross_entropy(g.reshape(x, (1, N)), g.constant(np.array([3]))),
}


@pytest.mark.parametrize("name", CALLS)
def test_more_elements_than_f16_can_count(name: str) -> None:
    """Value and gradient in f16 and bf16 equal those in f64, up to rounding, also for symbolic sizes."""
    x = np.random.default_rng(0).uniform(0.5, 1.5, N).astype(np.float16)
    found = {}
    for kind, size in (("f64", N), ("f16", N), ("bf16", N)):
        g: Any = rlx.Graph(name)
        g.set_outputs(CALLS[name](g, g.input("x", (size,), kind)))
        values = {"x": x.astype(rlx.dtype(kind).numpy)}
        gradient = rlx.evaluate(rlx.grad(g, wrt=["x"]), values)[0]
        found[kind] = [a.astype(np.float64) for a in (rlx.evaluate(g, values)[0], gradient)]
    for kind, tolerance in (("f16", 0.02), ("bf16", 0.1)):
        for got, wanted in zip(found[kind], found["f64"], strict=True):
            assert np.abs(got - wanted).max() <= tolerance * np.abs(wanted).max() + 1e-7, kind


def test_an_open_count_is_divided_by_in_f32() -> None:
    g: Any = rlx.Graph("open")
    g.set_outputs(g.mean(g.input("x", ("n",), "f16")))
    (gradient,) = rlx.evaluate(rlx.grad(g, wrt=["x"]), {"x": np.ones(N, np.float16)})
    assert gradient.dtype == np.float16
    np.testing.assert_allclose(gradient, 1 / N, rtol=0.01)

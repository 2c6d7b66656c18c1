"""Fusion: what fused ops are made of comes back in the evaluator, whatever stands around it."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir import registry
from rlx.passes.base import load
from rlx.passes.fuse import GROUPS
from rlx.passes.fusion import Fusion
from rlx.passes.rewrite import collect


def names(graph: Any) -> list[str]:
    return [op.name.removeprefix("rlx.") for op in collect(graph.module)]


def _values(graph: Any, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {a.name: rng.uniform(-1, 1, a.shape.static).astype(a.shape.dtype.numpy) for a in graph.arguments}


def check(graph: Any, seed: int) -> Any:
    """Fused, and fused again; with the same results."""
    fused = rlx.passes.run(graph, "rlx-fuse")
    assert str(rlx.passes.run(fused, "rlx-fuse")) == str(fused)
    values = _values(graph, seed)
    for a, b in zip(rlx.evaluate(graph, values), rlx.evaluate(fused, values), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    return fused


def test_every_fusion_runs_in_rlx_fuse() -> None:
    fusions = {cls for cls in load().values() if issubclass(cls, Fusion)}
    assert fusions == {fusion for group in GROUPS for fusion in group}
    for fusion in fusions:
        assert registry.SPECS[fusion.makes].family == "fused"


@pytest.mark.parametrize("seed", range(40))
def test_random_layers_keep_their_value(seed: int) -> None:
    choose = random.Random(seed)
    g: Any = rlx.Graph("layers")
    values = [g.input("x", (3, 4)), g.input("y", (3, 4))]

    def weight(kind: str, *dims: int) -> Any:
        return getattr(g, kind)(f"v{len(g.arguments)}", dims)

    for _ in range(choose.randint(4, 12)):
        x, other, kind = choose.choice(values), choose.choice(values), choose.choice(["param", "param", "input"])
        step = choose.randrange(5)
        if step == 0:
            y = x @ weight(kind, 4, 4) + weight(kind, 4)
        elif step == 1:
            y = g.activation(choose.choice(["relu", "gelu", "exp"]), weight(kind, 4) + x @ weight(kind, 4, 4))
        elif step == 2:
            y = (x @ weight(kind, 4, 4)) * g.silu(choose.choice([x, x, other]) @ weight(kind, 4, 4))
        elif step == 3:
            norm = choose.choice([g.layer_norm, g.rms_norm])
            y = norm(x + other, weight(kind, 4), weight(kind, 4))
        else:
            y = g.tanh(x + other)
        values.append(g.tanh(y))
    g.set_outputs(choose.sample(values[2:], min(3, len(values) - 2)))
    check(g, seed)


def test_nothing_moves_into_a_loop() -> None:
    g: Any = rlx.Graph("loop")
    x, w, b = g.input("x", (3, 4)), g.param("w", (4, 4)), g.param("b", (4,))
    product = x @ w
    total, _ = g.scan(lambda c, _: (c + g.tanh(product + b), None), x, None, length=3)
    g.set_outputs([total])
    # Fused with the addition, the product would be computed in every step.
    assert names(check(g, 0)) == names(g)


def test_a_user_who_writes_primitives_gets_what_blocks_give() -> None:
    def weights(g: Any) -> list[Any]:
        return [g.input("x", (2, 4)), g.param("w", (4, 6)), g.param("b", (6,))]

    written: Any = rlx.Graph("f")
    x, w, b = weights(written)
    written.set_outputs([written.gelu(x @ w + b)])
    block = rlx.GraphModule.hir("f")
    x, w, b = weights(block)
    block.set_outputs([block.linear(x, w, b, activation="gelu")])
    fused = rlx.passes.run(written, "rlx-fuse")
    assert names(fused) == names(block.lower().graph) == ["fused_matmul_bias_act"]

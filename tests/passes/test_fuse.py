"""Fusion: the evaluator gives the same results for fused ops, whatever ops surround them."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.passes.base import load
from rlx.passes.fusion.base import Fusion, record_fusions
from rlx.passes.fusion.fuse import FUSIONS
from rlx.passes.rewrite import collect

SEEDS = range(24)


def names(graph: Any) -> list[str]:
    return [op.name.removeprefix("rlx.") for op in collect(graph.module)]


def values_of(graph: Any, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {a.name: rng.uniform(-1, 1, a.shape.static).astype(a.shape.dtype.numpy) for a in graph.arguments}


def check(graph: Any, seed: int, passes: str = "rlx-fuse") -> Any:
    """Fuse a graph, fuse it again, and compare the results."""
    fused = rlx.passes.run(graph, passes)
    assert str(rlx.passes.run(fused, passes)) == str(fused)
    values = values_of(graph, seed)
    for a, b in zip(rlx.evaluate(graph, values), rlx.evaluate(fused, values), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    return fused


class _Layers:
    """Random layers `[2, 3, 4]` as the fusions expect them, with occasional deviations; values may be read twice."""

    def __init__(self, seed: int):
        self.choose = random.Random(seed)
        self.g: Any = rlx.Graph("layers")
        self.values = [self.g.input("x", (2, 3, 4)), self.g.input("y", (2, 3, 4))]
        self.mask = self.g.input("mask", (2, 3), "bool")
        steps = [self.linear, self.gate, self.norm, self.residual, self.modulated, self.gated, self.conv, self.flat]
        steps += [self.attention, self.encoder, self.elementwise]
        for _ in range(self.choose.randint(3, 7)):
            self.kind = self.choose.choice(["param"] * 5 + ["input"])  # of the weights of a layer
            y = self.choose.choice(steps)(self.choose.choice(self.values))
            if self.choose.random() < 0.3:
                self.values.append(self.g.tanh(y))
            self.values.append(y)
        self.g.set_outputs(self.choose.sample(self.values[2:], min(3, len(self.values) - 2)))

    def weight(self, *dims: int) -> Any:
        return getattr(self.g, self.kind)(f"v{len(self.g.arguments)}", dims)

    def other(self) -> Any:
        return self.choose.choice(self.values)

    def dense(self, x: Any, width: int = 4) -> Any:
        y = x @ self.weight(x.shape.dims[-1], width)
        bias = self.choose.choice([None, (width,), (width,), (1, width), (3, 1), ()])
        return (
            y
            if bias is None
            else self.choose.choice([lambda: y + self.weight(*bias), lambda: self.weight(*bias) + y])()
        )

    def linear(self, x: Any) -> Any:
        return self.g.activation(self.choose.choice(["relu", "gelu", "exp", "neg"]), self.dense(x))

    def gate(self, x: Any) -> Any:
        if self.choose.random() < 0.5:
            y = self.g.concat([x, self.other()], -1)
            first, second = self.g.narrow(y, -1, 0, 4), self.g.narrow(y, -1, 4, 4)
            return self.g.silu(first) * second if self.choose.random() < 0.5 else first * self.g.silu(second)
        if self.choose.random() < 0.5:
            return self.dense(x) * self.g.silu(self.dense(self.choose.choice([x, x, self.other()])))
        return self.g.silu(x @ self.weight(4, 4)) * (x @ self.weight(4, 4))

    def norm(self, x: Any) -> Any:
        total = self.choose.choice([lambda: x + self.other(), lambda: x + self.weight(4) + self.other()])()
        if self.choose.random() < 0.5:
            return self.g.layer_norm(total, self.weight(4), self.weight(4))
        return self.g.rms_norm(total, self.weight(4), self.choose.choice([None, self.weight(4)]))

    def residual(self, x: Any) -> Any:
        return self.choose.choice([lambda: self.dense(x) + x, lambda: self.other() + self.dense(x)])()

    def modulated(self, x: Any) -> Any:
        normal = self.g.layer_norm(x, np.ones(4, np.float32), np.zeros(4, np.float32))
        return normal * (self.weight(2, 1, 4) + 1.0) + self.weight(2, 1, 4)

    def gated(self, x: Any) -> Any:
        return self.other() + self.weight(2, 1, 4) * x

    def conv(self, x: Any) -> Any:
        y = self.g.conv(x, self.weight(3, 3, 3), padding=1) + self.weight(3, 1)
        return self.choose.choice([self.g.relu, self.g.gelu])(y)

    def flat(self, x: Any) -> Any:
        return self.g.reshape(self.g.tanh(self.g.reshape(self.g.rms_norm(x, self.weight(4)), (6, 4))), (2, 3, 4))

    def attention(self, x: Any) -> Any:
        q, k, v = (x @ self.weight(4, 4) for _ in range(3))
        return self.g.attention(q, k, v, num_heads=2, head_dim=2, mask_kind="causal") @ self.weight(4, 4)

    def encoder(self, x: Any) -> Any:
        def dense(value: Any, width: int = 4) -> Any:
            return value @ self.weight(value.shape.dims[-1], width) + self.weight(width)

        q, k, v = (dense(x) for _ in range(3))
        attended = dense(self.g.attention(q, k, v, self.mask, num_heads=2, head_dim=2, mask_kind="custom"))
        h = self.g.layer_norm(attended + x, self.weight(4), self.weight(4))
        return self.g.layer_norm(h + dense(self.g.gelu(dense(h, 6))), self.weight(4), self.weight(4))

    def elementwise(self, x: Any) -> Any:
        y = self.g.tanh(x + self.other())
        return y * self.g.sigmoid(y) + self.g.sum(y * x, -1, keep_dims=True)


LAYERS = [_Layers(seed).g for seed in SEEDS]


def test_every_fusion_runs_in_rlx_fuse() -> None:
    fusions = {cls for cls in load().values() if issubclass(cls, Fusion) and cls.name.startswith("rlx-fuse-")}
    assert fusions == set(FUSIONS.values())


@pytest.mark.parametrize("seed", SEEDS)
def test_random_layers_keep_their_value(seed: int) -> None:
    check(LAYERS[seed], seed)


def test_each_fusion_keeps_the_value_of_random_layers() -> None:
    """Each fusion is tested alone, after those that prepare its input; the layers contain matches for each."""
    made: Counter[str] = Counter()
    for title in FUSIONS:
        before = "rlx-fuse{only=matmul-bias-act,residual-layer-norm,shared-input-matmul,attention-block},"
        for seed in SEEDS[:8]:
            with record_fusions() as record:
                check(LAYERS[seed], seed, f"{before}rlx-fuse-{title}")
            made.update(fusion.fusion for fusion in record.fused)
    with record_fusions() as record:
        for graph in LAYERS:
            rlx.passes.run(graph, "rlx-fuse")
    assert set(FUSIONS) == {*made, *(fusion.fusion for fusion in record.fused)}


@pytest.mark.parametrize("seed", SEEDS)
def test_elementwise_regions_keep_their_value(seed: int) -> None:
    check(LAYERS[seed], seed, "rlx-fuse-elementwise-regions")


def test_nothing_moves_into_a_loop() -> None:
    g: Any = rlx.Graph("loop")
    x, w, b = g.input("x", (3, 4)), g.param("w", (4, 4)), g.param("b", (4,))
    product = x @ w
    total, _ = g.scan(lambda c, _: (c + g.tanh(product + b), None), x, None, length=3)
    g.set_outputs([total])
    # Fused with the addition, the product would run in every step.
    assert names(check(g, 0)) == names(g)


def test_weights_are_not_joined_in_a_loop() -> None:
    g: Any = rlx.Graph("loop")
    x, w, v = g.input("x", (3, 4)), g.param("w", (4, 4)), g.param("v", (4, 4))
    total, _ = g.scan(lambda c, _: (g.tanh(c @ w) * g.tanh(c @ v), None), x, None, length=3)
    g.set_outputs([total])
    assert "concat" not in names(check(g, 0))


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


def _counts(graph: Any) -> Counter[str]:
    """Count the ops of a graph, except those that reshape weights and biases."""
    return Counter(names(rlx.passes.run(graph, "rlx-simplify,canonicalize,cse")))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_fused_comes_back(seed: int) -> None:
    graph = LAYERS[seed]
    fused = rlx.passes.run(graph, "rlx-fuse,rlx-fuse-elementwise-regions")
    again = rlx.passes.run(fused, "rlx-unfuse")
    assert not {name for name in names(again) if name.startswith("fused_") or name == "elementwise_region"}
    assert (
        _counts(again)["matmul"] == _counts(graph)["matmul"] and not _counts(again)["concat"] > _counts(graph)["concat"]
    )
    values = values_of(graph, seed)
    for a, b in zip(rlx.evaluate(graph, values), rlx.evaluate(again, values), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_primitives_come_back_exactly() -> None:
    """If nothing is joined or reordered, unfusing gives the original ops."""
    g: Any = rlx.Graph("f")
    x, w, b, s = g.input("x", (3, 4)), g.param("w", (4, 4)), g.param("b", (4,)), g.param("s", (4,))
    y = g.gelu(x @ w + b)
    g.set_outputs([g.rms_norm(y + x, s), g.silu(g.narrow(y, 1, 0, 2)) * g.narrow(y, 1, 2, 2)])
    again = rlx.passes.run(g, "rlx-fuse,rlx-unfuse")
    assert Counter(names(again)) == Counter(names(g))


class _Parent(rlx.nn.Module):
    """Two layers, whose activations are called by the parent; the second one's result is added to the input."""

    def __init__(self, kind: str, residual: bool):
        layers = [rlx.nn.Linear(8, 8) if kind == "linear" else rlx.nn.Conv(8, 8, (3, 3), padding=1) for _ in range(2)]
        self.one, self.two = layers
        self.residual = residual

    def forward(self, x: Any) -> Any:
        y = self.two(rlx.ops.relu(self.one(x)))
        return x + y if self.residual else rlx.ops.relu(y)


@pytest.mark.parametrize(("kind", "residual"), [("linear", False), ("linear", True), ("conv", False)])
def test_a_fused_op_has_the_scope_of_its_product(kind: str, residual: bool) -> None:
    """An activation or a residual in the caller of a layer does not take the name of the layer away."""
    g = rlx.Graph("parent")
    x = g.input("x", (2, 8) if kind == "linear" else (1, 8, 4, 4))
    g.set_outputs([_Parent(kind, residual)(x)])
    listing = rlx.inspect_graph(rlx.passes.run(g, "rlx-fuse"))
    fused = [op for op in listing.ops if op.name.startswith("fused")]
    assert [op.scope for op in fused] == ["one", "two"]
    assert all("test_fuse.py" in str(op.location) for op in fused)

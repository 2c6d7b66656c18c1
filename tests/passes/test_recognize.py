"""Recognition of norms, activations, softmax and attention in foreign graphs: ops and values, also in edge cases."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.passes.levels import to_mir
from rlx.passes.rewrite import collect
from tests.passes.random_attention import RandomAttention

CLEAN = "rlx-simplify,rlx-constant-fold,canonicalize,cse,"
B, H, S, T, D = 2, 3, 4, 5, 8


def recognised(graph: Any) -> Any:
    return rlx.passes.run(graph, f"{CLEAN}rlx-recognize,rlx-simplify,canonicalize,cse")


def ops(graph: Any) -> set[str]:
    """Return the ops, without those that only move data."""
    views = {"reshape", "transpose", "expand", "narrow", "concat", "constant"}
    return {op.name.removeprefix("rlx.") for op in collect(graph.module)} - views


def same(graph: Any, values: dict[str, np.ndarray], other: Any = None) -> None:
    other = recognised(graph) if other is None else other
    for a, b in zip(rlx.evaluate(graph, values), rlx.evaluate(other, values), strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-5, atol=2e-6)


def values_of(graph: Any, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    result = {}
    for a in graph.arguments:
        kind = a.shape.dtype
        normal = rng.normal(size=a.shape.static)
        result[a.name] = (normal > -0.5 if kind.is_bool else normal).astype(kind.numpy)
    return result


def check(build: Callable[..., Any], shapes: list[Any], expected: set[str]) -> Any:
    """Build a graph of inputs. Check that it gets the expected ops and keeps its values."""
    g: Any = rlx.Graph("f")
    inputs = [g.input(f"x{i}", *(s if isinstance(s, list) else [s])) for i, s in enumerate(shapes)]
    g.set_outputs(build(g, *inputs))
    result = recognised(g)
    assert ops(result) == expected, str(result)
    same(g, values_of(g), result)
    assert str(rlx.passes.run(result, "rlx-recognize")) == str(result)
    return result


# --- activations --------------------------------------------------------------------------------------


def _sigmoid(g: Any, x: Any) -> Any:
    return 1.0 / (1.0 + g.exp(-x))


GELUS: dict[str, Callable[[Any, Any], Any]] = {
    "cube": lambda g, x: 0.5 * x * (1.0 + g.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x)))),
    "power": lambda g, x: x * (0.5 * (g.tanh((x + 0.044715 * g.pow(x, 3.0)) * 0.7978845608) + 1.0)),
    "factored": lambda g, x: x / 2.0 * (1.0 + g.tanh(0.7978845608 * x * (1.0 + 0.044715 * x * x))),
}


@pytest.mark.parametrize("name", GELUS)
def test_gelu(name: str) -> None:
    result = check(lambda g, x: GELUS[name](g, x), [(3, 7)], {"activation"})
    assert 'kind = "gelu_approx"' in str(result)


def test_sigmoid_silu_and_relu() -> None:
    for build, kind in (
        (_sigmoid, "sigmoid"),
        (lambda g, x: x * _sigmoid(g, x), "silu"),
        (lambda g, x: g.maximum(x, 0.0), "relu"),
    ):
        assert f'kind = "{kind}"' in str(check(build, [(3, 7)], {"activation"}))


def test_activations_at_the_edges() -> None:
    """Infinities, zeros and large numbers: numbers stay, and a NaN from an infinity becomes the limit."""
    edges = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 88.0, -88.0, 1e4, -1e4, 3e38, -3e38, 1e-40], np.float32)
    for build in (_sigmoid, lambda g, x: x * _sigmoid(g, x), GELUS["cube"], lambda g, x: g.maximum(x, 0.0)):
        g: Any = rlx.Graph("f")
        g.set_outputs(build(g, g.input("x", (len(edges),))))
        before, after = (rlx.evaluate(graph, {"x": edges})[0] for graph in (g, recognised(g)))
        known = ~np.isnan(before)
        np.testing.assert_allclose(after[known], before[known], rtol=1e-5, atol=1e-30)
        assert np.all(np.isnan(edges[np.isnan(after)]))


def test_what_is_no_gelu() -> None:
    check(lambda g, x: 0.5 * x * (1.0 + g.tanh(0.8 * (x + 0.05 * (x * x * x)))), [(3, 7)], {"binary", "activation"})
    check(lambda g, x: x * (1.0 / (1.0 + g.exp(x))), [(3, 7)], {"binary", "activation"})


# --- norms --------------------------------------------------------------------------------------------


def _mean(g: Any, x: Any, form: str) -> Any:
    if form == "mean":
        return g.mean(x, -1, keep_dims=True)
    total = g.reshape(g.sum(x, -1), (*x.shape.dims[:-1], 1))
    return total / float(x.shape.dims[-1]) if form == "div" else total * (1 / x.shape.dims[-1])


def _inverse(g: Any, x: Any, form: str) -> Any:
    return {"rsqrt": g.rsqrt, "div": lambda v: 1.0 / g.sqrt(v), "pow": lambda v: g.pow(v, -0.5)}[form](x)


@pytest.mark.parametrize("mean", ["mean", "div", "mul"])
@pytest.mark.parametrize("root", ["rsqrt", "div", "pow"])
def test_norms_in_their_spellings(mean: str, root: str) -> None:
    def layer(g: Any, x: Any, scale: Any, bias: Any) -> Any:
        y = x - _mean(g, x, mean)
        return bias + y * _inverse(g, _mean(g, y * y, mean) + 1e-5, root) * scale

    def moments(g: Any, x: Any, scale: Any, bias: Any) -> Any:
        m = _mean(g, x, mean)
        variance = g.maximum(_mean(g, g.pow(x, 2.0), mean) - m * m, 0.0)
        return (x - m) * (_inverse(g, variance + 1e-5, root) * g.reshape(scale, (1, 1, D))) + bias

    def rms(g: Any, x: Any, scale: Any, _: Any) -> Any:
        return scale * (x * _inverse(g, _mean(g, x * x, mean) + 1e-6, root))

    for build, name in ((layer, "layer_norm"), (moments, "layer_norm"), (rms, "rms_norm")):
        assert str(check(build, [(B, S, D), (D,), (D,)], {name})).count("rlx.constant") == 0


def test_norms_without_weights_and_along_other_axes() -> None:
    def channels(g: Any, x: Any, scale: Any) -> Any:
        y = x - g.mean(x, 1, keep_dims=True)
        return y / g.sqrt(g.mean(y * y, 1, keep_dims=True) + 1e-5) * g.reshape(scale, (S, 1))

    check(channels, [(B, S, D), (S,)], {"layer_norm"})
    check(lambda g, x: x * g.rsqrt(g.mean(x * x, -1, keep_dims=True) + 1e-6), [(S, D)], {"rms_norm"})


def test_roots_of_scalars_are_no_norms() -> None:
    """Scalars as in an optimiser, and vectors that broadcast, are not the statistics of the tensor that they scale."""

    def build(g: Any, x: Any, s: Any, v: Any) -> Any:
        return x * (1.0 / g.sqrt(s + 1e-5)) + x / g.sqrt(g.mean(v * v) + 1e-5) + x * g.rsqrt(g.mean(x * x, 0) + 1e-5)

    check(build, [(S, D), (), (D,)], {"binary", "activation", "reduce"})


def test_what_is_no_norm() -> None:
    def other_mean(g: Any, x: Any, y: Any) -> Any:
        return (x - g.mean(y, -1, keep_dims=True)) * g.rsqrt(g.mean(x * x, -1, keep_dims=True) + 1e-5)

    def other_axis(g: Any, x: Any, _: Any) -> Any:
        return x * g.rsqrt(g.reshape(g.mean(x * x, 0), (S, 1)) + 1e-5)

    for build in (other_mean, other_axis):
        check(build, [(S, S), (S, S)], {"binary", "reduce", "activation"})


# --- softmax ------------------------------------------------------------------------------------------


def test_softmax() -> None:
    def divided(g: Any, x: Any) -> Any:
        e = g.exp(x - g.max(x, -1, keep_dims=True))
        return e / g.sum(e, -1, keep_dims=True)

    def shifted(g: Any, x: Any) -> Any:
        e = g.exp(x - g.reshape(g.max(x, 1), (B, 1, D)))
        return e * (1.0 / g.sum(e, 1, keep_dims=True))

    def other_axis(g: Any, x: Any) -> Any:
        e = g.exp(x - g.max(x, 0, keep_dims=True))
        return e / g.reshape(g.sum(e, 0), (S, 1))

    check(divided, [(B, S, D)], {"softmax"})
    check(shifted, [(B, S, D)], {"softmax"})
    check(other_axis, [(S, S)], {"activation", "reduce", "binary"})


@pytest.mark.parametrize("shift", [None, "min", "other maximum"])
def test_without_its_own_maximum_it_is_no_softmax(shift: str | None) -> None:
    """A true softmax with an infinite element is all NaN."""
    g: Any = rlx.Graph("exponentials")
    x, y = g.input("x", (2, 3)), g.input("y", (2, 3))
    shifts = {None: 0.0, "min": g.min(x, 1, keep_dims=True), "other maximum": g.max(y, 1, keep_dims=True)}
    e = g.exp(x - shifts[shift])
    g.set_outputs({"y": e / g.sum(e, 1, keep_dims=True)})
    recognised = rlx.passes.run(g, to_mir(2))
    assert "rlx.softmax" not in str(recognised)
    values = {"x": np.array([[0, np.inf, 1], [0, 100, -100]], np.float32), "y": np.ones((2, 3), np.float32)}
    np.testing.assert_array_equal(rlx.evaluate(recognised, values)[0], rlx.evaluate(g, values)[0])
    if shift is None:
        report = rlx.Pipeline(target="cpu").compile(g).fusion
        assert "no maximum is subtracted" in str(report)


# --- attention ----------------------------------------------------------------------------------------


def _attend(g: Any, q: Any, k: Any, v: Any, mask: Any = lambda s: s, scale: str = "scores") -> Any:
    """Attention of `[B, H, S, D]`, as PyTorch and ONNX write it."""
    if scale == "query":
        q = q * (D**-0.5)
    elif scale == "both":
        q, k = q * (D**-0.25), k * (D**-0.25)
    scores = q @ g.transpose(k, (0, 1, 3, 2))
    if scale == "scores":
        scores = scores / math.sqrt(D)
    return g.softmax(mask(scores)) @ v


HEADS: list[Any] = [(B, H, S, D), (B, H, T, D), (B, H, T, D)]


@pytest.mark.parametrize("scale", ["scores", "query", "both", "none"])
def test_attention_scaled_anywhere(scale: str) -> None:
    result = check(lambda g, q, k, v: _attend(g, q, k, v, scale=scale), HEADS, {"attention"})
    assert ("score_scale" in str(result)) == (scale == "none")


def test_attention_with_heads_inside() -> None:
    """`[B, S, H, D]` by one contraction, as einsum does."""

    def build(g: Any, q: Any, k: Any, v: Any) -> Any:
        scores = g.dot_general(q, k, (3,), (3,), (0, 2), (0, 2)) * (D**-0.5)
        attended = g.dot_general(v, g.softmax(scores), (1,), (3,), (0, 2), (0, 1))  # [B, H, D, S]
        return g.transpose(attended, (0, 3, 1, 2))

    check(build, [(B, S, H, D), (B, T, H, D), (B, T, H, D)], {"attention"})


def test_attention_of_one_head_and_of_one_query() -> None:
    check(lambda g, q, k, v: g.softmax(q @ g.transpose(k) * 0.3) @ v, [(S, D), (T, D), (T, 6)], {"attention"})
    check(_attend, [(1, H, 1, D), (1, H, T, D), (1, H, T, D)], {"attention"})


def _causal(g: Any, s: Any, fill: float, behind: int = T - S) -> Any:
    square = s.shape.dims[-2:]
    keep = g.iota(square, axis=0) + behind >= g.iota(square, axis=1)
    return g.where(keep, s, fill)


def test_causal_attention() -> None:
    for fill in (-math.inf, -3e38):
        result = check(
            lambda g, q, k, v, fill=fill: _attend(g, q, k, v, lambda s: _causal(g, s, fill)), HEADS, {"attention"}
        )
        assert 'mask_kind = "causal"' in str(result)
    shifted = check(
        lambda g, q, k, v: _attend(g, q, k, v, lambda s: _causal(g, s, -math.inf, 0)),
        HEADS,
        {"iota", "compare", "attention"},
    )
    assert 'mask_kind = "custom"' in str(shifted)


MASKS: dict[str, tuple[Any, Callable[..., Any], str]] = {
    "added": ([(B, 1, 1, T)], lambda g, s, m: s + m, "bias"),
    "added per head": ([(H, S, T)], lambda g, s, m: m + s, "bias"),
    "bool": ([(B, 1, S, T), "bool"], lambda g, s, m: g.where(m, s, -math.inf), "custom"),
    "inverted": ([(B, 1, 1, T), "bool"], lambda g, s, m: g.where(m, -math.inf, s), "custom"),
    "low": ([(B, 1, S, T), "bool"], lambda g, s, m: g.where(m, s, -3e38), "bias"),
}


@pytest.mark.parametrize("name", MASKS)
def test_masked_attention_where_queries_see_nothing(name: str) -> None:
    shape, masked, kind = MASKS[name]
    g: Any = rlx.Graph("f")
    q, k, v = (g.input(f"x{i}", s) for i, s in enumerate(HEADS))
    mask = g.input("mask", *(shape if isinstance(shape[-1], str) else shape[:1]))
    g.set_outputs(_attend(g, q, k, v, lambda s: masked(g, s, mask)))
    result = recognised(g)
    assert "attention" in ops(result) and "softmax" not in ops(result) and f'mask_kind = "{kind}"' in str(result)
    values = values_of(g)
    same(g, values, result)
    hides_all = {"added": -np.inf, "added per head": -np.inf, "bool": False, "inverted": True, "low": False}[name]
    values["mask"] = values["mask"].copy()
    values["mask"][0] = hides_all
    assert np.isnan(rlx.evaluate(g, values)[0]).any() == (name != "low")
    same(g, values, result)


def test_what_a_mask_may_not_be() -> None:
    """A mask value of -10 is rejected, because scores of -10 are not negligible next to scores of -12."""
    left = check(
        lambda g, q, k, v, m: _attend(g, q, k, v, lambda s: g.where(m, s, -10.0)), [*HEADS, [(S, T), "bool"]], OPEN
    )
    assert "attention" not in ops(left)


OPEN = {"matmul", "binary", "where", "softmax"}


@pytest.mark.parametrize("way", ["expand", "concat"])
def test_keys_that_are_repeated_for_groups(way: str) -> None:
    def repeated(g: Any, x: Any, axis: int) -> Any:
        dims = x.shape.dims
        single = g.reshape(x, (*dims[: axis + 1], 1, *dims[axis + 1 :]))
        wide = (*dims[: axis + 1], 2, *dims[axis + 1 :])
        twice = g.expand(single, wide) if way == "expand" else g.concat([single, single], axis + 1)
        return g.reshape(twice, (*dims[:axis], 2 * dims[axis], *dims[axis + 1 :]))

    grouped: list[Any] = [(B, 2 * H, S, D), (B, H, T, D), (B, H, T, D)]
    result = check(lambda g, q, k, v: _attend(g, q, repeated(g, k, 1), repeated(g, v, 1)), grouped, {"attention"})
    assert "rlx.expand" not in str(result)

    def inside(g: Any, q: Any, k: Any, v: Any) -> Any:
        k, v = (g.transpose(repeated(g, x, 2), (0, 2, 1, 3)) for x in (k, v))
        return _attend(g, q, k, v)

    inner: list[Any] = [(B, 2 * H, S, D), (B, T, H, D), (B, T, H, D)]
    assert "rlx.expand" not in str(check(inside, inner, {"attention"}))


def test_a_whole_layer_becomes_a_block() -> None:
    """Split heads, rotated and joined: the attention takes them packed, and the fusions find their block."""
    g: Any = rlx.Graph("layer")
    x, cos, sin = g.input("x", (B, S, H * D)), g.input("cos", (S, D // 2)), g.input("sin", (S, D // 2))

    def heads(y: Any) -> Any:
        return g.transpose(g.reshape(y, (B, S, H, D)), (0, 2, 1, 3))

    q, k, v = (x @ g.param(f"w{i}", (H * D, H * D)) + g.param(f"b{i}", (H * D,)) for i in range(3))
    attended = _attend(g, heads(g.rope(q, cos, sin, D)), heads(g.rope(k, cos, sin, D)), heads(v))
    merged = g.reshape(g.transpose(attended, (0, 2, 1, 3)), (B, S, H * D))
    g.set_outputs(merged @ g.param("out", (H * D, H * D)))
    fused = rlx.passes.run(recognised(g), "rlx-fuse")
    assert ops(fused) == {"fused_attention_block"}
    same(g, {name: array / 4 for name, array in values_of(g).items()}, fused)


def test_attention_with_its_axes_in_any_order() -> None:
    """Random layouts with some sizes of 1, and masks that hide everything from some queries."""
    found = 0
    for seed in range(60):
        made = RandomAttention(seed)
        result = recognised(made.g)
        found += "attention" in ops(result)
        values = values_of(made.g, seed)
        if made.mask == "added":
            values["mask"] = np.where(values["mask"] > 0.5, -np.inf, values["mask"]).astype(np.float32)
        same(made.g, values, result)
    assert found >= 40


# --- graphs from JAX ----------------------------------------------------------------------------------


def _from_jax(function: Any, *shapes: tuple[int, ...]) -> Any:
    jax = pytest.importorskip("jax")
    export = pytest.importorskip("jax.export")
    inputs = [jax.ShapeDtypeStruct(shape, "float32") for shape in shapes]
    return rlx.from_stablehlo(export.export(jax.jit(function))(*inputs).mlir_module_serialized)


def test_what_jax_writes() -> None:
    jax = pytest.importorskip("jax")
    jnp, nn = jax.numpy, jax.nn

    def layer_norm(x: Any, scale: Any, bias: Any) -> Any:
        return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5) * scale + bias

    def by_hand(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("bshd,bthd->bhst", q, k) / jnp.sqrt(8.0)
        scores = jnp.where(jnp.tril(jnp.ones((S, S), bool)), scores, -jnp.inf)
        return jnp.einsum("bhst,bthd->bshd", nn.softmax(scores), v)

    inner, grouped = [(B, S, H, D)] * 3, [(B, S, 2 * H, D), (B, S, H, D), (B, S, H, D)]
    cases: list[tuple[Any, list[Any], str]] = [
        (nn.gelu, [(S, D)], "activation"),
        (nn.silu, [(S, D)], "activation"),
        (nn.softmax, [(S, D)], "softmax"),
        (layer_norm, [(B, S, D), (D,), (D,)], "layer_norm"),
        (by_hand, inner, "attention"),
        (nn.dot_product_attention, inner, "attention"),
        (lambda q, k, v: nn.dot_product_attention(q, k, v, is_causal=True), grouped, "attention"),
    ]
    for function, shapes, expected in cases:
        graph = _from_jax(function, *shapes)
        result = recognised(graph)
        assert ops(result) == {expected}, f"{function}\n{result}"
        same(graph, values_of(graph), result)

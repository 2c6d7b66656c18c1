"""Derivatives of attention and of rotary embedding compared with JAX, and attention over batches of some operands."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from tests.ops.formulas import attention, rope
from tests.ops.references import random
from tests.transforms.against_jax import check, check_second, graph_of
from tests.transforms.checks import check_vmap

B, S, H, D, V = 2, 4, 6, 4, 3
NARROW = {"f16": 4e-3, "bf16": 3e-2}  # a few roundings

Build = Callable[..., Any]


def _operands(keys: int = 5, kv_heads: int = 2, packed: bool = False, name: str = "f64") -> list[np.ndarray]:
    """Return q, k and v in either layout; the values have another width than the keys."""
    shapes = ((B, H, S, D), (B, kv_heads, keys, D), (B, kv_heads, keys, V))
    arrays = [random(name, shape, low=-2, high=2, seed=i) for i, shape in enumerate(shapes)]
    if packed:
        arrays = [a.transpose(0, 2, 1, 3).reshape(a.shape[0], a.shape[2], -1) for a in arrays]
    return arrays


def _attention(kv_heads: int = 2, keep: np.ndarray | None = None, **attributes: Any) -> tuple[Build, Build]:
    """Return the op as a function of a graph, q, k, v and a bias, and its formula. `keep` is a custom mask."""

    def build(g: Any, q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        mask = mask if keep is None else g.constant(keep)
        return g.attention(q, k, v, mask, num_heads=H, head_dim=D, **attributes)

    formula = attention(H, D, kv_heads, **attributes)
    return build, formula if keep is None else lambda q, k, v: formula(q, k, v, keep)


def _keep(shape: tuple[int, ...], name: str) -> np.ndarray:
    """Return a mask with some keys for every query but the first, which sees none (or for the queries of the first batch)."""
    keep = random("bool", shape, seed=5)
    keep[..., 0] = True
    if len(shape) == 2:
        keep[0] = False
    else:
        keep[0, :, 0] = False
    return keep.astype(name)


@pytest.mark.parametrize(("packed", "kv_heads"), [(True, 6), (False, 2), (True, 1)])
def test_grouped_heads_in_both_layouts(packed: bool, kv_heads: int) -> None:
    check(*_attention(kv_heads), *_operands(kv_heads=kv_heads, packed=packed))


@pytest.mark.parametrize("keys", [4, 6, 2])
@pytest.mark.parametrize("window", [None, 1])
def test_queries_see_what_is_before_them(window: int | None, keys: int) -> None:
    """With fewer keys than queries, the first queries see nothing and contribute to no derivative."""
    kind = "causal" if window is None else "sliding_window"
    check(*_attention(mask_kind=kind, window=window), *_operands(keys))


@pytest.mark.parametrize(("shape", "name"), [((B, 5), "bool"), ((B, 1, S, 5), "int32"), ((B, H, S, 5), "float64")])
def test_custom_masks(shape: tuple[int, ...], name: str) -> None:
    check(*_attention(keep=_keep(shape, name), mask_kind="custom"), *_operands())


@pytest.mark.parametrize("shape", [(S, 5), (5,), (B, 1, S, 5), (1, H, 1, 5), (B, H, S, 5)])
def test_a_bias_has_a_derivative_of_its_own(shape: tuple[int, ...]) -> None:
    bias = random("f64", shape, seed=5)
    check(*_attention(mask_kind="bias", softcap=1.5), *_operands(), bias)


def test_a_bias_of_minus_infinity_hides_keys() -> None:
    bias = random("f64", (B, 1, S, 5), seed=5)
    bias[0, 0, 1, 2:], bias[1, 0, 2] = -np.inf, -np.inf
    arrays = _operands()
    check(*_attention(mask_kind="bias"), *arrays, bias)


def test_what_hides_keys_has_no_derivative() -> None:
    """A float mask is compared with 0.5; only a bias is added."""
    q, k, v = _operands()
    keep = random("f64", (B, 5), low=0, high=1)
    values = {"x0": q, "x1": k, "x2": v, "x3": keep}
    graph = graph_of(lambda g, *x: g.attention(*x, num_heads=H, head_dim=D, mask_kind="custom"), list(values.values()))
    forward, backward = rlx.jvp(graph, ["x3"]), rlx.vjp(graph, ["x3"])
    assert not rlx.evaluate(forward, {**values, "tangent_x3": keep})[1].any()
    cotangent = backward.arguments[-1].name
    assert not rlx.evaluate(backward, {**values, cotangent: np.ones((B, H, S, V))})[1].any()


@pytest.mark.parametrize("score_scale", [0.3, -1.0, 0.0])
@pytest.mark.parametrize("softcap", [None, 0.5])
def test_scale_and_softcap(softcap: float | None, score_scale: float) -> None:
    check(*_attention(mask_kind="causal", score_scale=score_scale, softcap=softcap), *_operands())


def test_saturated_softcap() -> None:
    """Scores are far beyond the cap, where the slope of tanh is small."""
    q, k, v = _operands()
    check(*_attention(softcap=1.0), q * 10, k, v, tolerance=1e-11)


@pytest.mark.parametrize(
    "attributes", [{}, {"mask_kind": "causal", "softcap": 1.5}, {"mask_kind": "sliding_window", "window": 1}]
)
def test_gradients_of_gradients(attributes: dict[str, Any]) -> None:
    """With fewer keys than queries, also in rows that see nothing."""
    check_second(*_attention(**attributes), *_operands(3))


@pytest.mark.parametrize("name", NARROW)
def test_narrow_floats(name: str) -> None:
    check(*_attention(mask_kind="causal", softcap=2.0), *_operands(name=name), tolerance=NARROW[name])


def test_the_weights_are_computed_once() -> None:
    """Two products forward; backward one each for the weights, q, k and v, and none twice."""
    arrays = [*(a.astype(np.float32) for a in _operands()), random("f32", (S, 5))]
    pulled = rlx.vjp(graph_of(_attention(mask_kind="bias")[0], arrays), ["x0", "x1", "x2", "x3"])
    decomposed = str(rlx.passes.run(pulled, "builtin.module(rlx-decompose,canonicalize,cse)"))
    assert decomposed.count("rlx.dot_general") == 6 and decomposed.count('kind = "exp"') == 1


# --- batches ------------------------------------------------------------------------------------------

_MASKS: list[tuple[str, tuple[int, ...] | None]] = [
    ("none", None), ("causal", None), ("custom", (B, 5)), ("custom", (B, 1, 1, 5)), ("custom", (B, 1, S, 5)),
    ("bias", (5,)), ("bias", (S, 5)), ("bias", (1, H, 1, 5)), ("bias", (B, H, S, 5)),
]  # fmt: skip


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(("kind", "shape"), _MASKS)
def test_any_operands_may_be_batched(kind: str, shape: tuple[int, ...] | None, packed: bool) -> None:
    arrays = _operands(packed=packed)
    if shape is not None:
        arrays.append(random("bool" if kind == "custom" else "f64", shape, seed=5))
    graph = graph_of(_attention(mask_kind=kind)[0], arrays)
    values = {f"x{i}": a for i, a in enumerate(arrays)}
    for count in range(1, len(arrays) + 1):
        for names in itertools.combinations(values, count):
            check_vmap(graph, values, dict.fromkeys(names, 0), size=2)


def test_queries_that_share_keys_are_one_call() -> None:
    """Nothing is repeated for unbatched operands."""
    graph = graph_of(_attention()[0], _operands())
    assert "rlx.expand" not in str(rlx.vmap(graph, {"x0": 0}, 3))


# --- rotary embedding ---------------------------------------------------------------------------------


def _packed(formula: Build) -> Build:
    """Return a formula of `[B, H, S, D]` for heads of 8 in `[B, S, H·D]`."""

    def function(x: Any, cos: Any, sin: Any) -> Any:
        heads = x.reshape(*x.shape[:2], -1, 8).transpose(0, 2, 1, 3)
        return formula(heads, cos, sin).transpose(0, 2, 1, 3).reshape(x.shape)

    return function


@pytest.mark.parametrize("style", ["neox", "gptj"])
@pytest.mark.parametrize("n_rot", [8, 4, 0])
def test_rope(n_rot: int, style: str) -> None:
    tables = [random("f64", (5, n_rot // 2), seed=s) for s in (2, 3)]  # no rotations: the transpose is not the inverse

    def build(g: Any, *operands: Any) -> Any:
        return g.rope(*operands, head_dim=8, n_rot=n_rot, style=style)

    check(build, rope(n_rot, style), random("f64", (2, 3, 5, 8)), *tables)
    check(build, _packed(rope(n_rot, style)), random("f64", (2, 5, 24)), *tables)
    per_batch = [random("f64", (2, 5, n_rot // 2), seed=s) for s in (2, 3)]

    def formula(x: Any, *given: Any) -> Any:
        return rope(n_rot, style)(x, *(t[:, None] for t in given))

    check(build, formula, random("f64", (2, 3, 5, 8)), *per_batch)


def test_gradients_of_gradients_of_rope() -> None:
    arrays = (random("f64", (2, 3, 5, 8)), random("f64", (5, 2), seed=2), random("f64", (5, 2), seed=3))
    check_second(lambda g, *x: g.rope(*x, head_dim=8, n_rot=4), rope(4, "neox"), *arrays)


@pytest.mark.parametrize("name", NARROW)
def test_narrow_rope(name: str) -> None:
    arrays = (random(name, (2, 3, 5, 8)), random(name, (5, 4), seed=2), random(name, (5, 4), seed=3))
    check(lambda g, *x: g.rope(*x, head_dim=8), rope(8, "neox"), *arrays, tolerance=NARROW[name])


@pytest.mark.parametrize("table", [(5, 2), (2, 5, 2)])
@pytest.mark.parametrize("shape", [(2, 3, 5, 8), (2, 5, 24)])
def test_any_operands_of_rope_may_be_batched(shape: tuple[int, ...], table: tuple[int, ...]) -> None:
    arrays = [random("f64", shape), random("f64", table, seed=2), random("f64", table, seed=3)]
    graph = graph_of(lambda g, *x: g.rope(*x, head_dim=8, n_rot=4), arrays)
    values = {f"x{i}": a for i, a in enumerate(arrays)}
    for count in (1, 2, 3):
        for names in itertools.combinations(values, count):
            check_vmap(graph, values, dict.fromkeys(names, 0), size=2)

"""Gradients of attention and of rotary embedding, against JAX and differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlx.support.errors import ShapeError
from tests.ops.formulas import attention, rope
from tests.ops.gradients import check_rounded_once, check_twice
from tests.ops.references import random, run

B, S, H, D, V = 2, 4, 6, 4, 3
SIZES = {"num_heads": H, "head_dim": D}
WRT = {"query": 0, "key": 1, "value": 2, "mask": 3}


def _operands(keys: int, kv_heads: int, packed: bool, name: str = "f64") -> list[np.ndarray]:
    """Return q, k, v and dy in either layout. The values differ from the keys in width."""
    shapes = ((B, H, S, D), (B, kv_heads, keys, D), (B, kv_heads, keys, V), (B, H, S, V))
    arrays = [random(name, shape, low=-2, high=2, seed=i) for i, shape in enumerate(shapes)]
    if packed:
        arrays = [a.transpose(0, 2, 1, 3).reshape(a.shape[0], a.shape[2], -1) for a in arrays]
    return arrays


def _check(
    wrt: str, keys: int = 5, kv_heads: int = H, packed: bool = True, mask: Any = None, **attributes: Any
) -> np.ndarray:
    q, k, v, dy = _operands(keys, kv_heads, packed)
    got = run("attention_backward", q, k, v, dy, mask, wrt=wrt, **SIZES, **attributes)
    arguments = (q, k, v, mask)
    check_twice(
        got,
        "attention",
        attention(H, D, kv_heads, **attributes),
        arguments,
        dy,
        WRT[wrt],
        16,
        **SIZES,
        **attributes,
    )
    return got


@pytest.mark.parametrize("wrt", ["query", "key", "value"])
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("kv_heads", [1, 2, 6])
def test_grouped_heads_in_both_layouts(kv_heads: int, packed: bool, wrt: str) -> None:
    _check(wrt, kv_heads=kv_heads, packed=packed)


@pytest.mark.parametrize("wrt", ["query", "key", "value"])
@pytest.mark.parametrize("keys", [4, 6, 2])
def test_causal(keys: int, wrt: str) -> None:
    """With fewer keys than queries, the first queries see no keys and contribute to no gradient."""
    got = _check(wrt, keys=keys, kv_heads=2, mask_kind="causal")
    if keys == 2 and wrt == "query":
        assert not got[:, :2].any() and got[:, 3].all()  # query 2 sees only one key


@pytest.mark.parametrize("wrt", ["query", "key", "value"])
@pytest.mark.parametrize(("keys", "window"), [(4, 0), (6, 2), (3, 1)])
def test_sliding_window(keys: int, window: int, wrt: str) -> None:
    _check(wrt, keys=keys, mask_kind="sliding_window", window=window)


@pytest.mark.parametrize("wrt", ["query", "key", "value"])
@pytest.mark.parametrize("score_scale", [None, 0.3, -1.0, 0.0])
@pytest.mark.parametrize("softcap", [None, 0.5])
def test_scale_and_softcap(softcap: float | None, score_scale: float | None, wrt: str) -> None:
    _check(wrt, kv_heads=2, mask_kind="causal", score_scale=score_scale, softcap=softcap)


def _keep(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return a mask with some keys for every query, except the first query of the first batch, which sees none."""
    keep = random("bool", shape, seed=5)
    keep[..., 0] = True
    keep[0, ..., :] &= len(shape) == 4
    if len(shape) == 4:
        keep[0, :, 0] = False
    return keep.astype(np.float64) if name == "f64" else keep.astype(name)


@pytest.mark.parametrize("wrt", ["query", "key", "value"])
@pytest.mark.parametrize("name", ["bool", "int32", "f64"])
@pytest.mark.parametrize("shape", [(B, 5), (B, 1, S, 5), (B, H, S, 5)])
def test_custom_masks(shape: tuple[int, ...], name: str, wrt: str) -> None:
    got = _check(wrt, kv_heads=3, packed=len(shape) == 2, mask=_keep(name, shape), mask_kind="custom")
    unseeing = got[0] if len(shape) == 2 else got[0, :, 0]
    assert wrt != "query" or not unseeing.any()


@pytest.mark.parametrize("wrt", ["query", "key", "value", "mask"])
@pytest.mark.parametrize("shape", [(S, 5), (1, 1, 5), (B, 1, S, 5), (1, H, 1, 1), (B, H, S, 5)])
def test_bias(shape: tuple[int, ...], wrt: str) -> None:
    """The gradient of the bias is summed over its broadcast axes."""
    _check(wrt, kv_heads=2, packed=False, mask=random("f64", shape, seed=5), mask_kind="bias", softcap=1.5)


@pytest.mark.parametrize("wrt", ["query", "key", "value", "mask"])
def test_bias_of_minus_infinity(wrt: str) -> None:
    """Minus infinity hides keys; for one query it hides all of them."""
    bias = random("f64", (B, 1, S, 5), seed=5)
    bias[0, 0, 1, 2:], bias[1, 0, 2] = -np.inf, -np.inf
    got = _check(wrt, packed=False, mask=bias, mask_kind="bias")
    if wrt == "mask":
        assert np.array_equal(got != 0, np.isfinite(bias))
    elif wrt == "query":
        assert not got[1, :, 2].any()


@pytest.mark.parametrize("wrt", ["query", "key", "value"])
@pytest.mark.parametrize("name", ["f32", "f16", "bf16"])
def test_narrow_floats_are_computed_wide(name: str, wrt: str) -> None:
    q, k, v, dy = _operands(5, 2, True, name)
    options: dict[str, Any] = {"mask_kind": "causal", "softcap": 2.0, **SIZES}
    check_rounded_once("attention_backward", q, k, v, dy, None, factor=4, wrt=wrt, **options)


def test_saturated_softcap_keeps_its_digits() -> None:
    """`1 - tanh²` cancels where scores are far beyond the cap. The gradient there is small, but not 0."""
    q, k, v, dy = (x.astype(np.float32) for x in _operands(5, H, True))
    q = q * 20
    options: dict[str, Any] = {"wrt": "query", "softcap": 1.0, "num_heads": H, "head_dim": D}
    got = run("attention_backward", q, k, v, dy, None, **options)
    exact = run("attention_backward", *(x.astype(np.float64) for x in (q, k, v, dy)), None, **options)
    assert np.allclose(got, exact, rtol=1e-3, atol=1e-8 * np.abs(exact).max())


def test_only_a_bias_has_a_gradient() -> None:
    q, k, v, dy = _operands(5, H, True)
    for mask, kind in ((None, "none"), (None, "causal"), (np.ones((B, 5), bool), "custom")):
        with pytest.raises(ShapeError, match="needs mask_kind 'bias'"):
            run("attention_backward", q, k, v, dy, mask, wrt="mask", mask_kind=kind, **SIZES)


# --- rotary embedding -------------------------------------------------------------------------------


@pytest.mark.parametrize("style", ["neox", "gptj"])
@pytest.mark.parametrize("n_rot", [8, 4, 0])
def test_rope_backward(n_rot: int, style: str) -> None:
    x, dy = random("f64", (2, 3, 5, 8)), random("f64", (2, 3, 5, 8), seed=1)
    cos, sin = (random("f64", (5, n_rot // 2), seed=s) for s in (2, 3))  # not a rotation: this tests the transpose
    attributes: dict[str, Any] = {"head_dim": 8, "n_rot": n_rot, "style": style}
    got = run("rope_backward", dy, cos, sin, **attributes)
    check_twice(got, "rope", rope(n_rot, style), (x, cos, sin), dy, **attributes)
    packed = run("rope_backward", dy.transpose(0, 2, 1, 3).reshape(2, 5, 24), cos, sin, **attributes)
    assert np.array_equal(packed.reshape(2, 5, 3, 8).transpose(0, 2, 1, 3), got)


@pytest.mark.parametrize("name", ["f32", "f16", "bf16"])
def test_rope_backward_undoes_a_rotation(name: str) -> None:
    x = random(name, (2, 5, 16))
    angle = np.outer(np.arange(5), 100.0 ** -np.linspace(0, 1, 4, endpoint=False))
    cos, sin = (f(angle).astype(np.float32) for f in (np.cos, np.sin))
    turned = run("rope", x.astype(np.float32), cos, sin, head_dim=8, n_rot=8)
    back = run("rope_backward", turned, cos, sin, head_dim=8, n_rot=8)
    assert np.allclose(back, x.astype(np.float32), rtol=0, atol=4e-6)

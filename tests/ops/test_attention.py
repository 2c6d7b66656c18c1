"""Attention and rotary embedding against JAX, complex rotation and, where it is installed, PyTorch."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.ops.references import FLOATS, agree, in_jax, random, run

B, S, T, H, D = 2, 5, 7, 6, 4
_F32 = float(np.finfo(np.float32).eps)


def _operands(name: str, keys: int = T, kv_heads: int = H, value_dim: int = D) -> tuple[np.ndarray, ...]:
    """Return q, k and v as `[B, S, H, D]`."""
    shapes = ((B, S, H, D), (B, keys, kv_heads, D), (B, keys, kv_heads, value_dim))
    return tuple(random(name, shape, low=-2, high=2, seed=i) for i, shape in enumerate(shapes))


def _packed(x: np.ndarray) -> np.ndarray:
    return x.reshape(*x.shape[:2], -1)


def _split(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x.transpose(0, 2, 1, 3))


def _check(
    name: str, operands: tuple[np.ndarray, ...], mask: Any, options: dict[str, Any], attributes: dict[str, Any]
) -> None:
    """Check both layouts against JAX's attention on the same values in f64."""
    wide = [x.astype(np.float64) for x in operands]
    reference = in_jax(lambda q, k, v: jax.nn.dot_product_attention(q, k, v, **options), *wide)
    expected = reference.astype(operands[0].dtype)
    eps = np.finfo(np.float64).eps if name == "f64" else _F32
    sizes = {"num_heads": H, "head_dim": D} | attributes
    agree(run("attention", *map(_packed, operands), mask, **sizes), _packed(expected), noise=np.array(eps))
    agree(run("attention", *map(_split, operands), mask, **sizes), _split(expected), noise=np.array(eps))


@pytest.mark.parametrize("name", ["f32", "f16", "bf16"])
def test_attention(name: str) -> None:
    _check(name, _operands(name), None, {}, {})


def test_attention_is_exact_in_f64() -> None:
    """JAX computes the softmax of f64 in f32, so this compares with NumPy."""
    q, k, v = _operands("f64")
    scores = np.einsum("bshd,bthd->bhst", q, k).astype(np.longdouble) / 2
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    expected = np.einsum("bhst,bthd->bshd", weights, v).astype(np.float64)
    agree(
        run("attention", *map(_packed, (q, k, v)), None, num_heads=H, head_dim=D),
        _packed(expected),
        noise=np.array(1e-15),
    )


@pytest.mark.parametrize("kv_heads", [1, 2, 3])
def test_grouped_heads(kv_heads: int) -> None:
    _check("f32", _operands("f32", kv_heads=kv_heads), None, {}, {})


def test_causal() -> None:
    _check("f32", _operands("f32", keys=S), None, {"is_causal": True}, {"mask_kind": "causal"})
    # There are more keys than queries: the last query sees all keys, as with cached keys.
    visible = np.tril(np.ones((S, T), bool), T - S)
    _check("f32", _operands("f32"), None, {"mask": visible[None, None]}, {"mask_kind": "causal"})


def test_sliding_window() -> None:
    operands = _operands("f32", keys=S)
    _check(
        "f32",
        operands,
        None,
        {"is_causal": True, "local_window_size": (2, 0)},
        {"mask_kind": "sliding_window", "window": 2},
    )


@pytest.mark.parametrize("name", ["bool", "i32", "f32"])
def test_custom_mask(name: str) -> None:
    keep = random("bool", (B, 1, S, T), seed=9) | (np.arange(T) == 0)
    _check(
        "f32",
        _operands("f32"),
        keep.astype(name if name != "f32" else np.float32) if name != "i32" else keep.astype(np.int32),
        {"mask": keep},
        {"mask_kind": "custom"},
    )


def test_key_mask_of_rank_two() -> None:
    keep = np.arange(T)[None, :] < np.array([[3], [6]])
    _check("f32", _operands("f32"), keep.astype(np.float32), {"mask": keep[:, None, None, :]}, {"mask_kind": "custom"})


def test_bias_scale_and_softcap() -> None:
    bias = random("f32", (1, H, S, T), seed=9)
    _check("f32", _operands("f32"), bias, {"bias": bias.astype(np.float64)}, {"mask_kind": "bias"})
    _check("f32", _operands("f32"), None, {"scale": 0.3}, {"score_scale": 0.3})
    q, k, v = _operands("f64")
    scores = 1.5 * np.tanh(np.einsum("bshd,bthd->bhst", q, k) * 0.5 / 1.5)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    expected = np.einsum("bhst,bthd->bshd", weights, v)
    got = run("attention", *map(_packed, (q, k, v)), None, num_heads=H, head_dim=D, softcap=1.5)
    agree(got, _packed(expected), noise=np.array(1e-15))


def test_queries_that_see_nothing_give_zeros() -> None:
    q, k, v = (_packed(x) for x in _operands("f32", keys=3))
    got = run("attention", q, k, v, None, num_heads=H, head_dim=D, mask_kind="causal")
    assert not got[:, :2].any() and got[:, 2:].any()
    nothing = np.zeros((B, 3), np.int32)
    assert not run("attention", q, k, v, nothing, num_heads=H, head_dim=D, mask_kind="custom").any()
    plain = run("attention", q, k, v, nothing, num_heads=H, head_dim=D, mask_kind="custom", empty_rows="nan")
    assert np.isnan(plain).all()
    infinite = np.full((1, 1), -np.inf, np.float32)
    assert not run("attention", q, k, v, infinite, num_heads=H, head_dim=D, mask_kind="bias").any()


# --- rotary embedding -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("style", ["neox", "gptj"])
@pytest.mark.parametrize("n_rot", [8, 4, 0])
def test_rope_is_a_complex_rotation(n_rot: int, style: str, name: str) -> None:
    x = random(name, (2, 5, 3, 8))  # [B, S, H, D]
    angle = np.outer(np.arange(5), 100.0 ** -np.linspace(0, 1, n_rot // 2, endpoint=False))
    cos, sin = (f(angle).astype(x.dtype) for f in (np.cos, np.sin))
    wide, half = x.astype(np.float64), n_rot // 2
    turned = wide[..., :n_rot]
    first, second = (
        (turned[..., :half], turned[..., half:]) if style == "neox" else (turned[..., ::2], turned[..., 1::2])
    )
    unit = (cos.astype(np.float64) + 1j * sin.astype(np.float64))[None, :, None]
    z = (first + 1j * second) * unit
    rotated = np.concatenate([z.real, z.imag], -1)
    if style == "gptj":
        rotated = np.stack([z.real, z.imag], -1).reshape(*x.shape[:-1], n_rot)
    expected = np.concatenate([rotated, wide[..., n_rot:]], -1).astype(x.dtype)
    attributes = {"head_dim": 8, "n_rot": n_rot, "style": style}
    room = np.array(8 * np.finfo(np.float64 if name == "f64" else np.float32).eps)
    agree(run("rope", _packed(x), cos, sin, **attributes), _packed(expected), factor=0.5, noise=room)
    agree(run("rope", _split(x), cos, sin, **attributes), _split(expected), factor=0.5, noise=room)
    per_batch = [np.ascontiguousarray(np.broadcast_to(t, (2, *t.shape))) for t in (cos, sin)]
    agree(run("rope", _packed(x), *per_batch, **attributes), _packed(expected), factor=0.5, noise=room)


def test_rope_in_jax() -> None:
    """The usual formulation of the neox style: x·cos + rotate_half(x)·sin."""
    x = random("f32", (2, 3, 5, 8))  # [B, H, S, D]
    angle = np.outer(np.arange(5), 1e4 ** -np.linspace(0, 1, 4, endpoint=False))
    cos, sin = (f(angle).astype(np.float32) for f in (np.cos, np.sin))

    def rotate(v: Any) -> Any:
        c, s = (jnp.concatenate([t, t], -1) for t in (cos, sin))
        return v * c + jnp.concatenate([-v[..., 4:], v[..., :4]], -1) * s

    agree(run("rope", x, cos, sin, head_dim=8, n_rot=8), in_jax(rotate, x), noise=np.array(4 * _F32))

"""Simple formulas in JAX. Their derivatives are compared with those of RLX's ops."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# --- normalisations -----------------------------------------------------------------------------------


def _along(weight: Any, axis: int, rank: int) -> Any:
    return weight.reshape(-1, *(1,) * (rank - 1 - axis))


def layer_norm(axis: int, eps: float) -> Any:
    """Return a function of x, scale and bias."""

    def formula(x: Any, scale: Any, bias: Any) -> Any:
        normal = (x - x.mean(axis, keepdims=True)) / jnp.sqrt(x.var(axis, keepdims=True) + eps)
        return normal * _along(scale, axis, x.ndim) + _along(bias, axis, x.ndim)

    return formula


def rms_norm(axis: int, eps: float) -> Any:
    """Return a function of x, scale and bias."""

    def formula(x: Any, scale: Any, bias: Any) -> Any:
        normal = x / jnp.sqrt((x * x).mean(axis, keepdims=True) + eps)
        return normal * _along(scale, axis, x.ndim) + _along(bias, axis, x.ndim)

    return formula


def group_norm(num_groups: int, eps: float) -> Any:
    """Return a function of x, scale and bias."""

    def formula(x: Any, scale: Any, bias: Any) -> Any:
        grouped = x.reshape(x.shape[0], num_groups, -1)
        centred = grouped - grouped.mean(-1, keepdims=True)
        normal = (centred / jnp.sqrt(grouped.var(-1, keepdims=True) + eps)).reshape(x.shape)
        return normal * _along(scale, 1, x.ndim) + _along(bias, 1, x.ndim)

    return formula


# --- attention ----------------------------------------------------------------------------------------


def attention(num_heads: int, head_dim: int, kv_heads: int, **attributes: Any) -> Any:
    """Return a function of q, k, v in either layout, and a mask. Rows of -inf or without visible keys behave as in the op."""
    scale, softcap = attributes.get("score_scale"), attributes.get("softcap")
    kind, window = attributes.get("mask_kind", "none"), attributes.get("window")

    def split(x: Any, heads: int) -> Any:
        return x if x.ndim == 4 else x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)

    def formula(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        query = split(q, num_heads)
        key, value = (jnp.repeat(split(x, kv_heads), num_heads // kv_heads, 1) for x in (k, v))
        scores = query @ key.swapaxes(2, 3) * (head_dim**-0.5 if scale is None else scale)
        if softcap is not None:
            scores = softcap * jnp.tanh(scores / softcap)
        queries, keys = scores.shape[2:]
        distance = jnp.arange(keys)[None, :] - jnp.arange(queries)[:, None] - (keys - queries)
        visible = jnp.ones((queries, keys), bool)
        if kind in ("causal", "sliding_window"):
            visible = (distance <= 0) & (distance >= -(keys + queries if window is None else window))
        elif kind == "custom":
            keep = mask >= 0.5 if jnp.issubdtype(mask.dtype, jnp.floating) else mask != 0
            visible = keep[:, None, None, :] if keep.ndim == 2 else keep
        elif kind == "bias":
            scores = scores + mask
            visible = ~jnp.isneginf(scores)
        top = jax.lax.stop_gradient(jnp.where(visible, scores, -1e300).max(-1, keepdims=True))
        weights = jnp.where(visible, jnp.exp(jnp.where(visible, scores - top, 0)), 0)
        total = weights.sum(-1, keepdims=True)
        result = weights / jnp.where(total == 0, 1, total) @ value
        return result if q.ndim == 4 else result.transpose(0, 2, 1, 3).reshape(*q.shape[:2], -1)

    return formula


def rope(n_rot: int, style: str) -> Any:
    """Return a function of x `[B, H, S, D]` and the two tables."""

    def formula(x: Any, cos: Any, sin: Any) -> Any:
        turned, rest = x[..., :n_rot], x[..., n_rot:]
        half = n_rot // 2
        neox = style == "neox"
        a, c = (turned[..., :half], turned[..., half:]) if neox else (turned[..., ::2], turned[..., 1::2])
        pair = (a * cos - c * sin, c * cos + a * sin)
        joined = jnp.concatenate(pair, -1) if neox else jnp.stack(pair, -1).reshape(turned.shape)
        return jnp.concatenate([joined, rest], -1)

    return formula


# --- quantisation -------------------------------------------------------------------------------------


def _through(z: Any) -> Any:
    """Return the rounded value, with the derivative of the identity."""
    return z + jax.lax.stop_gradient(jnp.round(z) - z)


def straight_through_factor(ste: str, ratio: Any) -> Any:
    """Return the gradient factor of an estimator at `x/(qmax·scale)`."""
    if ste == "tanh":
        return 1 - jnp.tanh(ratio) ** 2
    if ste == "hard_tanh":
        return jnp.maximum(0, 1 - jnp.abs(ratio))
    return jnp.where(jnp.abs(ratio) <= 1, 1.0, 0.0) if ste == "clipped_identity" else jnp.ones_like(ratio)


def lsq(bits: int, axis: int | None) -> Any:
    """Return fake quantisation with a learned scale, as a function of x and the scale."""
    most = 2 ** (bits - 1) - 1

    def formula(x: Any, scale: Any) -> Any:
        scales = scale if axis is None else _along(scale, axis, x.ndim)
        steps = x / scales
        return jnp.where(jnp.abs(steps) <= most, _through(steps), jnp.sign(steps) * most) * scales

    return formula


# --- losses -------------------------------------------------------------------------------------------


def cross_entropy(labels: np.ndarray, classes: int) -> Any:
    """Return the cross entropy of logits; 0 where the label is not a class."""
    counts = (labels >= 0) & (labels < classes)

    def formula(logits: Any) -> Any:
        chosen = jnp.take_along_axis(logits, jnp.clip(labels, 0, classes - 1)[..., None], -1)[..., 0]
        return jnp.where(counts, jax.scipy.special.logsumexp(logits, -1) - chosen, 0.0)

    return formula

"""Fused ops and blocks against the same layers written with JAX, and against PyTorch's encoder layer."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.ops.references import ACTIVATIONS_IN_JAX, agree, in_jax, random, run

# The layers below add some tens of products of numbers around 1.
_ROOM = np.array(40 * np.finfo(np.float32).eps)


def _compare(got: np.ndarray, reference: Any, *operands: np.ndarray) -> None:
    """Compare with JAX in f64."""
    wide = [x.astype(np.float64) if x.dtype == np.float32 else x for x in operands]
    agree(got, in_jax(reference, *wide).astype(np.float32), noise=_ROOM)


def _random(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    return [random("f32", s, low=-0.7, high=0.7, seed=i) for i, s in enumerate(shapes)]


def _norm(x: Any, scale: Any, shift: Any, eps: float, *, centre: bool) -> Any:
    centred = x - x.mean(-1, keepdims=True) if centre else x
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + eps) * scale + shift


@pytest.mark.parametrize("op", ["fused_matmul_bias_act", "linear", "linear_fused"])
@pytest.mark.parametrize("activation", [None, "gelu", "silu", "tanh", "abs"])
def test_linear(activation: str | None, op: str) -> None:
    x, w, bias = _random((2, 3, 8), (8, 5), (5,))
    after = ACTIVATIONS_IN_JAX[activation] if activation else lambda v: v
    _compare(run(op, x, w, bias, activation=activation), lambda x, w, b: after(x @ w + b), x, w, bias)
    if op == "linear":
        _compare(run(op, x, w, None, activation=activation), lambda x, w: after(x @ w), x, w)


def test_shared_linear_pair() -> None:
    x, first, second = _random((2, 3, 8), (8, 5), (8, 2))
    got = run("shared_linear_pair", x, first, second)
    _compare(got[0], jnp.matmul, x, first)
    _compare(got[1], jnp.matmul, x, second)


@pytest.mark.parametrize("gate_first", [True, False])
def test_fused_swiglu(gate_first: bool) -> None:
    (x,) = _random((3, 4, 10))

    def reference(v: Any) -> Any:
        first, second = jnp.split(v, 2, -1)
        return second * jax.nn.silu(first) if gate_first else first * jax.nn.silu(second)

    _compare(run("fused_swiglu", x, gate_first=gate_first), reference, x)


def _swiglu(x: Any, up: Any, gate: Any, down: Any) -> Any:
    return ((x @ up) * jax.nn.silu(x @ gate)) @ down


def test_swiglu_ffn() -> None:
    operands = _random((2, 3, 4), (4, 6), (4, 6), (6, 4))
    _compare(run("swiglu_ffn", *operands), _swiglu, *operands)


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("op", ["fused_residual_layer_norm", "fused_residual_rms_norm"])
def test_fused_residual_norms(op: str, with_bias: bool) -> None:
    x, residual, bias, scale, shift = _random((3, 8), (3, 8), (8,), (8,), (8,))
    got = run(op, x, residual, bias if with_bias else None, scale, shift, eps=1e-3)

    def reference(x: Any, residual: Any, bias: Any, scale: Any, shift: Any) -> Any:
        total = x + residual + (bias if with_bias else 0)
        return _norm(total, scale, shift, 1e-3, centre="layer" in op)

    _compare(got, reference, x, residual, bias, scale, shift)


def test_residual_rms_norm() -> None:
    operands = _random((3, 8), (3, 8), (8,), (8,))
    got = run("residual_rms_norm", *operands, eps=1e-2)
    _compare(got, lambda x, r, s, b: _norm(x + r, s, b, 1e-2, centre=False), *operands)


def test_depthwise_conv1d_causal() -> None:
    x, w, pad = _random((2, 5, 3), (3, 1, 1, 4), (2, 3, 3))

    def reference(x: Any, w: Any, pad: Any) -> Any:
        rows = jnp.concatenate([pad, x], 1)
        windows = jnp.stack([rows[:, i : i + 5] for i in range(4)], -1)  # [B, S, C, K]
        return (windows * w[:, 0, 0]).sum(-1)

    _compare(run("depthwise_conv1d_causal", x, w, pad, kernel_size=4), reference, x, w, pad)


def _attend(q: Any, k: Any, v: Any, heads: int, head_dim: int, **options: Any) -> Any:
    q, k, v = (t.reshape(*t.shape[:2], -1, head_dim) for t in (q, k, v))
    return jax.nn.dot_product_attention(q, k, v, **options).reshape(*q.shape[:2], heads * head_dim)


def _turn(x: Any, cos: Any, sin: Any, head_dim: int) -> Any:
    split = x.reshape(*x.shape[:2], -1, head_dim)
    first, second = jnp.split(split, 2, -1)
    c, s = cos[:, None], sin[:, None]
    return jnp.concatenate([first * c - second * s, second * c + first * s], -1).reshape(x.shape)


@pytest.mark.parametrize("mask_kind", ["causal", "none"])
def test_llama_decoder_block(mask_kind: str) -> None:
    e, f, heads, kv, d = 8, 12, 4, 2, 2
    shapes = [(e,), (e,), (e, heads * d), (e, kv * d), (e, kv * d), (heads * d, e), (e,), (e,)]
    weights = _random((2, 5, e), *shapes, (e, f), (e, f), (f, e))
    angle = np.outer(np.arange(5), [0.3])
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    sizes = {"num_heads": heads, "head_dim": d, "num_kv_heads": kv, "eps": 1e-5, "mask_kind": mask_kind}
    got = run("llama_decoder_block", *weights, cos, sin, None, **sizes)

    def reference(x: Any, s1: Any, b1: Any, wq: Any, wk: Any, wv: Any, wo: Any, s2: Any, b2: Any, *rest: Any) -> Any:
        gate, up, down, cos, sin = rest
        normal = _norm(x, s1, b1, 1e-5, centre=False)
        q, k = _turn(normal @ wq, cos, sin, d), _turn(normal @ wk, cos, sin, d)
        h = x + _attend(q, k, normal @ wv, heads, d, is_causal=mask_kind == "causal") @ wo
        return h + _swiglu(_norm(h, s2, b2, 1e-5, centre=False), up, gate, down)

    _compare(got, reference, *weights, cos, sin)


def _encoder_weights(e: int, f: int) -> list[np.ndarray]:
    projections = [s for _ in range(4) for s in ((e, e), (e,))]
    return _random((2, 5, e), *projections, (e,), (e,), (e, f), (f,), (f, e), (e,), (e,), (e,))


def test_transformer_encoder_block() -> None:
    weights = _encoder_weights(8, 12)
    keep = np.arange(5)[None, :] < np.array([[3], [5]])
    got = run("transformer_encoder_block", *weights, keep.astype(np.float32), num_heads=2, eps=1e-5, mask_kind="custom")

    def reference(x: Any, wq: Any, bq: Any, wk: Any, bk: Any, wv: Any, bv: Any, wo: Any, bo: Any, *rest: Any) -> Any:
        s1, b1, up, bup, down, bdown, s2, b2 = rest
        heads = (x @ wq + bq, x @ wk + bk, x @ wv + bv)
        attended = _attend(*heads, 2, 4, mask=jnp.asarray(keep)[:, None, None, :])
        h = _norm(x + attended @ wo + bo, s1, b1, 1e-5, centre=True)
        wide = jax.nn.gelu(h @ up + bup, approximate=False)
        return _norm(h + wide @ down + bdown, s2, b2, 1e-5, centre=True)

    _compare(got, reference, *weights)

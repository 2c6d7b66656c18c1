"""Fused ops against the same layers written with JAX, and against PyTorch's encoder layer; see test_blocks.py as well."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlx
from tests.drawing import drawn
from tests.ops.references import ACTIVATIONS_IN_JAX, FLOATS, agree, in_jax, random, run
from tests.ops.test_blocks import _norm, _turn

B, S, E, F, HEADS, D = 2, 5, 6, 10, 2, 4
_SIZES: dict[str, Any] = {"num_heads": HEADS, "head_dim": D}


def _operands(name: str, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    return [random(name, shape, low=-0.7, high=0.7, seed=i) for i, shape in enumerate(shapes)]


def _compare(got: np.ndarray, reference: Any, *operands: np.ndarray) -> None:
    """Compare with JAX in f64. Ops inside a fused op round to its dtype; their sums have some tens of numbers around 1."""
    expected = in_jax(reference, *[x.astype(np.float64) for x in operands])
    agree(got, expected.astype(got.dtype), noise=np.array(40 * float(rlx.dtype(got.dtype).eps)))


@drawn("activation", [None, *ACTIVATIONS_IN_JAX], of_each=12)
def test_fused_matmul_bias_act(activation: str | None) -> None:
    """The sums are between 0 and pi/2, where every function is defined and not steep."""
    x, w, bias = (random("f32", s, low=0.1, high=h, seed=1) for s, h in (((4, 3), 0.6), ((3, 5), 0.6), ((5,), 0.3)))
    after = ACTIVATIONS_IN_JAX[activation] if activation else lambda v: v
    got = run("fused_matmul_bias_act", x, w, bias, activation=activation)
    _compare(got, lambda x, w, b: after(x @ w + b), x, w, bias)


@pytest.mark.parametrize("name", FLOATS)
def test_dtypes(name: str) -> None:
    x, w, bias = _operands(name, (3, 8), (8, 4), (4,))
    got = run("fused_matmul_bias_act", x, w, bias, activation="gelu")
    _compare(got, lambda x, w, b: jax.nn.gelu(x @ w + b, approximate=False), x, w, bias)
    _compare(run("fused_swiglu", x), lambda x: x[:, :4] * jax.nn.silu(x[:, 4:]), x)
    x, residual, shared, scale, shift = _operands(name, (3, 8), (3, 8), (8,), (8,), (8,))
    for op, centre in (("fused_residual_layer_norm", True), ("fused_residual_rms_norm", False)):
        got = run(op, x, residual, shared, scale, shift, eps=1e-3)

        def reference(x: Any, r: Any, b: Any, scale: Any, shift: Any, centre: bool = centre) -> Any:
            return _norm(x + r + b, scale, shift, 1e-3, centre=centre)

        _compare(got, reference, x, residual, shared, scale, shift)


def _attend(q: Any, k: Any, v: Any, keep: Any) -> Any:
    """Compute attention; JAX's own computes the softmax of f64 in f32."""
    q, k, v = (t.reshape(*t.shape[:2], HEADS, -1) for t in (q, k, v))
    scores = jnp.where(keep, jnp.einsum("bshd,bthd->bhst", q, k) / np.sqrt(q.shape[-1]), -jnp.inf)
    attended = jnp.einsum("bhst,bthd->bshd", jax.nn.softmax(scores, -1), v)
    return attended.reshape(*attended.shape[:2], -1)


def _block(hidden: Any, qkv_w: Any, out_w: Any, keep: Any, qkv_b: Any, out_b: Any, cos: Any, sin: Any) -> Any:
    q, k, v = jnp.split(hidden @ qkv_w + qkv_b, 3, -1)
    if cos is not None:
        q, k = _turn(q, cos, sin, D), _turn(k, cos, sin, D)
    return _attend(q, k, v, keep) @ out_w + out_b


@pytest.mark.parametrize("rotated", [True, False])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("name", FLOATS)
def test_fused_attention_block(name: str, biased: bool, rotated: bool) -> None:
    hidden, qkv_w, out_w, qkv_b, out_b = _operands(name, (B, S, E), (E, 3 * HEADS * D), (HEADS * D, E), (24,), (E,))
    angle = np.outer(np.arange(S), [0.9, 0.2])
    cos, sin = np.cos(angle).astype(hidden.dtype), np.sin(angle).astype(hidden.dtype)
    keep = np.arange(S)[None, :] < np.array([[3], [5]])
    biases, tables = ([qkv_b, out_b] if biased else [None, None]), ([cos, sin] if rotated else [None, None])
    got = run("fused_attention_block", hidden, qkv_w, out_w, keep.astype(np.float32), *biases, *tables, **_SIZES)

    def reference(hidden: Any, qkv_w: Any, out_w: Any, qkv_b: Any, out_b: Any, cos: Any, sin: Any) -> Any:
        added, turned = (qkv_b, out_b) if biased else (0, 0), (cos, sin) if rotated else (None, None)
        return _block(hidden, qkv_w, out_w, keep[:, None, None, :], *added, *turned)

    _compare(got, reference, hidden, qkv_w, out_w, qkv_b, out_b, cos, sin)


def test_masks_of_the_attention_block() -> None:
    hidden, qkv_w, out_w, bias, out_b = _operands("f32", (B, S, E), (E, 24), (8, E), (24,), (E,))
    pairs = np.tril(np.ones((S, S), bool))[None, None]

    def reference(hidden: Any, qkv_w: Any, out_w: Any, bias: Any, out_b: Any) -> Any:
        return _block(hidden, qkv_w, out_w, pairs, bias, out_b, None, None)

    for mask in (
        pairs,
        pairs.astype(np.int32),
        pairs[0],
        np.ascontiguousarray(np.broadcast_to(pairs, (B, HEADS, S, S))),
    ):
        got = run("fused_attention_block", hidden, qkv_w, out_w, mask, bias, out_b, None, None, **_SIZES)
        _compare(got, reference, hidden, qkv_w, out_w, bias, out_b)
    nothing = np.zeros((B, S), bool)
    blind = run("fused_attention_block", hidden, qkv_w, out_w, nothing, bias, out_b, None, None, **_SIZES)
    assert np.array_equal(blind, np.broadcast_to(out_b, blind.shape))  # a query that sees no keys gets zeros


def _layer_weights(name: str, width: int = HEADS * D, e: int = E) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return weights and norms, then biases."""
    shapes = [(B, S, e), (e, 3 * width), (width, e), (e,), (e,), (e, F), (F, e), (e,), (e,)]
    operands = _operands(name, *shapes, (3 * width,), (e,), (F,), (e,))
    return operands[: len(shapes)], operands[len(shapes) :]


@pytest.mark.parametrize("activation", ["gelu", "relu", "tanh"])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("name", FLOATS)
def test_fused_transformer_layer(name: str, biased: bool, activation: str) -> None:
    weights, biases = _layer_weights(name)
    keep = np.arange(S)[None, :] < np.array([[3], [5]])
    given, epsilons = biases if biased else [None] * 4, {"eps1": 1e-2, "eps2": 1e-5}
    got = run("fused_transformer_layer", *weights, keep, *given, **_SIZES, **epsilons, activation=activation)

    def reference(
        x: Any, qkv_w: Any, out_w: Any, s1: Any, b1: Any, up: Any, down: Any, s2: Any, b2: Any, *b: Any
    ) -> Any:
        qkv_b, out_b, up_b, down_b = b if biased else (0, 0, 0, 0)
        attended = _block(x, qkv_w, out_w, keep[:, None, None, :], qkv_b, out_b, None, None)
        h = _norm(x + attended, s1, b1, 1e-2, centre=True)
        return _norm(h + ACTIVATIONS_IN_JAX[activation](h @ up + up_b) @ down + down_b, s2, b2, 1e-5, centre=True)

    _compare(got, reference, *weights, *biases)


_MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"cos": (S, 2)}, "sin is missing"),
    ({"cos": (S, 3), "sin": (S, 3)}, "cos"),
    ({"qkv_w": (E, 20)}, "three times 2 heads of 4"),
    ({"qkv_w": (E, 24, 1)}, r"must be \[K, N\]"),
    ({"hidden": (S, E)}, r"must be \[B, S, E\]"),
    ({"mask": (S, B)}, "mask"),
    ({"qkv_b": (8,), "out_b": (E,)}, "bias of qkv_w"),
]


@pytest.mark.parametrize(("changed", "told"), _MISTAKES, ids=[told for _, told in _MISTAKES])
def test_mistakes_in_attention_blocks_are_told(changed: dict[str, Any], told: str) -> None:
    g = rlx.Graph()
    shapes = {"hidden": (B, S, E), "qkv_w": (E, 24), "out_w": (8, E), "mask": (B, S)} | changed
    with pytest.raises(rlx.Error, match=told):
        g.fused_attention_block(**{name: g.input(name, dims) for name, dims in shapes.items()}, **_SIZES)


def test_a_layer_has_all_biases_or_none_and_keeps_its_width() -> None:
    g = rlx.Graph()
    weights, biases = _layer_weights("f32")
    tensors = [g.constant(w) for w in weights]
    mask = g.input("mask", (B, S), "bool")
    with pytest.raises(rlx.Error, match="up_b, down_b is missing"):
        g.fused_transformer_layer(*[*tensors, mask, *biases[:2]], **_SIZES)
    tensors[6] = g.constant(np.zeros((F, E + 1), np.float32))
    with pytest.raises(rlx.Error, match="feed-forward part gives"):
        g.fused_transformer_layer(*[*tensors, mask], **_SIZES)

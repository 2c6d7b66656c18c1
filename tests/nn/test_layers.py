"""Every layer on the evaluator, against NumPy or JAX with weights in PyTorch's documented layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import nn
from rlx.ir.pytree import flatten

RANDOM = np.random.default_rng(5)


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def computed(module: nn.Module, *arrays: np.ndarray, **options: Any) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    """Return a module's results for arrays as one list, and its parameters in f64; none of them is constant 0 or 1."""
    params = {
        name: (value + 0.1 * RANDOM.random(value.shape)).astype(value.dtype) for name, value in module.init(1).items()
    }
    g = rlx.Graph("layer")
    inputs = [g.input(f"x{i}", rlx.Shape(a.shape, a.dtype)) for i, a in enumerate(arrays)]
    result = module(*inputs, **options)
    g.set_outputs(flatten(result)[0] if isinstance(result, tuple) else [result])
    g.verify()
    assert {a.name: a.shape for a in g.params} == {n: p.shape for n, p in module.parameters().items()}
    values = {f"x{i}": a for i, a in enumerate(arrays)} | params
    return rlx.evaluate(g, values), {n: v.astype(np.float64) for n, v in params.items()}


def conv(x: Any, w: Any, b: Any, **options: Any) -> Any:
    import jax

    y = jax.lax.conv_general_dilated(x, w.astype(np.float32), **options)
    return y + b.reshape(-1, *(1,) * (x.ndim - 2))


def transposed(x: Any, w: Any, b: Any, shape: tuple[int, ...], **options: Any) -> Any:
    """Compute the transposed convolution as the gradient of a convolution with respect to its input."""
    import jax

    forward = lambda y: jax.lax.conv_general_dilated(y, w.astype(np.float32), **options)  # noqa: E731
    (y,) = jax.vjp(forward, np.zeros(shape, np.float32))[1](x)
    return y + b.reshape(-1, *(1,) * (x.ndim - 2))


def normal(x: np.ndarray, axes: Any, eps: float = 1e-5) -> np.ndarray:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def channels(v: np.ndarray, rank: int) -> np.ndarray:
    return v.reshape(-1, *(1,) * (rank - 2))


X, IMAGE, SIGNAL, VOLUME = floats(2, 5, 4), floats(2, 4, 6, 5), floats(2, 3, 9), floats(1, 2, 4, 3, 5)
IDS = np.array([[0, 6], [3, 2]], np.int32)

CASES: dict[str, tuple[nn.Module, tuple[np.ndarray, ...], Callable[..., Any]]] = {
    "Linear": (nn.Linear(4, 3), (X,), lambda p, x: x @ p["weight"].T + p["bias"]),
    "Linear without bias": (nn.Linear(4, 3, bias=False), (X,), lambda p, x: x @ p["weight"].T),
    "Embedding": (nn.Embedding(7, 3), (IDS,), lambda p, i: p["weight"][i]),
    "Conv of one dimension": (
        nn.Conv(3, 2, (3,), stride=2, padding=1),
        (SIGNAL,),
        lambda p, x: conv(x, p["weight"], p["bias"], window_strides=(2,), padding=[(1, 1)]),
    ),
    "Conv of two": (
        nn.Conv2d(4, 6, 3, padding=(1, 0), dilation=(2, 1), groups=2),
        (IMAGE,),
        lambda p, x: conv(
            x,
            p["weight"],
            p["bias"],
            window_strides=(1, 1),
            padding=[(1, 1), (0, 0)],
            rhs_dilation=(2, 1),
            feature_group_count=2,
        ),
    ),
    "Conv of three": (
        nn.Conv3d(2, 3, 2),
        (VOLUME,),
        lambda p, x: conv(x, p["weight"], p["bias"], window_strides=(1, 1, 1), padding="VALID"),
    ),
    "ConvTranspose": (
        nn.ConvTranspose(4, 6, (3, 2), stride=2, padding=1, groups=2, output_padding=1),
        (IMAGE,),
        lambda p, x: transposed(
            x,
            p["weight"],
            p["bias"],
            (2, 6, 12, 9),
            window_strides=(2, 2),
            padding=[(1, 1), (1, 1)],
            feature_group_count=2,
        ),
    ),
    "ConvTranspose1d": (
        nn.ConvTranspose1d(3, 2, 4, stride=3),
        (SIGNAL,),
        lambda p, x: transposed(x, p["weight"], p["bias"], (2, 2, 28), window_strides=(3,), padding="VALID"),
    ),
    "LayerNorm": (nn.LayerNorm(4), (X,), lambda p, x: normal(x, -1) * p["weight"] + p["bias"]),
    "LayerNorm of two axes": (
        nn.LayerNorm((5, 4), eps=0.1),
        (X,),
        lambda p, x: normal(x, (1, 2), 0.1) * p["weight"] + p["bias"],
    ),
    "LayerNorm without weights": (nn.LayerNorm(4, affine=False), (X,), lambda p, x: normal(x, -1)),
    "RMSNorm": (
        nn.RMSNorm(4),
        (X,),
        lambda p, x: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * p["weight"],
    ),
    "GroupNorm": (
        nn.GroupNorm(2, 4),
        (IMAGE,),
        lambda p, x: (
            normal(x.reshape(2, 2, -1), -1).reshape(x.shape) * channels(p["weight"], 4) + channels(p["bias"], 4)
        ),
    ),
    "BatchNorm": (
        nn.BatchNorm(4),
        (IMAGE,),
        lambda p, x: (
            (x - channels(p["running_mean"], 4))
            / np.sqrt(channels(p["running_var"], 4) + 1e-5)
            * channels(p["weight"], 4)
            + channels(p["bias"], 4)
        ),
    ),
    "Dropout": (nn.Dropout(0.9), (X,), lambda p, x: x),
    "activations": (
        nn.Sequential(nn.ReLU(), nn.GELU("tanh"), nn.SiLU(), nn.Tanh(), nn.Sigmoid(), nn.Softmax(), nn.Flatten()),
        (X,),
        lambda p, x: _activations(x),
    ),
}


def _activations(x: np.ndarray) -> Any:
    import jax

    y = jax.nn.silu(jax.nn.gelu(jax.nn.relu(x.astype(np.float32)), approximate=True))
    return jax.nn.softmax(jax.nn.sigmoid(np.tanh(y))).reshape(2, -1)


@pytest.mark.parametrize("name", CASES)
def test_layer(name: str) -> None:
    module, arrays, reference = CASES[name]
    (got,), params = computed(module, *arrays)
    wide = [a.astype(np.float64) if a.dtype == np.float32 and "Conv" not in name else a for a in arrays]
    expected = np.asarray(reference(params, *wide))
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5)


# --- attention --------------------------------------------------------------------------------------


def attended(p: Any, q: Any, k: Any, v: Any, bias: Any = 0.0) -> np.ndarray:
    """Compute two heads of size 2 by the formula."""
    w, b = np.split(p["in_proj_weight"], 3), np.split(p.get("in_proj_bias", np.zeros(12)), 3)
    q, k, v = (np.stack(np.split(x @ wi.T + bi, 2, -1), 1) for x, wi, bi in zip((q, k, v), w, b, strict=True))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(2) + bias
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    y = np.concatenate((weights / weights.sum(-1, keepdims=True) @ v).swapaxes(0, 1), -1)
    return y @ p["out_proj.weight"].T + p.get("out_proj.bias", 0)


KEYS, VALUES = floats(2, 7, 4), floats(2, 7, 4)
SEEN = np.array([[1, 1, 0, 1, 1], [1, 0, 0, 0, 1]], bool)
CAUSAL = np.where(np.tri(5, 5, dtype=bool), 0.0, -np.inf)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_sees_what_masks_leave(causal: bool) -> None:
    module = nn.MultiHeadAttention(4, 2, causal=causal, bias=causal)
    seen = np.where(SEEN[:, None, None], 0.0, -np.inf) + (CAUSAL if causal else 0.0)
    bias = floats(2, 5, 5)
    for mask, expected in ((None, CAUSAL if causal else 0.0), (SEEN, seen), (bias, bias + (CAUSAL if causal else 0))):
        masks = () if mask is None else (mask,)
        given = lambda x, *m: module.forward(x, mask=m[0] if m else None)  # noqa: E731
        constant = lambda x, m=mask: module.forward(x, mask=m)  # noqa: E731
        for (got,), params in (computed(_Wrapped(module, given), X, *masks), computed(_Wrapped(module, constant), X)):
            params = {n.removeprefix("inner."): v for n, v in params.items()}
            np.testing.assert_allclose(got, attended(params, X, X, X, expected), rtol=1e-4, atol=1e-5)
    (got,), params = computed(module, X, KEYS, VALUES)
    later = np.where(np.tri(5, 7, 2, dtype=bool), 0.0, -np.inf) if causal else 0.0
    np.testing.assert_allclose(got, attended(params, X, KEYS, VALUES, later), rtol=1e-4, atol=1e-5)


class _Wrapped(nn.Module):
    def __init__(self, inner: nn.Module, function: Callable[..., Any]):
        self.inner, self.function = inner, function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


# --- recurrent layers -------------------------------------------------------------------------------


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def recurrent(p: Any, x: np.ndarray, states: list[np.ndarray], end: str) -> tuple[np.ndarray, list[np.ndarray]]:
    """Compute one layer in one direction, step by step."""
    steps, h, rest = [], states[0], states[1:]
    bias_ih, bias_hh = (p.get(f"bias_{kind}{end}", 0.0) for kind in ("ih", "hh"))
    for t in range(x.shape[1])[:: -1 if end.endswith("reverse") else 1]:
        a = x[:, t] @ p[f"weight_ih{end}"].T + bias_ih
        b = h @ p[f"weight_hh{end}"].T + bias_hh
        if rest:
            i, f, g, o = np.split(a + b, 4, -1)
            rest = [sigmoid(f) * rest[0] + sigmoid(i) * np.tanh(g)]
            h = sigmoid(o) * np.tanh(rest[0])
        else:
            (ar, az, an), (br, bz, bn) = np.split(a, 3, -1), np.split(b, 3, -1)
            z = sigmoid(az + bz)
            h = (1 - z) * np.tanh(an + sigmoid(ar + br) * bn) + z * h
        steps.append(h)
    return np.stack(steps[:: -1 if end.endswith("reverse") else 1], 1), [h, *rest]


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent(kind: Any, bidirectional: bool) -> None:
    layers, directions, count = 2, 1 + bidirectional, 2 if kind is nn.LSTM else 1
    module = kind(4, 3, num_layers=layers, bidirectional=bidirectional, bias=bidirectional)
    given = [floats(layers * directions, 2, 3) for _ in range(count)] if bidirectional else []
    apply = lambda x, *s: module.forward(x, None if not s else s if count == 2 else s[0])  # noqa: E731
    (y, *states), params = computed(_Wrapped(module, apply), X, *given)
    params = {n.removeprefix("inner."): v for n, v in params.items()}
    first = given or [np.zeros((layers * directions, 2, 3))] * count
    x, last = X.astype(np.float64), []
    for layer in range(layers):
        parts = []
        for direction, suffix in enumerate(("", "_reverse")[:directions]):
            index = layer * directions + direction
            part, after = recurrent(params, x, [s[index] for s in first], f"_l{layer}{suffix}")
            parts.append(part)
            last.append(after)
        x = np.concatenate(parts, -1)
    np.testing.assert_allclose(y, x, rtol=1e-4, atol=1e-5)
    for i, state in enumerate(states):
        np.testing.assert_allclose(state, np.stack([after[i] for after in last]), rtol=1e-4, atol=1e-5)


# --- training ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(6, 4), (2, 4, 3, 5), ("n", 4, 3)])
def test_batch_norm_in_training(shape: Any) -> None:
    x = floats(*(6 if d == "n" else d for d in shape))
    module = nn.BatchNorm(4, momentum=0.25)
    params = {n: v + np.float32(0.5) for n, v in module.init().items()}
    g = rlx.Graph("train")
    y, after = module.apply_and_update(params, g.input("x", shape))
    g.set_outputs([y, after["running_mean"], after["running_var"]])
    got, mean, var = rlx.evaluate(g, {"x": x})
    axes = (0, *range(2, x.ndim))
    want = normal(x, axes) * channels(params["weight"], x.ndim) + channels(params["bias"], x.ndim)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(mean, 0.75 * 0.5 + 0.25 * x.mean(axes), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(var, 0.75 * 1.5 + 0.25 * x.var(axes, ddof=1), rtol=1e-4)


def test_dropout_in_training() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            self.drop = nn.Dropout(0.25)
            self.parts = [nn.Dropout(0.25), nn.Dropout(0.0), nn.Dropout(1.0)]

        def forward(self, x: Any) -> Any:
            return [self.drop(x), self.drop(x), *(part(x) for part in self.parts)]

    module, ones = Twice(), np.ones((100, 200), np.float32)
    g = rlx.Graph("dropout")
    x, seed = g.input("x", (100, "n")), g.input("seed", (), "i32")
    g.set_outputs([*module(x, training=True, seed=seed), *module.apply({}, x, training=True, seed=8)])
    first, again, other, kept, none, *_ = rlx.evaluate(g, {"x": ones, "seed": np.int32(7)})
    *_, eighth, _, _, _, _ = rlx.evaluate(g, {"x": ones, "seed": np.int32(8)})
    for drawn in (first, again, other, eighth):
        assert set(np.unique(drawn)) == {0, np.float32(1) * np.float32(1 / 0.75)}
        assert abs((drawn == 0).mean() - 0.25) < 0.015
    drawn = [first, again, other, eighth]
    for i, one in enumerate(drawn):
        for two in drawn[:i]:
            assert 0.35 < ((one == 0) != (two == 0)).mean() < 0.4  # independent: 2·0.25·0.75
    assert (kept == 1).all() and (none == 0).all()
    same = rlx.evaluate(g, {"x": ones, "seed": np.int32(8)})
    np.testing.assert_array_equal(same[0], same[5])  # a tensor and a number with the same seed


@pytest.mark.parametrize("dtype", ["f16", "f64"])
def test_dtypes_stay(dtype: str) -> None:
    kind, module = rlx.dtype(dtype).numpy, nn.Sequential(nn.Linear(4, 6, dtype=dtype), nn.LayerNorm(6, dtype=dtype))
    assert {v.dtype for v in module.init().values()} == {kind}
    (got,), _ = computed(module, X.astype(kind))
    assert got.dtype == kind
    for norm in (nn.LayerNorm(4), nn.RMSNorm(4), nn.GroupNorm(2, 4), nn.BatchNorm(4), nn.BatchNorm(4, affine=False)):
        x = floats(3, 4).astype(kind)
        for training in (False, True):
            g = rlx.Graph("norm")
            g.set_outputs(norm.apply(norm.init(), g.input("x", (3, 4), dtype), training=training))
            (result,) = rlx.evaluate(g, {"x": x})
            axis = 0 if training and isinstance(norm, nn.BatchNorm) else -1
            assert result.dtype == kind
            if type(norm) is nn.LayerNorm or axis == 0:
                np.testing.assert_allclose(result, normal(x.astype(np.float64), axis), rtol=1e-2, atol=1e-2)

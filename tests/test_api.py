"""The public names in the spelling of the documentation. Each call is evaluated."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx

RANDOM = np.random.default_rng(7)


def value(call: Callable[..., Any], *arrays: np.ndarray) -> Any:
    """Return the evaluated result of a call on the tensors of a graph."""
    g = rlx.Graph("api")
    tensors = [g.input(f"x{i}", rlx.Shape(a.shape, a.dtype)) for i, a in enumerate(arrays)]
    result = call(g, *tensors)
    g.set_outputs(result if isinstance(result, (tuple, list)) else [result])
    g.verify()
    outputs = rlx.evaluate(g, {f"x{i}": a for i, a in enumerate(arrays)})
    return outputs if isinstance(result, (tuple, list)) else outputs[0]


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


X, Y, W = floats(2, 3, 4), floats(3, 4), floats(4, 5)
IDS = np.array([[0, 2], [1, 1]], np.int32)

CASES: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...], Callable[..., Any]]] = {
    "operators": (
        lambda g, x, y: (-x + 2 * y - 1) / 3 ** abs(y) @ g.constant(W),
        (X, Y),
        lambda x, y: ((-x + 2 * y - 1) / 3 ** np.abs(y)) @ W,
    ),
    "comparisons": (lambda g, x, y: (x < y) | (x >= 1) & ~(y == y), (X, Y), lambda x, y: (x < y) | False & (x >= 1)),
    "index": (lambda g, x: x[:, 1:, ::2], (X,), lambda x: x[:, 1:, ::2]),
    "index with integers": (lambda g, x: x[-1, ..., 0], (X,), lambda x: x[-1, ..., 0]),
    "index with new axes": (lambda g, x: x[None, 0, :, None], (X,), lambda x: x[None, 0, :, None]),
    "index with a tensor": (lambda g, x, i: x[:, :, i], (X, IDS), lambda x, i: x[:, :, i]),
    "index with an array": (lambda g, x: x[:, np.array([2, 0])], (X,), lambda x: x[:, [2, 0]]),
    "T": (lambda g, x: x.T, (X,), lambda x: x.T),
    "cast": (lambda g, x: g.cast(x, "i32"), (X * 5,), lambda x: x.astype(np.int32)),
    "gelu": (lambda g, x: g.activation("gelu_approx", x) - g.gelu_approx(x), (X,), lambda x: 0 * x),
    "binary kinds": (
        lambda g, x, y: g.maximum(g.add(x, y), g.minimum(g.mul(x, y), g.binary("max", x, 0))),
        (X, Y),
        lambda x, y: np.maximum(x + y, np.minimum(x * y, np.maximum(x, 0))),
    ),
    "compare kinds": (lambda g, x, y: g.compare("lt", x, y), (X, Y), lambda x, y: x < y),
    "where": (lambda g, x, y: g.where(x > y, x, 0), (X, Y), lambda x, y: np.where(x > y, x, 0)),
    "reduce": (lambda g, x: g.reduce("max", x, axes=[0, -1]), (X,), lambda x: x.max((0, 2))),
    "sum of all": (lambda g, x: g.sum(x), (X,), lambda x: x.sum()),
    "mean": (lambda g, x: g.mean(x, 1, keep_dims=True), (X,), lambda x: x.mean(1, keepdims=True)),
    "cumsum": (lambda g, x: g.cumsum(x, -1), (X,), lambda x: np.cumsum(x, -1)),
    "matmul": (lambda g, x, w: g.matmul(x, w), (X, W), lambda x, w: x @ w),
    "matmul of vectors": (lambda g, x, w: x[0, 0] @ w, (X, W), lambda x, w: x[0, 0] @ w),
    "dot_general": (
        lambda g, x, y: g.dot_general(x, y, [2], [1], lhs_batch=[1], rhs_batch=[0]),
        (X, Y),
        lambda x, y: np.einsum("bsd,sd->sb", x, y),
    ),
    "reshape": (lambda g, x: g.reshape(x, (3, -1)), (X,), lambda x: x.reshape(3, -1)),
    "transpose": (lambda g, x: g.transpose(x, (2, 0, 1)), (X,), lambda x: x.transpose(2, 0, 1)),
    "narrow": (lambda g, x: g.narrow(x, -1, 1, 2), (X,), lambda x: x[..., 1:3]),
    "slice": (lambda g, x: g.slice(x, [0, 1, 0], [2, 3, 4]), (X,), lambda x: x[:, 1:3]),
    "concat": (lambda g, x: g.concat([x, x, x], -1), (X,), lambda x: np.concatenate([x, x, x], -1)),
    "expand": (lambda g, y: g.expand(y, (2, 3, 4)), (Y,), lambda y: np.broadcast_to(y, (2, 3, 4))),
    "gather": (lambda g, y, i: g.gather(y, i), (Y, IDS), lambda y, i: y[i]),
    "embedding": (lambda g, y, i: g.embedding(y, i), (Y, IDS), lambda y, i: y[i]),
    "gather_batched": (
        lambda g, x, i: g.gather_batched(x, i, axis=1),
        (X, IDS),
        lambda x, i: np.take_along_axis(x, i[:, :, None], 1),
    ),
    "topk": (lambda g, x: g.topk(x, 2)[0], (X,), lambda x: -np.sort(-x, -1)[..., :2]),
    "argmax": (lambda g, x: g.argmax(x, 1), (X,), lambda x: x.argmax(1)),
    "iota": (lambda g: g.iota((2, 3), axis=1, dtype="f32"), (), lambda: np.array([[0, 1, 2]] * 2, np.float32)),
    "rms_norm": (
        lambda g, x, s: g.rms_norm(x, s, eps=0.0),
        (X, floats(4)),
        lambda x, s: x / np.sqrt((x * x).mean(-1, keepdims=True)) * s,
    ),
    "functions": (lambda g, x: rlx.ops.sort(rlx.ops.relu(x), 0), (X,), lambda x: np.sort(np.maximum(x, 0), 0)),
    "index backwards": (lambda g, x: x[..., ::-1, 1::-1], (X,), lambda x: x[..., ::-1, 1::-1]),
    "scatter_add": (
        lambda g, y, i: g.scatter_add(y, i, 5),
        (Y, np.array([4, 0, 4], np.int32)),
        lambda y, i: np.stack([y[1], 0 * y[0], 0 * y[0], 0 * y[0], y[0] + y[2]]),
    ),
    "sort": (lambda g, x: g.sort(x, 1), (X,), lambda x: np.sort(x, 1)),
    "argsort": (lambda g, x: g.argsort(x, -1), (X,), lambda x: np.argsort(x, -1, kind="stable")),
    "argmin": (lambda g, x: g.argmin(x, 1), (X,), lambda x: x.argmin(1)),
    "layer_norm": (
        lambda g, x, s: g.layer_norm(x, s, s, axis=-1, eps=1e-5),
        (X, floats(4)),
        lambda x, s: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * s + s,
    ),
    "conv, one dimension": (
        lambda g, x, w: g.conv(x, w, stride=1, padding="same"),
        (X, np.ones((1, 3, 1), np.float32)),
        lambda x, w: x.sum(1, keepdims=True),
    ),
    "conv, pairs of padding": (
        lambda g, x, w: g.conv(x, w, padding=[(1, 0)]),
        (X, np.ones((1, 3, 1), np.float32)),
        lambda x, w: np.pad(x.sum(1, keepdims=True), ((0, 0), (0, 0), (1, 0))),
    ),
    "fft and back": (
        lambda g, x: g.real(g.fft(g.fft(x, axis=1), axis=1, inverse=True)),
        (X,),
        lambda x: x,
    ),
    "fft, norm": (lambda g, x: g.imag(g.fft(x, norm="ortho")), (X,), lambda x: np.fft.fft(x, norm="ortho").imag),
    "dense_solve": (lambda g, a, b: g.dense_solve(a, b), (W[:4, :4], Y[0]), np.linalg.solve),
    "if_": (lambda g, x: g.if_(g.sum(x) < 1e9, lambda x: x + 1, lambda x: x, x), (X,), lambda x: x + 1),
    "while_": (
        lambda g, x: g.while_(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), 0, x, max_iterations=10)[1],
        (X,),
        lambda x: 8 * x,
    ),
    "scan": (
        lambda g, x: g.scan(lambda c, row: (c + row, c), x[0], x, length=None, reverse=False)[1],
        (X,),
        lambda x: np.stack([x[0], 2 * x[0]]),
    ),
    "custom_fn": (
        lambda g, x: g.custom_fn(lambda x: x * x, x, vjp=lambda a, r, c: c[0], jvp=lambda a, t: t[0]),
        (X,),
        np.square,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_call(name: str) -> None:
    call, arrays, expected = CASES[name]
    np.testing.assert_allclose(value(call, *arrays), expected(*arrays), rtol=1e-5, atol=1e-5)


def test_mixed_dtypes_promote_visibly_and_scalars_are_weak() -> None:
    g = rlx.Graph("promotion")
    half, whole, single = g.input("h", (2,), "f16"), g.input("i", (2,), "i32"), g.input("s", (2,))
    assert (half + 1.5).dtype is rlx.f16
    assert (whole * 2).dtype is rlx.i32
    assert (whole * 2.0).dtype is rlx.f32
    assert (whole / 2).dtype is rlx.f32
    assert (half + single).dtype is rlx.f32
    assert "rlx.cast" in str(g)
    assert rlx.promote(rlx.f16, rlx.bf16) is rlx.f32
    with pytest.raises(rlx.Error):
        _ = g.input("b", (2,), "u8") + 300


def test_shape_keyword_is_checked() -> None:
    g = rlx.Graph("declared")
    x, w = g.input("x", ("batch", 4)), g.param("w", (4, 2))
    assert g.matmul(x, w, shape=("batch", 2)).shape == ("batch", 2)
    with pytest.raises(rlx.ShapeError, match=r"test_api.py:\d+: rlx.matmul: the result is f32\[batch, 2\]"):
        g.matmul(x, w, shape=("batch", 3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g, x: g.softmax(x, axis=3), "axis 3 is out of range for rank 2"),
        (lambda g, x: g.matmul(x, x), "3 columns against 2 rows"),
        (lambda g, x: g.activation("gleu", x), "'gleu' is not one of .*did you mean 'gelu'"),
        (lambda g, x: g.softmax(x, axes=0), r"argument 'axes' \(did you mean 'axis'\?\); it takes x, axis"),
        (
            lambda g, x: g.sum(x, dim=0),
            r": sum: .*'dim' \(did you mean 'axis'\?\); it takes x, axes, keep_dims, axis, ",
        ),
        (
            lambda g, x: g.maximum(x),
            r"maximum: missing 1 required positional argument: 'rhs'; it takes lhs, rhs\n  hint: by name",
        ),
        (lambda g, x: g.relu(x, x), ": relu: got too many positional arguments; it takes x\n  hint: by name"),
        (lambda g, x: g.softmax(), "missing 1 required positional argument: 'x'"),
        (lambda g, x: g.softmax(3), "operand 'x' must be a tensor, got int"),
        (lambda g, x: g.reshape(x, (4, 2)), "6 elements"),
        (lambda g, x: g.reshape(x, (4, -1)), "cannot resolve -1"),
        (lambda g, x: g.concat([]), "at least one tensor"),
        (lambda g, x: x[5], "index 5 is out of range"),
        (lambda g, x: x[0, 0, 0], "3 indices for a tensor of rank 2"),
        (lambda g, x: x + rlx.Graph("other").input("y", (2, 3)), "belongs to another graph"),
        (lambda g, x: x + np.ones((4, 4), np.float32), "do not broadcast"),
        (lambda g, x: x + "a", "expected a tensor"),
        (lambda g, x: g.input("x", (1,)), "an argument 'x' already"),
        (lambda g, x: g.set_outputs({"y": 3}), "output 'y' must be a tensor"),
        (lambda g, x: g.attention(x, x, x, num_heads=1, head_dim=3), r"\[B, S, H·D\]"),
    ],
)
def test_mistakes_name_the_users_line(call: Any, message: str) -> None:
    g = rlx.Graph("mistakes")
    x = g.input("x", (2, 3))
    with pytest.raises(rlx.Error, match=message) as caught:
        call(g, x)
    assert "test_api.py:" in str(caught.value)


def test_locations_and_scopes() -> None:
    g = rlx.Graph("located")
    x = g.input("x", (2,))
    with g.named("layer0"), g.named("mlp"):
        x = g.relu(x)
    g.set_outputs([x])
    text = g.module.operation.get_asm(enable_debug_info=True)
    assert "layer0/mlp" in text
    assert "test_api.py" in text


def test_text_round_trip_and_errors() -> None:
    g = rlx.Graph("round")
    x = g.input("x", ("n", 4))
    g.set_outputs({"y": g.mean(x, 0)})
    again = rlx.parse(str(g))
    assert str(again) == str(g)
    assert [o.name for o in again.outputs] == ["y"]
    broken = str(g).replace('kind = "mean"', 'kind = "maen"')
    with pytest.raises(rlx.ParseError, match=r"<text>:3:\d+: .*'maen' is not one of"):
        rlx.parse(broken)
    with pytest.raises(rlx.ParseError, match="<text>:1:1"):
        rlx.parse("this is { not MLIR")
    with pytest.raises(rlx.Error, match="no such file"):
        rlx.parse("absent.mlir")


def test_import_is_light() -> None:
    code = (
        "import sys, rlx; print([m for m in ('numpy', 'torch_mlir', 'iree', 'jax', 'ml_dtypes') if m in sys.modules]);"
        "rlx.Graph('g'); print([m for m in ('iree', 'jax', 'ml_dtypes', 'tokenizers') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["[]", "[]"]

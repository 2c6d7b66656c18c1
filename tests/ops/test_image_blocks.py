"""Blocks of image models against the same layers in JAX and PyTorch."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import rlx
from tests.drawing import drawn
from tests.ops.references import agree, in_jax, random, run

# A convolution of six channels adds 54 products of numbers around 1, twice in a row.
_ROOM = np.array(100 * np.finfo(np.float32).eps)
_NAMES = ("norm1_scale", "norm1_bias", "conv1_w", "conv1_b", "norm2_scale", "norm2_bias", "conv2_w", "conv2_b")
_OPTIONAL = ("embedding", "embedding_w", "embedding_b", "skip_w", "skip_b")


def _operands(c: int, o: int, *, embedded: bool, skip: str, batch: int = 2) -> dict[str, np.ndarray | None]:
    """Return operands by name. `skip` is `""`, `"w"` or `"wb"`."""
    shapes: dict[str, Any] = {"x": (batch, c, 5, 4)}
    shapes |= dict(zip(_NAMES, [(c,), (c,), (o, c, 3, 3), (o,), (o,), (o,), (o, o, 3, 3), (o,)], strict=True))
    shapes |= {"embedding": (batch, 3), "embedding_w": (3, o), "embedding_b": (o,)} if embedded else {}
    shapes |= {"skip_w": (o, c, 1, 1)} if "w" in skip else {}
    shapes |= {"skip_b": (o,)} if "b" in skip else {}
    arrays = {n: random("f32", s, low=-0.7, high=0.7, seed=i) for i, (n, s) in enumerate(shapes.items())}
    return {name: arrays.get(name) for name in ("x", *_NAMES, *_OPTIONAL)}


def _group_norm(x: Any, scale: Any, bias: Any, groups: int) -> Any:
    grouped = x.reshape(x.shape[0], groups, -1)
    centred = grouped - grouped.mean(-1, keepdims=True)
    normal = centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return normal.reshape(x.shape) * scale[:, None, None] + bias[:, None, None]


def _conv(x: Any, w: Any, padding: int) -> Any:
    numbers = ("NCHW", "OIHW", "NCHW")
    return jax.lax.conv_general_dilated(x, w, (1, 1), [(padding, padding)] * 2, dimension_numbers=numbers)


def _reference(p: dict[str, Any]) -> Any:
    x = p["x"]
    h = _conv(jax.nn.silu(_group_norm(x, p["norm1_scale"], p["norm1_bias"], 2)), p["conv1_w"], 1)
    h = h + p["conv1_b"][:, None, None]
    if "embedding" in p:
        h = h + (jax.nn.silu(p["embedding"]) @ p["embedding_w"] + p["embedding_b"])[:, :, None, None]
    h = _conv(jax.nn.silu(_group_norm(h, p["norm2_scale"], p["norm2_bias"], 2)), p["conv2_w"], 1)
    h = h + p["conv2_b"][:, None, None]
    skip = _conv(x, p["skip_w"], 0) if "skip_w" in p else x
    return skip + (p["skip_b"][:, None, None] if "skip_b" in p else 0) + h


def _expected(operands: dict[str, Any]) -> np.ndarray:
    given = {n: a.astype(np.float64) for n, a in operands.items() if a is not None}
    return in_jax(lambda *arrays: _reference(dict(zip(given, arrays, strict=True))), *given.values()).astype(np.float32)


@drawn("embedded", [True, False])
@pytest.mark.parametrize(("c", "o", "skip"), [(4, 6, "wb"), (2, 4, "w"), (4, 4, ""), (4, 4, "wb")])
def test_unet_residual_block(c: int, o: int, skip: str, embedded: bool) -> None:
    operands = _operands(c, o, embedded=embedded, skip=skip)
    got = run("unet_residual_block", *operands.values(), num_groups=2, eps=1e-5)
    agree(got, _expected(operands), noise=_ROOM)


@drawn("batch", [1, 3])
def test_unet_residual_block_of_any_batch_and_size(batch: int) -> None:
    operands = _operands(4, 6, embedded=True, skip="wb", batch=batch)
    symbolic = {"x": ("n", 4, "h", "w"), "embedding": ("n", 3)}
    g = rlx.Graph("block", stage="hir")
    inputs = {n: g.input(n, rlx.Shape(symbolic.get(n, a.shape), "f32")) for n, a in operands.items() if a is not None}
    result = g.unet_residual_block(num_groups=2, **inputs)  # type: ignore[arg-type]
    assert result.shape == ("n", 6, "h", "w")
    g.set_outputs([result])
    (got,) = rlx.evaluate(g, {n: a for n, a in operands.items() if a is not None})
    agree(got, _expected(operands), noise=_ROOM)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"skip_w": None, "skip_b": None}, "skip_w is missing"),
        ({"skip_w": None}, "skip_b needs skip_w"),
        ({"embedding_b": None}, "all three or none"),
        ({"embedding": (3, 3)}, r"must give \[N, O\]"),
        ({"conv1_w": (6, 4, 5, 5)}, r"conv1_w must be \[6, 4, 3, 3\]"),
        ({"conv2_w": (6, 4, 3, 3)}, r"conv2_w must be \[6, 6, 3, 3\]"),
        ({"norm2_scale": (4,)}, r"'scale' must have shape \[6\]"),
        ({"conv1_w": (5, 4, 3, 3)}, "conv2_w must be"),
        ({"x": (2, 3, 5, 4)}, "conv1_w must be"),
        ({"x": (2, 4, 5)}, r"\[N, C, H, W\]"),
    ],
)
def test_unet_residual_block_refuses(changed: dict[str, Any], message: str) -> None:
    shapes = {n: None if a is None else a.shape for n, a in _operands(4, 6, embedded=True, skip="wb").items()} | changed
    g = rlx.Graph("refused", stage="hir")
    operands = {n: g.input(n, rlx.Shape(s, "f32")) for n, s in shapes.items() if s is not None}
    with pytest.raises(rlx.ShapeError, match=message):
        g.unet_residual_block(num_groups=2, **operands)  # type: ignore[arg-type]

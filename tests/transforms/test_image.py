"""Derivatives of resizing and axial rotations compared with JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlx
from rlx.ops.convolution.image import AxialGrid, rotations
from tests.ops.references import random
from tests.transforms.against_jax import check

_SIZES = [(1, 1), (1, 5), (5, 1), (4, 8), (8, 4), (3, 7), (7, 3), (6, 4), (10, 9)]
_MODES = [("nearest", False), ("bilinear", False), ("bilinear", True)]


def _positions(old: int, new: int, *, align_corners: bool) -> Any:
    if align_corners:
        return np.arange(new) * ((old - 1) / max(new - 1, 1))
    return np.clip((np.arange(new) + 0.5) * (old / new) - 0.5, 0, old - 1)


def _resized(x: Any, axis: int, new: int, mode: str, *, align_corners: bool) -> Any:
    old = x.shape[axis]
    if mode == "nearest":
        return jnp.take(x, np.arange(new) * old // new, axis)
    before = np.floor(_positions(old, new, align_corners=align_corners)).astype(np.int64)
    share = (_positions(old, new, align_corners=align_corners) - before).reshape(-1, *(1,) * (x.ndim - 1 - axis))
    share, after = share.astype(x.dtype), np.minimum(before + 1, old - 1)
    return jnp.take(x, before, axis) * (1 - share) + jnp.take(x, after, axis) * share


@pytest.mark.parametrize(("mode", "align"), _MODES)
@pytest.mark.parametrize(("old", "new"), _SIZES)
def test_resize(old: int, new: int, mode: str, align: bool) -> None:
    size = (new, 6)

    def formula(x: Any) -> Any:
        for i, d in enumerate(size):
            x = _resized(x, 2 + i, d, mode, align_corners=align)
        return x

    def build(g: rlx.Graph, x: Any) -> Any:
        return g.resize(x, size, mode=mode, align_corners=align)

    check(build, formula, random("f64", (1, 2, old, 4)))
    if (old, new) == (3, 7):
        check(build, formula, random("f16", (1, 2, old, 4)), tolerance=1e-3)


def test_an_image_enlarged_twice_as_jax_does_it() -> None:
    x = random("f64", (2, 3, 4, 5))
    check(lambda g, v: g.resize(v, (8, 15), mode="bilinear"), lambda v: jax.image.resize(v, (2, 3, 8, 15), "linear"), x)


@pytest.mark.parametrize("shape", [(2, 12, 16), (2, 2, 12, 8)])
def test_axial_rope_2d(shape: tuple[int, ...]) -> None:
    grid = AxialGrid(end_x=3, end_y=2, head_dim=8, num_heads=2, theta=100.0, repeat_factor=2)
    cos, sin = rotations(grid)
    turn = (cos + 1j * sin)[:, None] if len(shape) == 3 else cos + 1j * sin

    def formula(x: Any) -> Any:
        pairs = x.reshape(*((2, 12, 2) if len(shape) == 3 else (2, 2, 12)), 4, 2)
        turned = (pairs[..., 0] + 1j * pairs[..., 1]) * turn
        return jnp.stack([turned.real, turned.imag], -1).reshape(x.shape)

    check(lambda g, x: g.axial_rope_2d(x, **grid.named), formula, random("f64", shape))

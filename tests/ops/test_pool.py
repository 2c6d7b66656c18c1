"""Pooling against loops over windows, JAX's `reduce_window` and PyTorch."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import rlx
from tests.ops.references import FLOATS, agree, in_jax, random, run

_CASES: list[tuple[Any, ...]] = [
    # x, kernel, stride, padding
    ((2, 3, 6, 5), (2, 3), (2, 1), (1, 0, 1, 2)),
    ((2, 3, 9), (3,), (2,), (0, 0)),
    ((2, 3, 9), (2,), (3,), (1, 1)),
    ((1, 2, 4, 5, 3), (2, 3, 1), (2, 1, 2), (1, 1, 0, 2, 0, 0)),
    ((2, 1, 3), (2,), (2,), (0, 3)),
    ((2, 1, 14, 13), (12, 13), (1, 1), (0, 0, 0, 0)),
    ((1, 2, 4), (4,), (1,), (0, 0)),
    ((1, 2, 1), (2,), (1,), (0, 0)),
    ((0, 2, 4), (2,), (2,), (0, 0)),
]


def _windows(x: np.ndarray, kernel: Any, stride: Any, padding: Any, kind: str, *, include: bool) -> np.ndarray:
    """Return the result of every window, one window at a time."""
    before = padding[::2]
    out = [
        (n + b + a - k) // s + 1
        for n, k, s, b, a in zip(x.shape[2:], kernel, stride, before, padding[1::2], strict=True)
    ]
    result = np.empty((*x.shape[:2], *out))
    for place in np.ndindex(*out):
        starts = [p * s - b for p, s, b in zip(place, stride, before, strict=True)]
        inside = tuple(slice(max(i, 0), max(i + k, 0)) for i, k in zip(starts, kernel, strict=True))
        window = x[(..., *inside)].astype(np.float64)
        axes = tuple(range(2, x.ndim))
        if kind == "max":
            result[(..., *place)] = window.max(axes, initial=-np.inf)
        elif kind == "sum":
            result[(..., *place)] = window.sum(axes)
        else:
            with np.errstate(invalid="ignore"):
                result[(..., *place)] = window.sum(axes) / np.prod(kernel if include else window.shape[2:])
    return result


@pytest.mark.parametrize(("kind", "include"), [("max", True), ("mean", True), ("mean", False), ("sum", True)])
@pytest.mark.parametrize(
    ("case", "name"), [(c, "f32") for c in _CASES] + [(_CASES[0], d) for d in FLOATS if d != "f32"], ids=str
)
def test_pool(case: Any, name: str, kind: str, include: bool) -> None:
    shape, kernel, stride, padding = case
    x = random(name, shape)
    got = run("pool", x, kind=kind, kernel=kernel, stride=stride, padding=padding, count_include_pad=include)
    expected = _windows(x, kernel, stride, padding, kind, include=include).astype(x.dtype)
    agree(got, expected, factor=0 if kind == "max" else 1, noise=np.finfo(np.float64).eps)


@pytest.mark.parametrize("name", ["i8", "u8", "i16", "i32", "i64", "u32"])
def test_pool_of_integers(name: str) -> None:
    """The values include the least and greatest integers; sums wrap."""
    limits = np.iinfo(name.replace("i", "int").replace("u", "uint"))
    shape, kernel, stride, padding = _CASES[4]
    x = np.resize(np.array([limits.min, limits.max, 3, limits.max], limits.dtype), shape)
    window: Any = {"kernel": kernel, "stride": stride, "padding": padding, "count_include_pad": True}
    sums = [[int(a) + int(b), int(c)] for a, b, c in x[:, 0].tolist()]
    wrapped = (np.array(sums, object) & (2**limits.bits - 1)).astype(np.uint64).astype(limits.dtype)
    assert np.array_equal(run("pool", x, kind="sum", **window)[:, 0], np.column_stack([wrapped, [0, 0]]))
    largest = [[max(a, b), c, limits.min] for a, b, c in x[:, 0].tolist()]
    assert np.array_equal(run("pool", x, kind="max", **window)[:, 0], largest)


@pytest.mark.parametrize("case", _CASES, ids=str)
def test_pool_in_jax(case: Any) -> None:
    shape, kernel, stride, padding = case
    x = random("f64", shape)
    pads = [(0, 0), (0, 0), *zip(padding[::2], padding[1::2], strict=True)]
    geometry: Any = {"kernel": kernel, "stride": stride, "padding": padding}

    def reduced(v: Any, start: float, join: Any) -> Any:
        return jax.lax.reduce_window(v, np.float64(start), join, (1, 1, *kernel), (1, 1, *stride), pads)

    largest = in_jax(lambda v: reduced(v, -np.inf, jax.lax.max), x)
    agree(run("pool", x, kind="max", **geometry, count_include_pad=True), largest, factor=0)
    room = 100 * np.finfo(np.float64).eps
    total = in_jax(lambda v: reduced(v, 0, jax.lax.add), x)
    agree(run("pool", x, kind="mean", **geometry, count_include_pad=True), total / np.prod(kernel), noise=room)
    held = in_jax(lambda v: reduced(v, 0, jax.lax.add), np.ones_like(x))
    with np.errstate(invalid="ignore"):
        mean = total / held
    agree(run("pool", x, kind="mean", **geometry, count_include_pad=False), mean, noise=room)


def test_special_values() -> None:
    x = np.array([[[1, np.nan, -3, -np.inf, -np.inf, np.inf, 2, -0.0]]], np.float32)
    geometry: Any = {"kernel": (2,), "stride": (2,), "padding": (0, 2), "count_include_pad": False}
    assert np.array_equal(
        run("pool", x, kind="max", **geometry)[0, 0], [np.nan, -3, np.inf, 2, -np.inf], equal_nan=True
    )
    mean = run("pool", x, kind="mean", **geometry)[0, 0]
    assert np.array_equal(mean, [np.nan, -np.inf, np.nan, 1, np.nan], equal_nan=True)


def test_padding_is_never_a_maximum() -> None:
    x = np.full((1, 1, 3, 3), -5, np.float32)
    got = run("pool", x, kind="max", kernel=(3, 3), stride=(1, 1), padding=(1,) * 4, count_include_pad=True)
    assert (got == -5).all()


def test_as_users_write_it() -> None:
    x = random("f32", (2, 3, 6, 6))
    g = rlx.Graph("pools")
    image = g.input("x", rlx.Shape(x.shape, "f32"))
    by_hand = g.pool(image, "mean", (2, 3), stride=1, padding=[(1, 0), (0, 2)], count_include_pad=False)
    g.set_outputs([g.max_pool(image, 2), rlx.ops.mean_pool(image, 3, 1, 1), by_hand, g.sum_pool(image, 3, 2)])
    largest, mean, other, total = rlx.evaluate(g, {"x": x})
    assert np.array_equal(largest, _windows(x, (2, 2), (2, 2), (0,) * 4, "max", include=True))
    agree(mean, _windows(x, (3, 3), (1, 1), (1,) * 4, "mean", include=True).astype(np.float32))
    agree(total, _windows(x, (3, 3), (2, 2), (0,) * 4, "sum", include=True).astype(np.float32))
    agree(other, _windows(x, (2, 3), (1, 1), (1, 0, 0, 2), "mean", include=False).astype(np.float32))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g, x: g.max_pool(x, 7, 1), "does not fit"),
        (lambda g, x: g.max_pool(x, (2, 2, 2)), "2 entries"),
        (lambda g, x: g.max_pool(x, 0), "kernel must be integers from 1 on"),
        (lambda g, x: g.max_pool(x, 2, 0), "stride must be integers from 1 on"),
        (lambda g, x: g.max_pool(x, 2, padding=-1), "from 0 on"),
        (lambda g, x: g.pool(x, "median", 2), "median"),
        (lambda g, x: g.pool(g.cast(x, "i32"), "mean", 2), "integers have no mean"),
        (lambda g, x: g.max_pool(g.constant(np.ones((2, 2), np.float32)), 2), "rank 3, 4 or 5"),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    g = rlx.Graph("refused")
    with pytest.raises(rlx.Error, match=message):
        call(g, g.input("x", rlx.Shape((1, 1, 4, 4), "f32")))

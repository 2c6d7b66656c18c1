"""Pooling with dilation, `ceil_mode`, indices and adaptive sizes, against PyTorch's documented definition in NumPy."""

from __future__ import annotations

from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlx
from tests.drawing import graph_seed
from tests.functions.test_spectral import built
from tests.ops.references import random


def windows(size: int, k: int, s: int, pad: Any, d: int, ceil: bool) -> list[list[int]]:
    """Return the positions of each window along an axis, including those in the padding."""
    before, after = pad
    room = size + before + after - d * (k - 1) - 1
    count = (-(-room // s) if ceil else room // s) + 1
    if ceil and (count - 1) * s >= size + before:
        count -= 1
    return [[i * s - before + t * d for t in range(k)] for i in range(count)]


def pooled(x: np.ndarray, axes: list[list[list[int]]], pads: Any, kind: str, counted: bool) -> Any:
    """Apply `kind` to windows with the given positions along each axis; for maxima also return their positions."""
    shape = (*x.shape[:2], *map(len, axes))
    result, place = np.zeros(shape, np.float64), np.full(shape, -1)
    for at in np.ndindex(*shape):
        image = x[at[:2]]
        taps = list(product(*(axis[i] for axis, i in zip(axes, at[2:], strict=True))))
        inside = [t for t in taps if all(0 <= p < n for p, n in zip(t, image.shape, strict=True))]
        if kind == "max":
            values = [image[t] for t in inside]
            best = int(np.argmax(values)) if values else -1  # the first NaN, if any
            result[at] = values[best] if values else -np.inf
            place[at] = np.ravel_multi_index(inside[best], image.shape) if values else -1
        else:
            padded = [t for t in taps if all(p < n + pad[1] for p, n, pad in zip(t, image.shape, pads, strict=True))]
            total = sum(float(image[t]) for t in inside)
            result[at] = total / len(padded if counted else inside) if kind == "mean" else total
    return result, place


def cases(seed: int, count: int) -> list[dict[str, Any]]:
    rng, found = np.random.default_rng(seed), []
    while len(found) < count:
        dims = int(rng.integers(1, 4))
        sizes = [int(n) for n in rng.integers(1, 8 if dims < 3 else 5, dims)]
        k, s, d = ([int(n) for n in rng.integers(1, 4, dims)] for _ in range(3))
        pads = [tuple(int(n) for n in rng.integers(0, max(1, n // 2 + 1), 2)) for n in k]
        ceil = bool(rng.integers(0, 2))
        axes = [windows(*geometry, ceil) for geometry in zip(sizes, k, s, pads, d, strict=True)]
        if all(axes):
            found.append({"sizes": sizes, "k": k, "s": s, "d": d, "pads": pads, "ceil": ceil, "axes": axes})
    return found


def test_pools_are_their_definition(seed: int) -> None:
    for number, c in enumerate(cases(graph_seed(seed, 1), 24)):
        x = random("f32", (1, 2, *c["sizes"]))
        x.flat[:: max(x.size // 3, 1)] = [1.5, np.nan, -np.inf, 1.5][number % 4]
        window = {"stride": c["s"], "padding": c["pads"], "dilation": c["d"], "ceil_mode": c["ceil"]}
        got = built(lambda g, t, c=c, w=window: g.max_pool(t, c["k"], **w, return_indices=True), x)
        values, place = pooled(x, c["axes"], c["pads"], "max", True)
        np.testing.assert_array_equal(got[0], values.astype(np.float32), err_msg=str(c))
        np.testing.assert_array_equal(got[1], place, err_msg=str(c))
        calm = np.nan_to_num(x, neginf=0.5)
        for counted in (True, False):
            options = {**window, "count_include_pad": counted}
            (mean,) = built(lambda g, t, c=c, o=options: g.avg_pool(t, c["k"], **o), calm)
            with np.errstate(all="ignore"):
                some = np.vectorize(bool)(pooled(np.ones_like(calm), c["axes"], c["pads"], "sum", True)[0])
                if counted or some.all():
                    expected, _ = pooled(calm, c["axes"], c["pads"], "mean", counted)
                    np.testing.assert_allclose(mean, expected, rtol=2e-6, atol=1e-6, err_msg=str(c))


@pytest.mark.parametrize("dtype", ["i8", "u8", "i32", "i64"])
def test_integers(dtype: str) -> None:
    x = np.random.default_rng(3).integers(0, 100, (2, 1, 5, 6)).astype(rlx.dtype(dtype).numpy)
    got = built(lambda g, t: [*g.max_pool2d(t, 2, 1, dilation=2, return_indices=True), g.avg_pool2d(t, 2)], x)
    axes = [windows(n, 2, 1, (0, 0), 2, False) for n in (5, 6)]
    values, place = pooled(x, axes, [(0, 0)] * 2, "max", True)
    assert got[0].dtype == x.dtype and np.array_equal(got[0], values) and np.array_equal(got[1], place)
    axes = [windows(n, 2, 2, (0, 0), 1, False) for n in (5, 6)]
    np.testing.assert_allclose(got[2], pooled(x, axes, [(0, 0)] * 2, "mean", True)[0], rtol=1e-6)


@pytest.mark.parametrize("size", [1, (3, 4), (None, 2), (7, 5), (9, 8), (2, 1)])
def test_adaptive_sizes(size: Any) -> None:
    x = random("f32", (2, 2, 7, 6))
    given = size if isinstance(size, tuple) else (size, size)
    axes = []
    for old, new in zip((7, 6), given, strict=True):
        new = old if new is None else new
        axes.append([list(range(i * old // new, -(-(i + 1) * old // new))) for i in range(new)])
    got = built(lambda g, t: [g.adaptive_avg_pool2d(t, size), *g.adaptive_max_pool2d(t, size, return_indices=True)], x)
    values, place = pooled(x, axes, [(0, 0)] * 2, "max", True)
    np.testing.assert_allclose(got[0], pooled(x, axes, [(0, 0)] * 2, "mean", True)[0], rtol=2e-6, atol=1e-7)
    np.testing.assert_array_equal(got[1], values.astype(np.float32))
    np.testing.assert_array_equal(got[2], place)


def test_symbols_and_single_images() -> None:
    x = random("f32", (2, 3, 8, 6))
    dims: Any = [("n", 3, "h", 6)]
    calls: list[Any] = [
        lambda g, t: g.max_pool2d(t, 3, 2, 1, dilation=2, return_indices=True),
        lambda g, t: g.avg_pool2d(t, 3, 2, 0, ceil_mode=True),
        lambda g, t: g.max_pool2d(t, 2, ceil_mode=True),
        lambda g, t: g.adaptive_avg_pool2d(t, 1),
        lambda g, t: g.adaptive_max_pool2d(t, 1, return_indices=True),
    ]
    for call in calls:
        for got, expected in zip(built(call, x, dims=dims), built(call, x), strict=True):
            np.testing.assert_array_equal(got, expected)
    (single,) = built(lambda g, t: g.avg_pool2d(t, 2), x[0])
    np.testing.assert_array_equal(single, built(lambda g, t: g.avg_pool2d(t, 2), x)[0][0])
    (powers,) = built(lambda g, t: g.lp_pool2d(t, 2, 2), x)
    squares = (x**2).reshape(2, 3, 4, 2, 3, 2).sum((3, 5))
    np.testing.assert_allclose(powers, np.sqrt(squares), rtol=1e-6)


def test_the_gradient_of_a_dilated_maximum_is_that_of_jax() -> None:
    x = random("f32", (1, 2, 7, 6))
    g: Any = rlx.Graph("slope")
    t = g.param("x", x.shape)
    y = g.max_pool2d(t, 2, 2, dilation=2)
    g.set_outputs(g.sum(y * y))

    def theirs(v: Any) -> Any:
        dims = {"window_dimensions": (1, 1, 2, 2), "window_strides": (1, 1, 2, 2), "window_dilation": (1, 1, 2, 2)}
        taken = jax.lax.reduce_window(v, -jnp.inf, jax.lax.max, padding="VALID", **dims)
        return (taken * taken).sum()

    np.testing.assert_allclose(rlx.evaluate(g, {"x": x})[0], theirs(x), rtol=1e-6)
    patches = [x[:, :, i : i + 5 : 2, j : j + 4 : 2] for i in (0, 2) for j in (0, 2)]
    chosen = np.argmax([p[:, :, :3, :2] for p in patches], axis=0)
    expected = np.zeros_like(x)
    for at in np.ndindex(*chosen.shape):
        row, column = divmod(int(chosen[at]), 2)
        place = (*at[:2], at[2] * 2 + row * 2, at[3] * 2 + column * 2)
        expected[place] += 2 * x[place]
    np.testing.assert_allclose(rlx.evaluate(rlx.grad(g, ["x"]), {"x": x})[-1], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g, x: g.max_pool2d(x, 9, dilation=2), "does not fit"),
        (lambda g, x: g.max_pool2d(x, kernel_size=2), "did you mean 'kernel'"),
        (lambda g, x: g.avg_pool2d(x, 2, divisor_override=0), "divisor_override"),
        (lambda g, x: g.adaptive_avg_pool2d(x, (1, 2, 3)), "size needs 2 entries"),
        (lambda g, x: g.adaptive_avg_pool2d(x, 0), "cannot be pooled"),
        (lambda g, x: g.max_pool1d(x, 2), "one image"),
        (lambda g, x: g.lp_pool2d(x, -1, 2), "norm_type"),
    ],
)
def test_mistakes_name_the_call(call: Any, message: str) -> None:
    with pytest.raises(rlx.Error, match=message):
        built(call, np.ones((1, 2, 5, 5), np.float32))


def test_a_mean_of_everything_is_one_reduction() -> None:
    g: Any = rlx.Graph("global")
    g.set_outputs([g.adaptive_avg_pool(g.input("x", (2, 3, 5, 4)), 1)])
    assert str(g).count("rlx.reduce") == 1

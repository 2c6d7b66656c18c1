"""Indexing by several arrays against NumPy; `x.at[…]`, `dynamic_slice` and related functions against JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlx
from rlx.support.errors import ShapeError
from tests.drawing import drawn
from tests.functions.test_spectral import built

RANDOM = np.random.default_rng(5)
X = RANDOM.integers(-4, 5, (4, 5, 6)).astype(np.float32)
A, B, C = np.array([0, 2, -1]), np.array([[1], [3]]), np.array([4, 0, 1])
MASK = np.array([True, False, True, True])
SEVERAL: list[tuple[Any, ...]] = [
    (A, C),
    (A, slice(None), C),
    (slice(None), A, C),
    (slice(1, 3), B, A),
    (A, None, C),
    (A, 1, C),
    (1, A, C),
    (1, slice(None), A),
    (slice(None), 1, A),
    (None, A, B),
    (A, B, C),
    (A, ..., C),
    (B, slice(None, None, -2), A),
    (..., A, C),
    (slice(None), None, A, C),
    (1, None, A, C),
    (A, slice(None), 1),
]
ONE: list[tuple[Any, ...]] = [
    (),
    (1,),
    (slice(None), 2),
    (slice(1, 3), slice(None), slice(2, -1)),
    (slice(None, None, 2),),
    (slice(None, None, -1), 1),
    (..., -1),
    (A,),
    (np.array([0, 0, 1]),),
    (np.array([[0, 0], [1, 1]]), slice(1, 2)),
    (slice(3, 1),),
    (None, 2),
    (slice(None),),
    (MASK,),
    (MASK, 2),
]
UPDATES = ("set", "add", "multiply", "min", "max", "divide", "subtract")


def _with_tensors(index: tuple[Any, ...]) -> tuple[list[np.ndarray], Callable[..., tuple[Any, ...]]]:
    """Return the integer arrays in an index, and the index with tensors in their place."""
    places = [n for n, e in enumerate(index) if isinstance(e, np.ndarray) and e.dtype != bool]

    def filled(*tensors: Any) -> tuple[Any, ...]:
        given = dict(zip(places, tensors, strict=True))
        return tuple(given.get(n, e) for n, e in enumerate(index))

    return [index[n] for n in places], filled


@pytest.mark.parametrize("number", range(len(SEVERAL)))
def test_several_arrays_are_numpys(number: int) -> None:
    index = SEVERAL[number]
    arrays, filled = _with_tensors(index)
    np.testing.assert_array_equal(built(lambda g, x: x[index], X)[0], X[index])
    np.testing.assert_array_equal(built(lambda g, x, *t: x[filled(*t)], X, *arrays)[0], X[index])


def _repeats(index: tuple[Any, ...]) -> bool:
    return any(isinstance(e, np.ndarray) and e.dtype != bool and len(np.unique(e)) < e.size for e in index)


@drawn("number", range(len(SEVERAL) + len(ONE)), of_each=4)
def test_updates_are_jaxs(number: int) -> None:
    index = [*SEVERAL, *ONE][number]
    arrays, filled = _with_tensors(index)
    for update in UPDATES:
        if update == "set" and _repeats(index):
            continue
        for values in (np.array(2, np.float32), RANDOM.integers(1, 4, X[index].shape).astype(np.float32)):
            expected = getattr(jnp.asarray(X).at[index], update)(values)
            got = built(lambda g, x, v: getattr(x.at[index], update)(v), X, values)[0]  # noqa: B023
            np.testing.assert_allclose(got, expected, rtol=1e-6, err_msg=str(index))
            got = built(lambda g, x, v, *t: getattr(x.at[filled(*t)], update)(v), X, values, *arrays)[0]  # noqa: B023
            np.testing.assert_allclose(got, expected, rtol=1e-6, err_msg=str(index))


def test_what_is_outside_is_dropped() -> None:
    outside = np.array([0, 9, -9, 3])
    for index in ((outside,), (slice(None), outside, 1), (outside, slice(1, 3))):
        arrays, filled = _with_tensors(index)
        got = built(lambda g, x, *t: x.at[filled(*t)].add(1.0), X, *arrays)[0]  # noqa: B023
        np.testing.assert_array_equal(got, jnp.asarray(X).at[index].add(1.0))


def test_masks_and_functions() -> None:
    np.testing.assert_array_equal(built(lambda g, x: x.at[x > 1].set(0), X)[0], np.where(X > 1, 0, X))
    np.testing.assert_array_equal(built(lambda g, x: x.at[x > 1].add(3), X)[0], np.where(X > 1, X + 3, X))
    rows = np.array([True, False, False, True])
    np.testing.assert_array_equal(
        built(lambda g, x, m: x.at[m].set(7), X, rows)[0], np.where(rows[:, None, None], 7, X).astype(np.float32)
    )
    got = built(lambda g, x: x.at[1].apply(lambda v: v * v), X)[0]
    np.testing.assert_array_equal(got, jnp.asarray(X).at[1].apply(jnp.square))
    np.testing.assert_array_equal(built(lambda g, x: x.at[1, :2].get(), X)[0], X[1, :2])
    got = built(lambda g, x: x.at[:, 1:3].power(2), X)[0]
    np.testing.assert_array_equal(got, jnp.asarray(X).at[:, 1:3].power(2))


def test_slices_that_start_at_a_tensor() -> None:
    for start in (0, 2, 4, -1):
        i = np.array(start, np.int32)
        expected = jax.lax.dynamic_slice_in_dim(X, start, 3, 1)
        np.testing.assert_array_equal(built(lambda g, x, i: x[:, i : i + 3], X, i)[0], expected)
        np.testing.assert_array_equal(built(lambda g, x, i: x[:, 1 + i - 1 : 3 + i, ...], X, i)[0], expected)
        np.testing.assert_array_equal(built(lambda g, x, i: x.dynamic_slice_in_dim(i, 3, axis=1), X, i)[0], expected)
    for starts in [(0, 0, 0), (2, 1, 9), (-1, -2, 3)]:
        given = np.array(starts, np.int32)
        expected = jax.lax.dynamic_slice(X, starts, (2, 4, 3))
        np.testing.assert_array_equal(built(lambda g, x, s: g.dynamic_slice(x, s, (2, 4, 3)), X, given)[0], expected)
        for sizes in [(2, 4, 3), (2, 4, 6), (3, 2, 6), (1, 1, 1), (4, 5, 6)]:
            new = RANDOM.integers(0, 9, sizes).astype(np.float32)
            expected = jax.lax.dynamic_update_slice(X, new, starts)
            got = built(lambda g, x, u, s: g.dynamic_update_slice(x, u, s), X, new, given)[0]
            np.testing.assert_array_equal(got, expected)


@drawn("device", ["cpu", "xla"])
def test_compiled_with_gradients(device: str) -> None:
    """A few updates of each kind in one module, with the gradients of a sum of squares; JAX is the reference."""

    def network(m: Any, x: Any, i: Any, v: Any) -> Any:
        y = x.at[i, :, i + 1].add(v[:, None]) if m is rlx else x.at[i, :, i + 1].add(v[:, None], mode="drop")
        y = y.at[1:3, ::2].multiply(y[i[0], 2, :])
        return y.at[0].set(y[i, i].sum(0) + v[0])

    i, v = np.array([1, 3, 1], np.int32), np.array([0.5, -2, 3], np.float32)
    g: Any = rlx.Graph()
    x = g.input("x", X.shape)
    y = network(rlx, x, g.constant(i), g.input("v", v.shape))
    update = g.dynamic_update_slice_in_dim(y, y[:2] * 2, g.argmax(v), axis=0)
    g.set_outputs([g.sum(update * update)])
    got = rlx.Session(device).compile(rlx.grad_with_loss(g, wrt=["x", "v"])).run({"x": X, "v": v})

    def loss(x: Any, v: Any) -> Any:
        y = network(jnp, x, jnp.asarray(i), v)
        update = jax.lax.dynamic_update_slice_in_dim(y, y[:2] * 2, jnp.argmax(v), 0)
        return jnp.sum(update * update)

    expected, gradients = jax.value_and_grad(loss, (0, 1))(jnp.asarray(X), jnp.asarray(v))
    for mine, theirs in zip(got, (expected, *gradients), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4)


def test_updates_that_are_refused() -> None:
    g: Any = rlx.Graph()
    x = g.input("x", (4, 5))
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: x.at[-5].set(1), "index -5 is out of range for axis 0 of size 4"),
        (lambda: x.at[x > 1].set(np.ones(3, np.float32)), "as many elements as are true"),
        (lambda: x.at[(x > 1)[:, :2]].set(1), "sizes of the first axes"),
        (lambda: x.at[1].set(np.ones(7, np.float32)), "do not broadcast"),
        (lambda: x.at[0].set("x"), "expected a tensor, an array or a number"),
        (lambda: g.dynamic_slice(x, (0, 0), (5, 1)), "does not fit an axis of size 4"),
        (lambda: g.dynamic_slice(x, (0,), (1,)), "a start and a size for each axis"),
        (lambda: g.dynamic_slice(x, (0.5, 0), (1, 1)), "integers"),
        (lambda: g.take_along_axis(x, np.zeros((2,), np.int32), axis=0), "must have one rank"),
    ]
    for call, message in cases:
        with pytest.raises(ShapeError, match=message) as caught:
            call()
        assert "test_updates.py" in (caught.value.location or "")


def test_scatters_of_slices_of_one_row_and_one_element() -> None:
    """IREE folds slices and axes of size 1; one module has every combination of the two."""
    g: Any = rlx.Graph()
    x = g.input("x", (4, 6))
    outputs = []
    for reduction in ("set", "add", "mul", "max", "min"):
        for number in (1, 2):
            flat = g.reshape(x, (24,))[:number]
            outputs.append(g.scatter_nd(x, np.eye(2, dtype=np.int32)[:number], flat, reduction=reduction))
            rows = np.zeros((number, 1), np.int32)
            outputs += [g.scatter_nd(x[:, :w], rows, x[1 : 1 + number, :w], reduction=reduction) for w in (1, 2)]
            outputs.append(g.scatter_nd(x[:, 0], rows, x[:number, 1], reduction=reduction))
    g.set_outputs(outputs)
    expected = rlx.evaluate(g, {"x": X[:, 0]})
    for got, want in zip(rlx.Session("cpu").compile(g).run({"x": X[:, 0]}), expected, strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_scan_over_sorted_positions() -> None:
    """Values that depend on no input are computed at compile time: IREE refuses to run a loop for this."""
    g: Any = rlx.Graph()
    x = g.input("x", (36,))
    places = g.iota((36,)) % 4
    rows = g.gather(places, g.argsort(places, axis=0))
    g.set_outputs([g.scan(lambda c, e: (c + e[0], c * e[1]), g.constant(np.float32(1)), (x, rows.astype(rlx.f32)))[1]])
    values = {"x": np.arange(36, dtype=np.float32)}
    np.testing.assert_array_equal(rlx.Session("cpu").compile(g).run(values)[0], rlx.evaluate(g, values)[0])


@pytest.mark.parametrize("start", [0, 1, 3, -2, 9])
def test_slices_that_move_are_updated_where_they_are_read(start: int) -> None:
    """`x.at[i : i + 2]` writes where `x[i : i + 2]` reads, with a clamped start; other axes are sliced as usual."""
    starts = np.array(start, np.int32)
    for other in (lambda i: (), lambda i: (1,), lambda i: (slice(1, 4), None, slice(i, i + 3)), lambda i: (..., A)):
        index = lambda i, other=other: (slice(i, i + 2), *other(i))  # noqa: E731
        places = np.arange(X.size, dtype=np.int32).reshape(X.shape)
        read = built(lambda g, x, i, index=index: x[index(i)], places, starts)[0]
        values = RANDOM.integers(0, 9, read.shape).astype(np.float32)
        expected = X.copy()
        np.add.at(expected.reshape(-1), read, values)
        (got,) = built(lambda g, x, i, v, index=index: x.at[index(i)].add(v), X, starts, values)
        np.testing.assert_array_equal(got, expected)
        with rlx.eager():
            x, i = rlx.ops.constant(X), rlx.ops.constant(starts)
            np.testing.assert_array_equal(x.at[index(i)].add(values), expected)


def test_functions_of_places_keep_the_dtype() -> None:
    numbers = np.arange(-3, 4)
    with rlx.eager():
        got = rlx.ops.constant(numbers).at[1:3].apply(lambda x: x * 1.5)
    assert got.dtype is rlx.i64
    np.testing.assert_array_equal(got, jnp.asarray(numbers).at[1:3].apply(lambda x: jnp.trunc(x * 1.5).astype(int)))


@pytest.mark.parametrize(
    ("update", "message"),
    [
        (lambda x: x.at[0].set(1j), r"updating f32\[4, 5, 6\]: the values are complex.*\n  hint: give g.real"),
        (lambda x: x.astype("i8").at[0].set(300), r"updating i8\[4, 5, 6\]: the integer 300 .*-128 to 127"),
        (lambda x: x.at[0].set([1.0] * 6), r"got list\n  hint: g.constant\(numbers\)"),
    ],
)
def test_values_that_do_not_fit_name_the_line(update: Callable[[Any], Any], message: str) -> None:
    g: Any = rlx.Graph()
    with pytest.raises(rlx.Error, match=message) as caught:
        update(g.input("x", X.shape))
    assert "test_updates.py:" in str(caught.value)


def test_symbolic_sizes_of_slices_are_checked() -> None:
    """At once if a slice never fits, otherwise when sizes are known."""
    calls: list[Callable[[Any, Any, Any, Any], Any]] = [
        lambda g, x, i, u: g.dynamic_slice(x, (i, 0), (u.shape.dims[0], 2)),
        lambda g, x, i, u: g.dynamic_slice_in_dim(x, i, u.shape.dims[0]),
        lambda g, x, i, u: g.dynamic_update_slice(x, u, (i, 0)),
        lambda g, x, i, u: g.dynamic_update_slice_in_dim(x, u, i),
    ]
    pairs: list[tuple[Any, Any, str]] = [
        ("n", "k", ""),
        ("n", 3, ""),
        (3, "k", ""),
        ("n", "k+n", ""),
        ("n", "n+1", "a slice of n\\+1 does not fit an axis of size n"),
        (2, "k+3", ""),
    ]
    for call in calls:
        for whole, size, message in pairs:
            g: Any = rlx.Graph("slices")
            x, i, u = g.input("x", (whole, 2)), g.input("i", (), "i32"), g.input("u", (size, 2))
            if message:
                with pytest.raises(ShapeError, match=message):
                    call(g, x, i, u)
                continue
            g.set_outputs([call(g, x, i, u)])
            for n, k in ((3, 3), (3, 0), (2, 3), (5, 3)):
                rows = {"n": n, "k": k, "k+n": n + k, "k+3": k + 3, 2: 2, 3: 3}
                arrays = {"x": np.ones((rows[whole], 2)), "u": np.zeros((rows[size], 2))}
                arrays = {name: array.astype(np.float32) for name, array in arrays.items()} | {"i": np.int32(1)}
                if rows[size] > rows[whole]:
                    with pytest.raises(ShapeError, match="does not fit"):
                        rlx.evaluate(g, arrays)
                else:
                    assert rlx.evaluate(g, arrays)[0].shape == g.outputs[0].shape.bind({"n": n, "k": k}).dims

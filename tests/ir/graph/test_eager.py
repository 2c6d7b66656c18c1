"""`rlx.eager`: tensors with values, control flow, functions under `rlx.jit` and `rlx.model`, memory, misuse."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import tracemalloc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx

ops: Any = rlx.ops
X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


def test_tensors_have_values() -> None:
    with rlx.eager():
        y: Any = ops.relu(X) * 2 + 1
        assert type(y).__mro__[1] is rlx.Tensor and y.shape == (2, 3) and y.dtype is rlx.f32 and y.ndim == 2
        np.testing.assert_array_equal(y, np.maximum(X, 0) * 2 + 1)
        assert y.sum() > 3 and y.any() != 0 and float(y[1, 2]) == 7 and int(y.max()) == 7
        assert (
            y[0].tolist() == [1, 1, 1] and y[1, 1].item() == 5 and list(range(ops.argmax(y.flatten()))) == [*range(5)]
        )
        assert len(y) == 2 and [row.shape for row in y] == [(3,), (3,)] and f"{y[1, 0]:.2f}" == "3.00"
        assert "3., 5., 7." in repr(y) and "f32[2, 3]" in str(y)
        assert np.asarray(y, np.int64).dtype == np.int64 and complex(y[0, 0]) == 1
        assert (np.ones(3, np.float32) - y).shape == (2, 3) and ops.iota((3,)).tolist() == [0, 1, 2]
        assert (X[0] * ops.constant(np.float16(2))).dtype is rlx.f32
    assert (y + 1)[0, 0].item() == 2  # later as well
    for again in (copy.deepcopy(y), pickle.loads(pickle.dumps(y))):
        assert again.tolist() == y.tolist() and again.shape == y.shape


def test_what_is_indexed_by_values_is_what_a_graph_gives() -> None:
    def function(x: Any, i: Any) -> list[Any]:
        return [
            x[i],
            x[i : i + 1],
            x[:, i + 1],
            x.at[0, i].set(5.0),
            x[np.array([0, 1]), np.array([2, 0])],
            x[x.argmax(0)],
        ]

    g = rlx.Graph("indexed")
    g.set_outputs(function(g.input("x", (2, 3)), g.input("i", (), "i32")))
    expected = rlx.evaluate(g, {"x": X, "i": np.int32(1)})
    with rlx.eager():
        results = function(ops.constant(X), ops.constant(np.int32(1)))
        body = lambda c, row: (c, row[ops.constant(np.int32(1)) : ops.constant(np.int32(2))])  # noqa: E731
        assert np.array_equal(ops.scan(body, 0, X)[1], X[:, 1:2])
    for got, want in zip(results, expected, strict=True):
        np.testing.assert_array_equal(got, want)


def test_values_are_nobodys_else() -> None:
    x = X.copy()
    with rlx.eager():
        y = ops.reshape(ops.constant(x), (3, 2))
        same = rlx.jit(lambda x: x)(x)
    x[:] = 9
    assert y[0, 0].item() == -2 and same[0, 0] == -2
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(y)[0, 0] = 1


def test_control_flow_runs_with_values() -> None:
    seen: list[Any] = []

    def body(carry: Any, row: Any) -> Any:
        if hasattr(row, "numpy"):
            seen.append(row.tolist())
        halved = ops.while_(lambda h: h > 1.0, lambda h: h * 0.5, ops.abs(carry).max())
        return carry + ops.if_(row.sum() > 0, lambda: row * scale, lambda: -row), halved

    def function(x: Any) -> Any:
        return ops.scan(body, x[0] * 4.0, x, reverse=True)

    scale: Any = 2.0
    g = rlx.Graph("loops")
    g.set_outputs(function(g.input("x", (2, 3))))
    with rlx.eager():
        scale = ops.constant(np.float32(2))  # from outside the region
        results = function(ops.constant(X))
    assert seen == [X[1].tolist(), X[0].tolist()]
    for got, expected in zip(results, rlx.evaluate(g, {"x": X}), strict=True):
        np.testing.assert_array_equal(got, expected)
    with rlx.eager():  # a body that does not run gives the shapes of its trace
        carry, stack = ops.scan(lambda c, row: (c, row * 2.0), 0.0, np.ones((0, 3), np.float32))
        assert carry.item() == 0 and stack.shape == (0, 3)
        kept = ops.custom_fn(lambda x: x * x, X, vjp=lambda a, r, c: c[0])
        np.testing.assert_array_equal(kept, X * X)


@rlx.jit(static="mode")
def function(params: Any, x: Any, scale: Any = 2.0, mode: str = "sum") -> Any:
    hidden = (x @ params["w"]) * scale
    if mode == "branch" and hidden.sum() > 0:
        return {"out": -hidden}
    return {"out": hidden, "scale": scale, "three": 3}


@rlx.model
def model(x: rlx.Input("n", 3), w: rlx.Param(3, 2), *, factor: float = 1.0):  # type: ignore[valid-type]
    return {"y": ops.tanh(x @ w) * factor}


def test_functions_run_op_by_op() -> None:
    params = {"w": np.ones((3, 2), np.float16)}
    graph = function.graph_for(params, X.astype(np.float16), 0.1)
    values = {'params["w"]': params["w"], "x": X.astype(np.float16), "scale": np.float64(0.1)}
    with rlx.eager():
        got = function(params, X.astype(np.float16), 0.1)
        negated = function(params, X + 10, mode="branch")["out"]
        nested = function(params, ops.constant(X))["out"]
        y = model(X, params["w"].astype(np.float32), factor=2.0)["y"]
        slope = rlx.jit(lambda x, s: (x * x * s).sum()).grad()(X, 3.0)
        with pytest.raises(rlx.ShapeError, match=r"input 'x' must be f32\[n, 3\]"):
            model(X[:, :2], params["w"])
    assert [type(v) for v in got.values()] == [np.ndarray] * 3 and type(y) is np.ndarray
    for result, expected in zip(got.values(), rlx.evaluate(graph, values), strict=True):
        assert result.dtype == expected.dtype and result.tobytes() == expected.tobytes()
    assert (negated < 0).all() and isinstance(nested, rlx.Tensor)
    np.testing.assert_array_equal(slope, 6 * X)
    np.testing.assert_allclose(y, 2 * np.tanh(X @ np.ones((3, 2))), rtol=1e-6)


def test_modules_and_graphs() -> None:
    net = rlx.nn.Sequential(rlx.nn.Linear(3, 4), rlx.nn.BatchNorm(4), ops.tanh, rlx.nn.Dropout(0.5))
    params = net.init()
    g = rlx.Graph("net")
    g.set_outputs(net.apply(params, g.input("x", ("n", 3)), training=True, seed=3))
    (expected,) = rlx.evaluate(g, {"x": X})
    with rlx.eager():
        np.testing.assert_array_equal(net.apply(params, X, training=True, seed=3), expected)
        np.testing.assert_array_equal(rlx.call(g, ops.constant(X)), expected)
        with pytest.raises(rlx.Error, match="nowhere to declare its parameters"):
            net(ops.constant(X))


def test_memory_does_not_grow() -> None:
    def step(y: Any) -> Any:
        y = y * 0.5 + ops.constant(np.ones(1000, np.float32))
        return ops.scan(lambda c, r: (c + r * y[0], None), y, ops.zeros((2, 1000)))[0]

    with rlx.eager():
        y = step(ops.zeros((1000,)))
        array = weakref.ref(y.numpy())
        tracemalloc.start()
        for i in range(60):
            y = step(y)
            if i == 9:
                gc.collect()
                before = tracemalloc.get_traced_memory()[0]
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
    assert array() is None and grown < 100_000  # keeping a 4000-byte array per step would take twice that


def test_traced_tensors_that_are_kept_stay_readable() -> None:
    kept: list[Any] = []
    with rlx.eager():
        for _ in range(3):
            ops.while_(lambda n: n < 2, lambda n: kept.append(n * 2) or n + 1, 0)
        gc.collect()
        traced = [t for t in kept if not hasattr(t, "numpy")]
        assert len(traced) == 3 and all(t.shape == () and "has ended" in repr(t) for t in traced)
        with pytest.raises(rlx.Error, match=r"test_eager.py:\d+: .*was made inside a region that has ended"):
            _ = traced[0] + ops.constant(1)
        with pytest.raises(rlx.Error, match=r"test_eager.py:\d+: .*was made inside a region that has ended"):
            ops.while_(lambda n: n < traced[0], lambda n: n + 1, 0)


def test_each_thread_has_its_own_state() -> None:
    results: list[Any] = []

    def run() -> None:
        with rlx.eager():
            results.append(ops.scan(lambda c, r: (c + r, c), ops.zeros((3,)), shared)[0].tolist())

    with rlx.eager():
        shared = ops.constant(X)  # a tensor of another thread
    with pytest.raises(rlx.Error, match="takes tensors of a graph; none was given"):
        ops.iota((3,))
    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [X.sum(0).tolist()] * 4


MISTAKES: list[tuple[Callable[[Any], Any], str]] = [
    (lambda x: x @ x, "rlx.matmul: .*3 columns against 2 rows"),
    (lambda x: bool(x), r"the truth value of f32\[2, 3\] is not one"),
    (lambda x: x.item(), r"item needs one element, got f32\[2, 3\]"),
    (lambda x: ops.exp("a"), "rlx.activation: expected a tensor, an array or a number, got str"),
    (lambda x: ops.softmax(x, axis=5), "axis 5 is out of range"),
    (lambda x: x + rlx.Graph("other").input("y", (2, 3)), "belongs to another graph"),
    (lambda x: ops.while_(lambda n: n < 2, lambda n: float(n) and n, 0), "has no value while it is traced"),
    (lambda x: ops.while_(lambda n: n < 2, lambda n: n * 1.5, 0), "rlx.while: body_region must yield the carries"),
    (lambda x: rlx.call(_counter(), x), "state 'total' .* is missing"),
]


def _counter() -> rlx.Graph:
    g = rlx.Graph("counter")
    total = g.state("total", (2, 3))
    g.update(total, total + g.input("x", (2, 3)))
    g.set_outputs([total])
    return g


@pytest.mark.parametrize(("wrong", "message"), MISTAKES)
def test_mistakes_name_the_users_line(wrong: Callable[[Any], Any], message: str) -> None:
    with rlx.eager():
        x = ops.constant(X)
        with pytest.raises(rlx.Error, match=message) as caught:
            wrong(x)
    assert "test_eager.py:" in str(caught.value)


def test_values_in_a_graph_and_copies_that_are_refused() -> None:
    with rlx.eager():
        x = rlx.ops.constant(np.ones(2, np.float32))
    g: Any = rlx.Graph()
    for use in (lambda y: y + x, lambda y: g.concat([y, x], 0)):
        with pytest.raises(
            rlx.Error, match=r"test_eager\.py:\d+: .*has a value, and belongs to no graph.*\n.*np.asarray"
        ):
            use(g.input(f"y{len(g.inputs)}", (2,)))
    assert np.array(x, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="no array of float64 without a copy"):
        np.array(x, np.float64, copy=False)

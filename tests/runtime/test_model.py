"""`@rlx.model`: tracing, calling, static arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx


@rlx.model
def mlp(x: rlx.Input("batch", 6), w: rlx.Param(6, 4), *, temperature: float = 1.0):
    """A layer."""
    return rlx.ops.softmax((x @ w) / temperature, axis=-1)


@pytest.fixture
def arrays() -> Any:
    generator = np.random.default_rng(1)
    return [generator.standard_normal(s).astype(np.float32) for s in ((3, 6), (6, 4))]


def _expected(x: np.ndarray, w: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    scores = np.exp(x @ w / temperature)
    return scores / scores.sum(-1, keepdims=True)


def test_graph_is_a_graph() -> None:
    assert [a.name for a in mlp.graph.arguments] == ["x", "w"]
    assert mlp.graph.arguments[0].shape == ("batch", 6)
    assert mlp.__doc__ == "A layer."
    mlp.graph.verify()


def test_calls_and_sees_changed_weights(arrays: Any) -> None:
    x, w = arrays
    np.testing.assert_allclose(mlp(x, w=w), _expected(x, w), rtol=1e-5)
    np.testing.assert_allclose(mlp(x[:1], w), _expected(x[:1], w), rtol=1e-5)
    w *= 2  # in place: the same object with other contents
    np.testing.assert_allclose(mlp(x, w), _expected(x, w), rtol=1e-5)


def test_static_arguments_make_another_trace(arrays: Any) -> None:
    x, w = arrays
    np.testing.assert_allclose(mlp(x, w, temperature=3.0), _expected(x, w, 3.0), rtol=1e-5)
    with pytest.raises(rlx.Error, match="'temperature' must be hashable, got ndarray"):
        mlp(x, w, temperature=np.ones(3))


def test_models_nest(arrays: Any) -> None:
    g = rlx.Graph("outer")
    x, w = g.input("x", (3, 6)), g.param("w", (6, 4))
    g.set_outputs([mlp(x, w) * 2.0])
    np.testing.assert_allclose(
        rlx.evaluate(g, dict(zip("xw", arrays, strict=True)))[0], 2 * _expected(*arrays), rtol=1e-5
    )


def test_mistakes_are_explained(arrays: Any) -> None:
    x, w = arrays
    with pytest.raises(rlx.Error, match="missing a required argument: 'w'"):
        mlp(x)
    with pytest.raises(rlx.Error, match=r"input 'x' must be f32\[batch, 6\]"):
        mlp(x[:, :5], w)

    @rlx.model
    def nothing(x):
        return x

    with pytest.raises(rlx.Error, match="no tensor argument"):
        nothing(x)

    @rlx.model
    def branches(x: rlx.Input(2)):
        return x if x > 0 else -x

    with pytest.raises(rlx.Error, match="Python cannot branch on it"):
        branches(np.ones(2, np.float32))

    @rlx.model
    def number(x: rlx.Input(2)):
        return 3

    with pytest.raises(rlx.Error, match="must return tensors"):
        number(np.ones(2, np.float32))

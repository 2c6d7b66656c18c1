"""A small regression for training tests, as a graph and in JAX."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx

BATCH, INPUTS, HIDDEN, OUTPUTS = 16, 5, 6, 4


def graph(batch: Any = BATCH) -> rlx.Graph:
    """Return a graph with the mean squared error, the mean absolute error, and the predictions."""
    g = rlx.Graph("mlp")
    x, y = g.input("x", (batch, INPUTS)), g.input("y", (batch, OUTPUTS))
    w1, b1, w2 = g.param("w1", (INPUTS, HIDDEN)), g.param("b1", (HIDDEN,)), g.param("w2", (HIDDEN, OUTPUTS))
    predicted = g.tanh(x @ w1 + b1) @ w2
    difference = predicted - y
    g.set_outputs(
        {"mse": g.mean(difference * difference), "mae": g.mean(g.abs(difference)), "predicted": predicted},
    )
    return g


def params() -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    shapes = {"w1": (INPUTS, HIDDEN), "b1": (HIDDEN,), "w2": (HIDDEN, OUTPUTS)}
    return {n: (0.5 * random.standard_normal(s)).astype(np.float32) for n, s in shapes.items()}


def batches(count: int) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(2)
    xs = random.standard_normal((count, BATCH, INPUTS)).astype(np.float32)
    return [{"x": x, "y": np.sin(2 * x[:, :OUTPUTS])} for x in xs]


def trained_by_jax(
    transform: Any, given: dict[str, np.ndarray], data: list[dict[str, np.ndarray]], accumulate: int = 1
) -> tuple[list[float], dict[str, np.ndarray]]:
    """Return losses and final parameters of a loop of JAX's gradients and an optimiser of optax.

    Args:
        transform: The optimiser.
        given: The trained parameters. The others are those of `params`.
        data: Batches.
        accumulate: The number of gradients per mean.
    """
    import jax
    import jax.numpy as jnp
    import optax

    from tests.ops.references import jitted

    fixed = params()

    def loss(own: Any, batch: Any) -> Any:
        p = {**fixed, **own}
        return jnp.mean((jnp.tanh(batch["x"] @ p["w1"] + p["b1"]) @ p["w2"] - batch["y"]) ** 2)

    @jitted
    def updated(kept: Any, state: Any, values: Any) -> Any:
        mean = jax.tree.map(lambda *g: sum(g) / len(g), *kept)
        updates, state = transform.update(mean, state, values)
        return optax.apply_updates(values, updates), state

    differentiated = jitted(jax.value_and_grad(loss))
    values: Any = dict(given)
    state = jitted(transform.init)(values)
    losses, kept = [], []
    for batch in data:
        value, gradients = differentiated(values, batch)
        losses.append(float(value))
        kept.append(gradients)
        if len(kept) == accumulate:
            values, state = updated(kept, state, values)
            kept = []
    return losses, {n: np.asarray(v) for n, v in values.items()}

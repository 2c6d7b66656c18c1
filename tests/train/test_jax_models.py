"""Models of Flax NNX and Equinox, imported by `rlx.from_jax`: RLX's training steps equal those of optax under JAX."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import rlx
from tests.drawing import drawn

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")
import jax.numpy as jnp  # noqa: E402

STEPS, BATCH, CLASSES = 8, 16, 3
# Larger than the largest literal. An importer that makes it a parameter would train it.
POSITIONS = np.random.default_rng(1).standard_normal((8, 8, 32)).astype(np.float32)


def _cross_entropy(logits: Any, labels: Any) -> Any:
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def _flax() -> tuple[Any, Callable[..., Any]]:
    """Return a small convolutional network with a normalisation: its parameters, and its loss of them and a batch."""
    nnx = pytest.importorskip("flax.nnx")

    class Network(nnx.Module):
        def __init__(self, rngs: Any):
            self.conv = nnx.Conv(1, 32, (3, 3), rngs=rngs)
            self.norm = nnx.LayerNorm(32, rngs=rngs)
            self.drop = nnx.Dropout(0.5, rngs=rngs)
            self.head = nnx.Linear(32, CLASSES, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            x = nnx.gelu(self.norm(self.conv(x) + POSITIONS))
            x = nnx.max_pool(x, (2, 2), (2, 2)).mean((1, 2))
            return self.head(self.drop(x))

    model = Network(nnx.Rngs(0))
    model.eval()
    definition, params, rest = nnx.split(model, nnx.Param, ...)
    return params, lambda params, x, y: _cross_entropy(nnx.merge(definition, params, rest)(x), y)


def _equinox() -> tuple[Any, Callable[..., Any]]:
    """Attention over the rows of an image, one image at a time."""
    eqx = pytest.importorskip("equinox")

    class Network(eqx.Module):
        embed: Any
        attention: Any
        norm: Any
        head: Any

        def __init__(self, key: Any):
            a, b, c = jax.random.split(key, 3)
            self.embed = eqx.nn.Linear(8, 32, key=a)
            self.attention = eqx.nn.MultiheadAttention(2, 32, key=b)
            self.norm = eqx.nn.RMSNorm(32)
            self.head = eqx.nn.MLP(32, CLASSES, 16, 1, activation=jax.nn.silu, key=c)

        def __call__(self, image: Any) -> Any:
            rows = jax.vmap(self.embed)(image[..., 0]) + POSITIONS.sum(0)
            rows = jax.vmap(self.norm)(rows + self.attention(rows, rows, rows))
            return self.head(rows.mean(0))

    params, static = eqx.partition(Network(jax.random.key(0)), eqx.is_inexact_array)
    return params, lambda params, x, y: _cross_entropy(jax.vmap(eqx.combine(params, static))(x), y)


OPTIMIZERS: dict[str, tuple[Any, Any]] = {
    "adamw": (rlx.train.AdamW(0.01, weight_decay=0.1), optax.adamw(0.01, weight_decay=0.1)),
    "momentum": (rlx.train.SGD(0.05, momentum=0.9), optax.sgd(0.05, momentum=0.9)),
}


MODELS = {"flax": _flax, "equinox": _equinox}


@drawn("how", ["-".join(names) for names in product(MODELS, OPTIMIZERS, ("cpu", "xla"))])
def test_losses_and_parameters_are_those_of_optax(how: str) -> None:
    model, optimizer, device = how.split("-")
    params, loss = MODELS[model]()
    ours, theirs = OPTIMIZERS[optimizer]
    random = np.random.default_rng(0)
    batches = [
        (random.standard_normal((BATCH, 8, 8, 1)).astype(np.float32), random.integers(0, CLASSES, BATCH, np.int32))
        for _ in range(STEPS)
    ]
    g = rlx.from_jax(loss, params, *batches[0], param_argnums=0)
    assert len(g.params) == len(jax.tree.leaves(params)) and [i.name for i in g.inputs] == ["arg1", "arg2"]
    step = rlx.train.TrainStep(g, ours, device=device)

    @jax.jit
    def jax_step(params: Any, state: Any, x: Any, y: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(params, x, y)
        updates, state = theirs.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, value

    state, wanted, found, trained = theirs.init(params), [], [], params
    for x, y in batches:
        trained, state, value = jax_step(trained, state, x, y)
        wanted.append(float(value))
        found.append(step({"arg1": x, "arg2": y})["loss"])
    np.testing.assert_allclose(found, wanted, rtol=2e-4)
    assert max(wanted) - min(wanted) > 0.02  # otherwise nothing was trained
    values = step.params()
    for argument, leaf in zip(g.params, jax.tree.leaves(trained), strict=True):
        np.testing.assert_allclose(values[argument.name], leaf, rtol=2e-2, atol=2e-3)
    # Back in the pytree, they are the model's.
    back = jax.tree.unflatten(jax.tree.structure(params), [jnp.asarray(values[a.name]) for a in g.params])
    np.testing.assert_allclose(loss(back, *batches[0]), loss(trained, *batches[0]), rtol=1e-3)

"""The loss of energies and forces, evaluated in f64 and compared with JAX; and training with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.train import Adam, TrainStep, force_energy_loss
from tests.drawing import drawn
from tests.ops.references import jitted

ATOMS, HIDDEN = 5, 6


def potential(batch: tuple[int, ...] = (), kind: str = "f64") -> rlx.Graph:
    """Return the energy of a network of each atom's position and its distance from the origin."""
    g = rlx.Graph("potential")
    x = g.input("positions", (*batch, ATOMS, 3), kind)
    w1, w2 = g.param("w1", (3, HIDDEN), kind), g.param("w2", (HIDDEN,), kind)
    energies = g.tanh(x @ w1) @ w2 + 0.5 * g.sqrt(g.sum(x * x, -1) + 1.0)
    g.set_outputs({"atoms": energies, "energy": g.sum(energies, -1)})
    return g


def values(batch: tuple[int, ...] = (), kind: Any = np.float64) -> dict[str, np.ndarray]:
    random = np.random.default_rng(5)
    shapes: dict[str, tuple[int, ...]] = {
        "positions": (*batch, ATOMS, 3),
        "reference_forces": (*batch, ATOMS, 3),
        "reference_energy": batch,
        "w1": (3, HIDDEN),
        "w2": (HIDDEN,),
    }
    return {n: np.asarray(random.standard_normal(s), kind) for n, s in shapes.items()}


@drawn("batch", [(), (4,)], ids=str)
def test_is_jax(batch: tuple[int, ...]) -> None:
    import jax
    import jax.numpy as jnp

    def energy(w1: Any, w2: Any, x: Any) -> Any:
        return jnp.sum(jnp.tanh(x @ w1) @ w2 + 0.5 * jnp.sqrt(jnp.sum(x * x, -1) + 1.0), -1)

    def loss(w1: Any, w2: Any, given: Any) -> Any:
        x = given["positions"]
        forces = -jax.grad(lambda x: jnp.sum(energy(w1, w2, x)))(x)
        force_mse = jnp.mean((forces - given["reference_forces"]) ** 2)
        energies = energy(w1, w2, x)
        energy_mse = jnp.mean((energies - given["reference_energy"]) ** 2)
        return 3.0 * force_mse + 0.25 * energy_mse, (force_mse, energy_mse, energies, forces)

    given = values(batch)
    graph = force_energy_loss(potential(batch), energy="energy", force_weight=3.0, energy_weight=0.25)
    assert [o.name for o in graph.outputs] == ["loss", "force_mse", "energy_mse", "energy", "forces"]
    with jax.enable_x64(True):
        expected, others = jitted(loss)(given["w1"], given["w2"], given)
        gradients = jitted(jax.grad(lambda w1, w2: loss(w1, w2, given)[0], (0, 1)))(given["w1"], given["w2"])
    for found, wanted in zip(rlx.evaluate(graph, given), (expected, *others), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
    for found, wanted in zip(rlx.evaluate(rlx.grad(graph, ["w1", "w2"]), given), gradients, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-11)


@drawn("device", [rlx.Device.CPU, rlx.Device.XLA])
def test_is_trained(device: Any) -> None:
    """A potential learns another one's forces."""
    given = values(kind=np.float32)
    energy, forces = _energy_and_forces(given)
    batch = {"positions": given["positions"], "reference_energy": energy, "reference_forces": forces}
    start = {"w1": given["w1"] * 0.7, "w2": given["w2"] * 0.7}
    graph = force_energy_loss(potential(kind="f32"), energy="energy")
    step = TrainStep(graph, Adam(0.02), device=device, params=start, threads=1)
    results = [step(batch) for _ in range(80)]
    assert results[-1]["loss"] < 0.02 * results[0]["loss"]
    np.testing.assert_allclose(results[-1]["forces"], forces, atol=0.3)


def _energy_and_forces(given: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    graph = force_energy_loss(potential(kind="f32"), energy="energy")
    return tuple(rlx.evaluate(graph, given)[3:])  # type: ignore[return-value]


def test_takes_modules_and_refuses_what_does_not_fit() -> None:
    def build(h: Any) -> Any:
        return h.sum(h.tanh(h.input("positions", (2, 3)) @ h.param("w", (3, 1))))

    made = force_energy_loss(rlx.Graph.define("energy", build))
    assert isinstance(made, rlx.GraphModule)
    with pytest.raises(rlx.Error, match="no input 'places'; it has positions"):
        force_energy_loss(potential(), "places")
    with pytest.raises(rlx.Error, match="no output 'enthalpy'"):
        force_energy_loss(potential(), energy="enthalpy")
    with pytest.raises(rlx.Error, match="force_weight must not be negative"):
        force_energy_loss(potential(), force_weight=-1.0)
    g = rlx.Graph("integers")
    g.set_outputs([g.cast(g.sum(g.input("positions", (2, 3))), "i32")])
    with pytest.raises(rlx.Error, match="must hold floats"):
        force_energy_loss(g)

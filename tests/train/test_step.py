"""`TrainStep`: compiled on both back ends, compared with loops of JAX and optax."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

import rlx
from rlx.train import SGD, Adafactor, Adam, AdamW, DynamicLossScale, Lion, Optimizer, TrainStep, cosine
from tests.drawing import drawn
from tests.train import mlp

DEVICES = (rlx.Device.CPU, rlx.Device.XLA)


def steps(optimizer: Optimizer, device: Any, **options: Any) -> TrainStep:
    return TrainStep(mlp.graph(), optimizer, device=device, threads=1, params=mlp.params(), **options)


@drawn("device", DEVICES)
def test_follows_optax(device: Any) -> None:
    import optax

    data = mlp.batches(12)
    step = TrainStep(
        mlp.graph("batch"), Adam(cosine(0.05, 10, warmup_steps=3)), device=device, clip_norm=0.3, params=mlp.params()
    )
    schedule = optax.warmup_cosine_decay_schedule(0.0, 0.05, 3, 10)
    transform = optax.chain(optax.clip_by_global_norm(0.3), optax.adam(schedule))
    losses, expected = mlp.trained_by_jax(transform, mlp.params(), data)
    results = [step(batch) for batch in data]
    np.testing.assert_allclose([r["loss"] for r in results], losses, rtol=1e-4)
    for name, array in step.params().items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-4, atol=1e-5, err_msg=name)
    assert step.num_updates == 12 and step.loss_scale is None
    # Metrics keep their names and shapes.
    assert list(results[0]) == ["loss", "mae", "predicted"]
    assert type(results[0]["loss"]) is float and type(results[0]["mae"]) is float
    predicted = results[0]["predicted"]
    assert predicted.shape == (mlp.BATCH, mlp.OUTPUTS)
    assert results[0]["mae"] == pytest.approx(np.abs(predicted - data[0]["y"]).mean(), rel=1e-5)


@drawn("device", DEVICES)
def test_accumulates_trains_some_and_keeps_other_states(device: Any) -> None:
    import optax

    data = mlp.batches(7)
    g = mlp.graph()
    seen = g.state("seen", (), "i32")
    g.update(seen, seen + 1)
    step = TrainStep(g, Lion(0.01), wrt=["w1", "b1"], device=device, accumulate=3, params=mlp.params())
    own = {n: a for n, a in mlp.params().items() if n != "w2"}
    losses, expected = mlp.trained_by_jax(optax.lion(0.01), own, data, accumulate=3)
    np.testing.assert_allclose([step(batch)["loss"] for batch in data], losses, rtol=1e-5)
    found = step.params()
    np.testing.assert_array_equal(found["w2"], mlp.params()["w2"])
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6, err_msg=name)
    states = step.state()
    assert step.num_updates == 2 and states["train/accumulated"] == 1 and states["seen"] == 7
    assert set(states) == {
        *("seen", "train/step", "train/accumulated"),
        *("lion_m/w1", "lion_m/b1", "gradient_sum/w1", "gradient_sum/b1"),
    }
    # Frozen parameters can be replaced during training.
    step.set_params({"w2": np.zeros((mlp.HIDDEN, mlp.OUTPUTS), np.float32)})
    assert step(data[0])["loss"] == pytest.approx((data[0]["y"] ** 2).mean(), rel=1e-5)
    np.testing.assert_array_equal(step.params()["w1"], found["w1"])


@drawn("device", DEVICES)
def test_other_loss_and_optimizer(device: Any) -> None:
    """Adafactor, with factored states, trains another output; the first output becomes a metric."""
    step = steps(Adafactor(0.02, min_dim_size_to_factor=4), device, loss="mae")
    data = mlp.batches(1) * 30
    results = [step(batch) for batch in data]
    assert list(results[0]) == ["loss", "mse", "predicted"]
    assert results[-1]["loss"] < 0.8 * results[0]["loss"]
    assert step.state()["adafactor_v_row/w1"].shape == (mlp.INPUTS,)


@drawn("device", DEVICES)
def test_mixed_precision_has_wide_weights(device: Any) -> None:
    """f16 follows f32, and updates that f16 could not represent add up."""
    import optax

    data = mlp.batches(1) * 60
    step = steps(AdamW(1e-5, weight_decay=0.01), device, precision="f16", loss_scale=DynamicLossScale(1024.0))
    assert "f16" in str(step.graph)
    losses, expected = mlp.trained_by_jax(optax.adamw(1e-5, weight_decay=0.01), mlp.params(), data)
    found = [step(batch)["loss"] for batch in data]
    np.testing.assert_allclose(found, losses, rtol=2e-3)
    for name, array in step.params().items():
        assert array.dtype == np.float32
        moved, should = array - mlp.params()[name], expected[name] - mlp.params()[name]
        np.testing.assert_allclose(moved, should, rtol=0.1, atol=6e-5, err_msg=name)
    assert step.num_updates == 60 and step.loss_scale == 1024


@drawn("device", DEVICES)
def test_dynamic_loss_scale(device: Any) -> None:
    """The scale falls until gradients are finite and rises again. A skipped step changes nothing else."""
    scale = DynamicLossScale(2.0**40, growth_interval=3)
    step = steps(SGD(0.01, 0.9), device, precision="f16", loss_scale=scale)
    (batch,) = mlp.batches(1)
    good = skipped = grown = run = 0
    before, old_scale = step.params(), 2.0**40
    for _ in range(45):
        assert np.isfinite(step(batch)["loss"])
        after, new_scale = step.params(), step.loss_scale or 0.0
        if all(np.array_equal(before[n], after[n]) for n in before):
            assert new_scale == old_scale / 2
            skipped, run = skipped + 1, 0
            assert step.num_updates == good
        else:
            good, run = good + 1, run + 1
            assert step.num_updates == good
            assert new_scale == old_scale * (2 if run % 3 == 0 else 1)
            grown += new_scale > old_scale
        before, old_scale = after, new_scale
    assert skipped > 10 and good > 10 and grown > 1
    # A batch with an overflow in the forward pass is skipped too, and does not affect the momentum.
    trace = step.state()["sgd_trace/w1"]
    assert not np.isfinite(step({**batch, "y": np.full_like(batch["y"], np.nan)})["loss"])
    np.testing.assert_array_equal(step.state()["sgd_trace/w1"], trace)
    assert np.isfinite(trace).all() and step.num_updates == good


def test_constant_scale_and_accumulation() -> None:
    """A constant scale cancels to the bit in f32, and one bad gradient affects only its group."""
    data = mlp.batches(6)
    plain = steps(SGD(0.1), "xla", accumulate=2)
    scaled = steps(SGD(0.1), "xla", accumulate=2, loss_scale=1024.0)
    bad = {**data[0], "x": np.full_like(data[0]["x"], np.inf)}
    for batch in data[:2]:
        plain(batch)
    for batch in (bad, data[5], *data[:2]):
        scaled(batch)
    assert plain.num_updates == scaled.num_updates == 1
    for name, array in plain.params().items():
        np.testing.assert_array_equal(scaled.params()[name], array)
        assert not np.array_equal(mlp.params()[name], array)


def test_dtypes_of_parameters() -> None:
    """f64 is updated in f64; f16 and bf16 in f32, and rounded once."""
    g = rlx.Graph("dtypes")
    total: Any = 0.0
    kinds = ("f64", "f32", "f16", "bf16")
    for kind in kinds:
        total = total + g.cast(g.sum(g.param(kind, (3,), kind) * 3.0), "f64")
    g.set_outputs([total])
    ones = {k: np.ones(3, rlx.dtype(k).numpy) for k in kinds}
    step = TrainStep(g, SGD(0.1, 0.5), device="xla", params=ones, clip_norm=1.0, loss_scale=DynamicLossScale(8.0))
    step()
    step()
    moved = -0.1 * (1 + 1.5) * 3 / np.sqrt(12 * 9)
    states = step.state()
    for kind, array in step.params().items():
        assert array.dtype == ones[kind].dtype
        tolerance = {"f64": 1e-15, "f32": 1e-7, "f16": 1e-3, "bf16": 1e-2}[kind]
        np.testing.assert_allclose(array.astype(np.float64), 1 + moved, rtol=tolerance)
        assert states[f"sgd_trace/{kind}"].dtype == (np.float64 if kind == "f64" else np.float32)


def test_the_graph_is_not_changed_and_names_do_not_clash() -> None:
    """An output may have the name of a gradient, and a block is differentiated through its decomposition."""
    g = rlx.Graph("names", stage="hir")
    x, w = g.input("x", (2, 3)), g.param("w", (3, 3))
    g.set_outputs({"loss": g.sum(x @ w), "grad_w": g.sum(x)})
    text = str(g)
    step = TrainStep(g, SGD(1.0), device="xla", params={"w": np.zeros((3, 3), np.float32)})
    result = step({"x": np.ones((2, 3), np.float32)})
    assert result == {"loss": 0.0, "grad_w": 6.0} and str(g) == text
    np.testing.assert_array_equal(step.params()["w"], np.full((3, 3), -2.0))


def bad_name() -> rlx.Graph:
    g = mlp.graph()
    g.set_outputs(dict(zip(("mse", "step"), g.output_tensors, strict=False)))
    return g


def symbolic() -> rlx.Graph:
    g = rlx.Graph("symbolic")
    g.set_outputs([g.sum(g.input("x", (2, "n")) @ g.param("w", ("n", 1)))])
    return g


class Odd(rlx.train.Optimizer):
    """An optimiser made of two functions."""

    name = "odd"

    def __init__(self, states: Any, update: Any):
        super().__init__(0.1)
        self._given = states, update

    def states(self, param: rlx.Shape) -> Any:
        return self._given[0](param)

    def update(self, b: Any, gradient: Any, param: Any, states: Any, step: Any, learning_rate: Any) -> Any:
        return self._given[1](param, states)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TrainStep(mlp.graph(), cast(Any, "adam")), "optimizer must be one of rlx.train's"),
        (lambda: TrainStep(mlp.graph(), SGD(0.1), wrt=["w3"]), "no argument 'w3'"),
        (lambda: TrainStep(mlp.graph(), SGD(0.1), wrt=["x"]), "'x' is input"),
        (lambda: TrainStep(mlp.graph(), SGD(0.1), wrt=[]), "wrt names no parameter"),
        (lambda: TrainStep(mlp.graph(), SGD(0.1), loss="predicted"), "must be a scalar"),
        (lambda: TrainStep(mlp.graph(), SGD(0.1), loss="predicted", precision="f16"), "must be a scalar"),
        (lambda: TrainStep(mlp.graph(), SGD(0.1), loss="mes"), "did you mean 'mse'"),
        (lambda: TrainStep(mlp.graph(), SGD(0.1), loss="mes", precision="f16"), "did you mean 'mse'"),
        (lambda: TrainStep(bad_name(), SGD(0.1)), "output 'step' is not the loss"),
        (
            lambda: TrainStep(bad_name(), SGD(0.1), loss="stepp"),
            r"no output 'stepp' for the loss \(did you mean 'step'\?\)",
        ),
        (lambda: TrainStep(symbolic(), SGD(0.1)), r"parameter 'w' is f32\[n, 1\]; its size must be known\n.*bind="),
        (lambda: TrainStep(rlx.Graph("empty"), SGD(0.1)), "has no outputs"),
        (lambda: TrainStep(mlp.graph(), SGD(0.1), accumulate=0), "accumulate must be an integer"),
        (lambda: TrainStep(mlp.graph(), SGD(0.1), clip_norm=-1.0), "clip_norm must be positive"),
        (lambda: TrainStep(mlp.graph(), SGD(0.1), precision="f8"), "precision must be one of"),
        (lambda: TrainStep(mlp.graph(), SGD(0.1), loss_scale=0.0), "loss_scale must be between"),
        (
            lambda: TrainStep(symbolic(), SGD(0.1), bind={"n": cast(Any, 2.5)}),
            "the size of n must be an integer, got 2.5",
        ),
        (lambda: TrainStep(symbolic(), SGD(0.1), bind=cast(Any, 3)), "bind must be a mapping of symbols to sizes"),
        (lambda: TrainStep(mlp.graph(), SGD(cast(Any, np.zeros(3)))), "learning_rate must be a finite number"),
        (lambda: TrainStep(mlp.graph(), Odd(lambda p: 3, lambda p, s: (p, s))), "odd: states must give a dictionary"),
        (lambda: TrainStep(mlp.graph(), Odd(lambda p: {"v": p}, lambda p, s: p)), "odd: update gives Tensor; expected"),
        (
            lambda: TrainStep(mlp.graph(), Odd(lambda p: {"v": p}, lambda p, s: (p, {}))),
            "odd: update gives the states none; expected v",
        ),
        (lambda: rlx.train.compile_training(mlp.graph(), ["w1"], target=cast(Any, 3)), "must be a string, got 3"),
        (lambda: DynamicLossScale(factor=1.0), "factor must be greater than 1"),
    ],
)
def test_bad_uses_are_refused(make: Any, message: str) -> None:
    with pytest.raises(rlx.Error, match=message):
        make()


def test_bad_parameters_are_refused() -> None:
    step = TrainStep(mlp.graph(), SGD(0.1), device="xla")
    (batch,) = mlp.batches(1)
    with pytest.raises(rlx.Error, match=r"3 parameters are not set: 'w1' \(f32\[5, 6\]\)"):
        step(batch)
    with pytest.raises(rlx.Error, match="no parameter 'w4'"):
        step.set_params(mlp.params() | {"w4": np.zeros(1)})
    with pytest.raises(rlx.Error, match=r"'b1' must be f32\[6\], got float64\[6\]"):
        step.set_params(mlp.params() | {"b1": np.zeros(6)})
    with pytest.raises(rlx.Error, match="3 parameters are not set"):  # none was set
        step.params()
    step.set_params(mlp.params())
    with pytest.raises(rlx.Error, match="input 'y'"):
        step({"x": batch["x"]})


def test_bound_symbols() -> None:
    step = TrainStep(symbolic(), SGD(0.5), device="xla", bind={"n": 3}, params={"w": np.zeros((3, 1), np.float32)})
    assert step({"x": np.ones((2, 3), np.float32)})["loss"] == 0
    np.testing.assert_array_equal(step.params()["w"], np.full((3, 1), -1.0))

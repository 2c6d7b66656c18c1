"""Optimisers and schedules, evaluated and compared with optax."""

from __future__ import annotations

import inspect
import math
from typing import Any, cast

import numpy as np
import pytest

import rlx
from rlx.ir.dtype import dtype
from rlx.train import SGD, Adafactor, Adam, AdamW, Lion, Optimizer, constant, cosine, exponential, linear
from rlx.train.loss_scale import all_finite
from rlx.train.schedules import learning_rate_at
from tests.drawing import drawn
from tests.ops.references import jitted

STEPS = 20

# An optimiser of RLX, and that of optax.
CASES: dict[str, tuple[Optimizer, Any]] = {
    "sgd": (SGD(0.1), lambda o: o.sgd(0.1)),
    "sgd, momentum": (SGD(0.1, momentum=0.9), lambda o: o.sgd(0.1, 0.9)),
    "sgd, nesterov": (SGD(0.1, 0.8, nesterov=True), lambda o: o.sgd(0.1, 0.8, nesterov=True)),
    "sgd, decay": (
        SGD(0.1, 0.9, weight_decay=0.01),
        lambda o: o.chain(o.add_decayed_weights(0.01), o.sgd(0.1, 0.9)),
    ),
    "sgd, schedule": (SGD(linear(0.5, 0.1, 10)), lambda o: o.sgd(o.linear_schedule(0.5, 0.1, 10))),
    "adam": (Adam(0.01), lambda o: o.adam(0.01)),
    "adam, options": (Adam(0.01, b1=0.7, b2=0.8, eps=0.1), lambda o: o.adam(0.01, 0.7, 0.8, 0.1)),
    "adam, no past": (Adam(0.01, b1=0.0, b2=0.0, eps=0.1), lambda o: o.adam(0.01, 0.0, 0.0, 0.1)),
    "adamw": (AdamW(0.01), lambda o: o.adamw(0.01)),
    "adamw, options": (
        AdamW(0.01, 0.8, 0.9, 1e-3, weight_decay=0.1),
        lambda o: o.adamw(0.01, 0.8, 0.9, 1e-3, weight_decay=0.1),
    ),
    "lion": (Lion(0.01), lambda o: o.lion(0.01)),
    "lion, options": (Lion(0.01, 0.8, 0.9, weight_decay=0.1), lambda o: o.lion(0.01, 0.8, 0.9, weight_decay=0.1)),
    "adafactor": (Adafactor(0.01), lambda o: o.adafactor(0.01)),
    "adafactor, factored": (
        Adafactor(0.01, min_dim_size_to_factor=3),
        lambda o: o.adafactor(0.01, min_dim_size_to_factor=3),
    ),
    "adafactor, options": (
        Adafactor(0.01, 0.7, 0.5, momentum=0.9, weight_decay=0.01, eps=1e-8, min_dim_size_to_factor=4),
        lambda o: o.adafactor(
            0.01,
            min_dim_size_to_factor=4,
            decay_rate=0.7,
            clipping_threshold=0.5,
            momentum=0.9,
            dtype_momentum=np.float64,
            weight_decay_rate=0.01,
            eps=1e-8,
        ),
    ),
    "adafactor, absolute": (
        Adafactor(0.01, clipping_threshold=None, multiply_by_parameter_scale=False, min_dim_size_to_factor=3),
        lambda o: o.adafactor(
            0.01, min_dim_size_to_factor=3, clipping_threshold=None, multiply_by_parameter_scale=False
        ),
    ),
}


def trained(optimizer: Optimizer, param: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    """Return the parameter after a step with each gradient."""
    kind = dtype(param.dtype)
    g = rlx.Graph("update")
    shape = rlx.Shape(param.shape, kind)
    p, gradient, step = g.input("p", shape), g.input("g", shape), g.input("step", (), kind)
    specs = optimizer.states(shape)
    states = {name: g.input(name, spec) for name, spec in specs.items()}
    rate = learning_rate_at(g, optimizer.learning_rate, step)
    new, following = optimizer.update(g, gradient, p, states, step, rate)
    assert following.keys() == specs.keys()
    g.set_outputs({"p": new, **{f"new_{n}": t for n, t in following.items()}})
    values = {n: np.zeros(s.static, s.dtype.numpy) for n, s in specs.items()}
    for i, array in enumerate(gradients):
        param, *rest = rlx.evaluate(g, {"p": param, "g": array, "step": np.array(i, param.dtype), **values})
        values = dict(zip(following, rest, strict=True))
    return param


@drawn("kind", [np.float64, np.float32])
@pytest.mark.parametrize("name", CASES)
def test_is_optax(name: str, kind: Any) -> None:
    import jax
    import optax

    optimizer, make = CASES[name]
    random = np.random.default_rng(3)
    for shape in ((5, 4), (3, 5, 4), (4,), ()):
        param = random.standard_normal(shape).astype(kind)
        gradients = random.standard_normal((STEPS, *shape)).astype(kind)
        with jax.enable_x64(True):
            transform = make(optax)

            @jitted
            def updated(gradient: Any, state: Any, param: Any, transform: Any = transform) -> Any:
                updates, state = transform.update(gradient, state, param)
                return optax.apply_updates(param, updates), state

            expected: Any = jax.numpy.asarray(param)
            state = jitted(transform.init)(expected)
            for gradient in gradients:
                expected, state = updated(gradient, state, expected)
        found = trained(optimizer, param, gradients)
        assert found.dtype == kind
        # optax always computes schedules, and adafactor's decay, in f32.
        narrow = kind is np.float32 or "adafactor" in name or "schedule" in name
        tolerance = 2e-6 if narrow else 1e-13
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def test_adafactor_is_its_formula() -> None:
    """Adafactor equals its formula in f64 to the last digits. optax is less precise."""
    random = np.random.default_rng(4)
    param, gradients = random.standard_normal((5, 4)), random.standard_normal((STEPS, 5, 4))
    expected, rows, columns = param, np.zeros(4), np.zeros(5)
    for t, gradient in enumerate(gradients, 1):
        past = 1 - t**-0.8
        squares = gradient**2 + 1e-30
        rows = past * rows + (1 - past) * squares.mean(0)
        columns = past * columns + (1 - past) * squares.mean(1)
        direction = gradient / np.sqrt(np.outer(columns, rows) / rows.mean())
        direction /= max(1, np.sqrt((direction**2).mean()))
        expected = expected - 0.01 * max(1e-3, np.sqrt((expected**2).mean())) * direction
    np.testing.assert_allclose(trained(CASES["adafactor, factored"][0], param, gradients), expected, rtol=1e-12)


def test_adafactor_keeps_a_row_and_a_column() -> None:
    states = Adafactor(0.01).states(rlx.Shape((2, 256, 128), rlx.f32))
    assert {n: s.static for n, s in states.items()} == {"v_row": (2, 128), "v_col": (2, 256)}
    assert set(Adafactor(0.01).states(rlx.Shape((256, 127), rlx.f32))) == {"v"}


SCHEDULES: dict[str, tuple[Any, Any]] = {
    "constant": (constant(0.3), lambda o: o.constant_schedule(0.3)),
    "linear": (linear(0.1, 1.0, 7, transition_begin=3), lambda o: o.linear_schedule(0.1, 1.0, 7, 3)),
    "cosine": (cosine(0.4, 15), lambda o: o.cosine_decay_schedule(0.4, 15)),
    "cosine, warmup": (
        cosine(0.4, 20, warmup_steps=6, init_value=0.05, end_value=0.01),
        lambda o: o.warmup_cosine_decay_schedule(0.05, 0.4, 6, 20, 0.01),
    ),
    "exponential": (exponential(0.4, 3, 0.7), lambda o: o.exponential_decay(0.4, 3, 0.7)),
    "exponential, options": (
        exponential(0.4, 3, 0.7, transition_begin=2, staircase=True, end_value=0.1),
        lambda o: o.exponential_decay(0.4, 3, 0.7, 2, True, 0.1),
    ),
    "exponential, growing": (
        exponential(0.1, 2, 1.5, end_value=1.0),
        lambda o: o.exponential_decay(0.1, 2, 1.5, end_value=1.0),
    ),
    "a user's": (lambda b, step: 0.1 / (1.0 + step), lambda o: lambda count: 0.1 / (1.0 + count)),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule_is_optax(name: str) -> None:
    import optax

    ours, make = SCHEDULES[name]
    theirs = make(optax)
    g = rlx.Graph("rate")
    g.set_outputs([learning_rate_at(g, ours, g.input("step", ()))])
    for step in range(25):
        (found,) = rlx.evaluate(g, {"step": np.array(step, np.float32)})
        assert found == pytest.approx(float(theirs(step)), rel=2e-6, abs=1e-7), step


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SGD(cast(Any, "fast")), "learning_rate must be a finite number"),
        (lambda: SGD(0.1, momentum=1.0), "momentum must be at least 0 and less than 1"),
        (lambda: Adam(float("nan")), "learning_rate must be a finite number"),
        (lambda: Adam(0.1, b2=-0.1), "b2 must be at least 0"),
        (lambda: Adafactor(0.1, min_dim_size_to_factor=0), "min_dim_size_to_factor must be an integer"),
        (lambda: cosine(0.1, 5, warmup_steps=5), "warmup_steps"),
        (lambda: linear(0.1, 0.2, 0), "transition_steps"),
        (lambda: exponential(0.1, 5, 0.0), "decay_rate must be greater than 0"),
    ],
)
def test_bad_options_are_refused(make: Any, message: str) -> None:
    with pytest.raises(rlx.Error, match=message):
        make()


def test_a_schedule_gives_a_scalar() -> None:
    g = rlx.Graph("rate")
    step = g.input("step", ())
    with pytest.raises(rlx.Error, match=r"a schedule must give a scalar of floats, got f32\[2\]"):
        learning_rate_at(g, lambda b, s: b.expand(s, (2,)), step)
    with pytest.raises(rlx.Error, match="must be a finite number"):
        learning_rate_at(g, lambda b, s: None, step)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, None])
def test_all_finite(bad: float | None) -> None:
    arrays = {
        "x": np.full((2, 3), 3e38, np.float32),
        "y": np.zeros((0, 2), np.float32),
        "z": np.array(-1.0, np.float32),
    }
    if bad is not None:
        arrays["x"][1, 2] = bad
    g = rlx.Graph("finite")
    g.set_outputs([all_finite(g, [g.input(n, a.shape) for n, a in arrays.items()])])
    assert rlx.evaluate(g, arrays)[0] == (bad is None)


@pytest.mark.parametrize("kind", [SGD, Adam, AdamW, Lion, Adafactor])
def test_senseless_options_are_refused_by_name(kind: Any) -> None:
    for name, present in inspect.signature(kind).parameters.items():
        wrong: list[Any] = [math.nan, math.inf, -0.1, -1, "0.1", 1e300, 10**400, [0.1]]
        if isinstance(present.default, bool):
            wrong = [0, 1, None, "yes"]
        elif isinstance(present.default, int):
            wrong.remove(10**400)  # a count that is never reached
        for value in wrong:
            with pytest.raises(rlx.Error, match=name):
                kind(**({"learning_rate": 0.1} | {name: value}))
    with pytest.raises(rlx.Error, match="learning rate"):
        learning_rate_at(rlx.Graph(), lambda b, step: -0.1, rlx.Graph().constant(0.0))


def test_senseless_schedules_are_refused_by_name() -> None:
    for wrong in (math.nan, math.inf, -0.1, "0.1", 1e300):
        for build in (
            lambda v: constant(value=v),
            lambda v: linear(init_value=v, end_value=0.1, transition_steps=3),
            lambda v: linear(init_value=0.1, end_value=v, transition_steps=3),
            lambda v: cosine(peak_value=v, decay_steps=3),
            lambda v: exponential(init_value=v, transition_steps=3, decay_rate=0.5),
            lambda v: exponential(init_value=0.1, transition_steps=3, decay_rate=v),
        ):
            with pytest.raises(rlx.Error, match=r"value|decay_rate"):
                build(wrong)

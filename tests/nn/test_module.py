"""Modules: names, values, files, training, `apply`, and error messages."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import nn

X = np.random.default_rng(0).standard_normal((32, 4)).astype(np.float32)
Y = (X[:, :1] * X[:, 1:2]).astype(np.float32)


class Block(nn.Module):
    def __init__(self, size: int):
        self.norm, self.drop = nn.BatchNorm(size), nn.Dropout(0.1)
        self.mix = {"up": nn.Linear(size, 2 * size), "down": nn.Linear(2 * size, size)}

    def forward(self, x: Any) -> Any:
        return x + self.drop(self.mix["down"](rlx.ops.relu(self.mix["up"](self.norm(x)))))


class Net(nn.Module):
    def __init__(self) -> None:
        self.blocks = [Block(4), Block(4)]
        self.head = nn.Sequential(rlx.ops.tanh, nn.Linear(4, 1))
        self.scale = nn.Parameter((1,), init=nn.init.ones)
        self.tied = self.blocks[0]

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.head(x) * self.scale


BLOCK = (
    *("norm.weight", "norm.bias", "norm.running_mean", "norm.running_var"),
    *("mix.up.weight", "mix.up.bias", "mix.down.weight", "mix.down.bias"),
)
NAMES = ["scale", *(f"blocks.{i}.{name}" for i in range(2) for name in BLOCK), "head.1.weight", "head.1.bias"]


def test_names_are_those_of_state_dicts() -> None:
    net = Net()
    assert list(net.parameters()) == NAMES and list(net.init()) == NAMES
    assert net.num_parameters == 2 * (8 + 40 + 36) + 5 + 1
    g = rlx.Graph("net")
    x = g.input("x", ("batch", 4))
    g.set_outputs([net(x), net(x * 2.0)])  # the second call uses the parameters of the first
    assert {a.name for a in g.params} == set(NAMES) and not g.states
    language = Outer(lambda x, table, head: head(table(x)), table=nn.Embedding(7, 4), head=nn.Linear(4, 7, bias=False))
    language.parts["head"].weight = language.parts["table"].weight
    assert list(language.parameters()) == ["parts.table.weight"]
    (scores,) = rlx.evaluate(_graph(language, (3,), "i32"), {"x": np.arange(3, dtype=np.int32), **language.init(1)})
    table = language.init(1)["parts.table.weight"]
    np.testing.assert_allclose(scores, table[:3] @ table.T, rtol=1e-5)
    assert "blocks.0/mix.up" in g.text(locations=True)
    assert repr(nn.Sequential(nn.ReLU(), nn.Linear(2, 1))).startswith(
        "Sequential(\n  (0): ReLU(kind='relu')\n  (1): Linear"
    )
    assert "(blocks.1): Block(" in repr(net) and "Linear(in_features=4, out_features=8)" in repr(net)


def _graph(module: nn.Module, shape: Any, dtype: Any = "f32") -> rlx.Graph:
    g = rlx.Graph("module")
    g.set_outputs(module(g.input("x", shape, dtype)))
    return g


def test_trains_and_infers() -> None:
    net = Net()
    g = rlx.Graph("train")
    error = net(g.input("x", (32, 4)), training=True, seed=1) - g.input("y", (32, 1))
    g.set_outputs({"mse": g.mean(error * error)})
    assert {a.name for a in g.states} == {n for n in NAMES if "running" in n} | {"nn/calls"}
    start = {n: v + (np.float32(3) if "running_mean" in n else 0) for n, v in net.init(2).items()}
    step = rlx.train.TrainStep(g, rlx.train.Adam(0.02), params=start, device="xla")
    assert step.state()["blocks.0.norm.running_mean"].tolist() == [3.0] * 4
    losses = [entry["loss"] for entry in rlx.train.fit(step, [{"x": X, "y": Y}], steps=150)]
    assert losses[-1] < 0.2 * losses[0]
    params = net.params_from(step)
    assert list(params) == NAMES and step.state()["nn/calls"] == 150
    np.testing.assert_allclose(params["blocks.0.norm.running_mean"], X.mean(0), atol=1e-3)

    inference = rlx.Graph("inference")
    inference.set_outputs(net(inference.input("x", ("batch", 4))))
    (predicted,) = rlx.evaluate(inference, {"x": X, **params})
    assert np.mean((predicted - Y) ** 2) < 0.2 * losses[0]


def test_apply_under_jit() -> None:
    net = Net()
    params = net.init(3)

    @rlx.jit(threads=1)
    def loss(params, x, y, seed):
        predicted, after = net.apply_and_update(params, x, seed=seed)
        return rlx.ops.mean((predicted - y) ** 2), after

    graph = loss.graph_for(params, X, Y, 5)
    values = {f'params["{n}"]': v for n, v in params.items()} | {"x": X, "y": Y, "seed": np.int64(5)}
    expected = rlx.evaluate(graph, values)
    (value, after), gradients = loss.value_and_grad("params")(params, X, Y, 5)
    np.testing.assert_allclose(value, expected[0], rtol=1e-4)
    assert list(gradients) == list(after) == NAMES
    assert not gradients["blocks.0.norm.running_mean"].any() and gradients["scale"].any()
    np.testing.assert_allclose(after["blocks.0.norm.running_mean"], 0.1 * X.mean(0), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(after["scale"], params["scale"])


def test_files_and_state_dicts(tmp_path: Path) -> None:
    net, path = Net(), tmp_path / "net.safetensors"
    params = net.init(4)
    net.save(path, params)
    for again in (net.load(path), net.params_from(rlx.weights.open(path))):
        assert all(np.array_equal(again[n], params[n]) for n in NAMES)
    theirs = params | {n.replace("blocks.0", "tied"): v for n, v in params.items() if "blocks.0" in n}
    assert list(net.params_from(theirs | {"blocks.0.norm.num_batches_tracked": np.int64(3)})) == NAMES
    wrong = {n: v for n, v in params.items() if n != "scale"} | {"head.1.bias": np.ones(2), "had": np.ones(1)}
    with pytest.raises(rlx.Error) as caught:
        net.params_from(wrong)
    text = str(caught.value)
    assert "'scale' (f32[1]) is missing" in text and "'head.1.bias' is float64[2], not f32[1]" in text
    assert "'had' has no place here" in text


def test_modules_are_pickled_with_their_initialisers() -> None:
    starts = [
        *(nn.init.constant(2.0), nn.init.zeros, nn.init.ones, nn.init.uniform(1, 2), nn.init.normal(2.0, 1.0)),
        *(nn.init.truncated_normal(), nn.init.glorot_uniform(), nn.init.glorot_normal(2.0), nn.init.orthogonal(3.0)),
        *(nn.init.kaiming_uniform("leaky_relu", "fan_out", 0.1), nn.init.kaiming_normal(), nn.init.within(0.5)),
    ]
    for module in (Net(), nn.Sequential(*(nn.Linear(4, 4, weight_init=start) for start in starts))):
        again = pickle.loads(pickle.dumps(module))
        assert repr(again) == repr(module)
        values = again.init(3)
        for name, value in module.init(3).items():
            np.testing.assert_array_equal(values[name], value)


def test_first_values_are_reproducible_and_independent() -> None:
    first, again, other = nn.Linear(4, 3).init(1), nn.Linear(4, 3).init(1), nn.Linear(4, 3).init(2)
    assert all(np.array_equal(first[n], again[n]) and not np.array_equal(first[n], other[n]) for n in first)
    net = Net().init(1)
    assert not np.array_equal(net["blocks.0.mix.up.weight"], net["blocks.1.mix.up.weight"])
    # The exact numbers: a change of the generator would change all users' runs.
    np.testing.assert_allclose(first["weight"].reshape(-1)[:3], GOLDEN, rtol=1e-6)


GOLDEN = (-0.38660022616386414, -0.08379311114549637, -0.3701321482658386)
SHAPE = (300, 200, 2)
FAN_IN, FAN_OUT = 400, 600
VARIANCES = {
    "normal": (nn.init.normal(0.5), 0.25),
    "uniform": (nn.init.uniform(-1, 3), 4 / 3),
    "glorot_uniform": (nn.init.xavier_uniform(), 2 / (FAN_IN + FAN_OUT)),
    "glorot_normal": (nn.init.glorot_normal(2.0), 8 / (FAN_IN + FAN_OUT)),
    "kaiming_uniform": (nn.init.kaiming_uniform(), 2 / FAN_IN),
    "kaiming_normal": (nn.init.he_normal("leaky_relu", "fan_out", 0.5), 1.6 / FAN_OUT),
    "truncated": (nn.init.truncated_normal(), 0.7737),  # 1 - 2·2·φ(2)/(2·Φ(2) - 1)
    "orthogonal": (nn.init.orthogonal(3.0), 9 / FAN_IN),
}


@pytest.mark.parametrize("name", VARIANCES)
def test_initialisers_have_the_variance_that_they_say(name: str) -> None:
    initialiser, variance = VARIANCES[name]
    values = np.asarray(initialiser(11, SHAPE))
    mean = 1.0 if name == "uniform" else 0.0
    assert values.shape == SHAPE and abs(values.mean() - mean) < 0.02 * np.sqrt(variance)
    np.testing.assert_allclose(values.var(), variance, rtol=0.02)
    if name == "truncated":
        assert abs(values).max() <= 2
    if name == "orthogonal":
        rows = values.reshape(300, -1)
        np.testing.assert_allclose(rows @ rows.T, 9 * np.eye(300), atol=1e-10)
    if name.endswith("uniform"):
        assert abs(values - mean).max() <= np.sqrt(3 * variance) * (1 + 1e-9)


class Outer(nn.Module):
    def __init__(self, function: Callable[..., Any], **parts: nn.Module):
        self.function, self.parts = function, parts

    def forward(self, x: Any) -> Any:
        return self.function(x, **self.parts)


STRANGER = nn.Linear(4, 4)
ONE_LIST: list[Any] = [[nn.Linear(1, 1)]]
NO_SEED: Any = 0.5


def linear(x: Any, inner: Any) -> Any:
    return inner(x)


MISTAKES: list[tuple[Callable[[Any, Any], Any], str]] = [
    (lambda g, x: Outer(linear, inner=nn.Linear(5, 2))(x),
     r"'parts.inner', Linear\(in_features=5.*takes \[…, 5\], got f32\[2, 4\]"),
    (lambda g, x: Outer(linear, inner=nn.Sequential(nn.Conv(4, 2, 3)))(x),
     r"module 'parts.inner.0', Conv.*takes \[N, 4, 2 spatial"),
    (lambda g, x: nn.Linear(4, 2)(x > 0.0), r"module Linear.*takes floats.*got bool\[2, 4\]\n  hint: cast it"),
    (lambda g, x: nn.Embedding(4, 2)(x), "module Embedding.*takes integers"),
    (lambda g, x: Outer(lambda x: x @ x)(x), "module Outer.*rlx.matmul: .*columns"),
    (lambda g, x: Outer(lambda x: STRANGER(x))(x),
     "is called by another module, and is not part of it\n  hint: make it an attribute"),
    (lambda g, x: nn.Linear(4, 2)(X), "was called with no tensor of a graph.*\n.*apply"),
    (lambda g, x: nn.Linear(4, 2).apply({}, x), r"these are no parameters of Linear:\n  'weight' \(f32\[2, 4\]\) is missing\n"),
    (lambda g, x: nn.Linear(4, 2).apply({"weights": X}, x), r"'weights' has no place here \(did you mean 'weight'\?\)"),
    (lambda g, x: nn.Linear(4, 2).apply(x, x), "apply takes the parameters first, arrays or tensors by name, got Tensor"),
    (lambda g, x: nn.Linear(4, 2).apply(nn.Linear(4, 2).init(), X), "none of the arguments is a tensor\n  hint: .*rlx.jit"),
    (lambda g, x: nn.Linear(4, 2)(x, x), "module Linear.*too many positional arguments; it takes x"),
    (lambda g, x: nn.Dropout(0.5).apply({}, x, training=True), "random layers need a seed"),
    (lambda g, x: nn.Dropout(0.5)(x, training=True, seed=NO_SEED), "the seed must be an integer"),
    (lambda g, x: (nn.Linear(4, 2)(x), nn.Linear(4, 2)(x)), "another module has declared a parameter 'weight' in the graph"),
    (lambda g, x: (lambda n: (n(x), n(x, training=True)))(nn.BatchNorm(4)),
     "buffer 'running_mean' is a parameter of the graph"),
    (lambda g, x: nn.BatchNorm(4)(x[:1], training=True), "takes more than one value for each channel"),
    (lambda g, x: nn.Module()(x), "Module has no forward"),
    (lambda g, x: nn.Flatten(2)(x), "module Flatten.*start_axis 2 is out of range for rank 2"),
    (lambda g, x: nn.MultiHeadAttention(4, 2)(g.input("s", (2, 3, 4)), mask=[[True]]),
     "module MultiHeadAttention.*expected a tensor, an array or a number, got list\n  hint: g.constant"),
    (lambda g, x: nn.LSTM(4, 2)(g.input("s", (2, 3, 4)), x), r"takes the states as \(h, c\)"),
    (lambda g, x: nn.GRU(4, 2)(g.input("s", (2, 3, 4)), x), r"takes states \[1, 2, 2\], got f32\[2, 4\]"),
    (lambda g, x: nn.Parameter(("n", 2)), r"a parameter has sizes that are known, got f32\[n, 2\]"),
    (lambda g, x: nn.Parameter((2,), init=0),  # type: ignore[arg-type]
     "init is a function of a key and a shape, got 0"),
    (lambda g, x: rlx.jit(nn.Linear(4, 2).__call__)(X), "cannot be declared in a function under rlx.jit"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "message"), MISTAKES)
def test_mistakes_name_the_module_and_the_line(wrong: Callable[[Any, Any], Any], message: str) -> None:
    g = rlx.Graph("mistakes")
    with pytest.raises(rlx.Error, match=message) as caught:
        wrong(g, g.input("x", (2, 4)))
    assert "test_module.py:" in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: nn.Sequential(*ONE_LIST), r"step 0 of Sequential is no module.*\n.*Sequential\(a, b\)"),
        (lambda: nn.Linear(2, 4).init(0.0), r"test_module.py:\d+: the seed must be an integer, got 0.0"),  # type: ignore[arg-type]
        (lambda: nn.Conv(3, 2, 3, groups=2), "do not divide into 2 groups"),
        (lambda: nn.MultiHeadAttention(4, 3), "embed_dim 4 is no multiple of num_heads 3"),
        (lambda: nn.Dropout(1.5), r"test_module.py:\d+: p must be in \[0, 1\]"),
        (lambda: nn.Dropout("0.5"), r"p must be in \[0, 1\], got '0.5'"),  # type: ignore[arg-type]
        (lambda: nn.Linear(2.5, 4), "in_features must be an integer of at least 0, got 2.5"),  # type: ignore[arg-type]
        (lambda: nn.Embedding(4, -2), "embedding_dim must be an integer of at least 0, got -2"),
        (lambda: nn.Conv2d(-3, 4, 3), "in_channels must be an integer of at least 0, got -3"),
        (lambda: nn.Conv2d(3, 4, 0), r"kernel_size\[0\] must be an integer of at least 1, got 0"),
        (lambda: nn.Conv2d(3, 4, (3,)), r"Conv2d: kernel_size must be an integer or 2 of them, got \[3\]"),
        (lambda: nn.ConvTranspose1d(3, 4, (3, 3)), "kernel_size must be an integer or 1 of them"),
        (lambda: nn.Conv(3, 4, (3, 3, 3, 3)), "kernel_size must be an integer or 1 to 3 of them"),
        (lambda: nn.Conv(3, 4, (3, 0.5)), "kernel_size must be an integer of at least 0, got 0.5"),  # type: ignore[arg-type]
        (lambda: nn.LSTM(4, 2, num_layers=0), "num_layers must be an integer of at least 1, got 0"),
        (lambda: nn.GELU("tahn"), "approximate must be 'none' or 'tanh', got 'tahn'"),
        (lambda: nn.init.kaiming_uniform("gleu"), "'gleu' is not one of"),
        (lambda: nn.init.truncated_normal(low=50, high=51), "few normal numbers"),
        (lambda: nn.init.orthogonal()(0, (3,)), "orthogonal needs rank 2"),
        (
            lambda: nn.Linear(2, 2, weight_init=lambda key, shape: np.ones(3)).init(),
            r"'weight' gave \[3\] for f32\[2, 2\]",
        ),
    ],
)
def test_declarations_are_checked(wrong: Callable[[], Any], message: str) -> None:
    with pytest.raises(rlx.Error, match=message):
        wrong()
    with pytest.raises(AttributeError, match="did you mean 'weight'"):
        _ = nn.Linear(2, 2).weigth

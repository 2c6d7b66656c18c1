"""`fit` of a module: exact losses and metrics, all forms of data, resuming, and errors."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import rlx
from rlx.train import SGD, AdamW, TrainStep, cosine

fit: Any = rlx.train.fit  # wrong arguments too
FEATURES, CLASSES = 5, 3


class Network(rlx.nn.Module):
    """Two layers with batch normalisation and, optionally, dropout."""

    def __init__(self, outputs: int = CLASSES, dropout: float = 0.0):
        self.first = rlx.nn.Linear(FEATURES, 8)
        self.norm = rlx.nn.BatchNorm(8)
        self.dropout = rlx.nn.Dropout(dropout)
        self.last = rlx.nn.Linear(8, outputs)

    def forward(self, x: rlx.Tensor) -> rlx.Tensor:
        return self.last(self.dropout(rlx.ops.tanh(self.norm(self.first(x)))))


def samples(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    x = random.standard_normal((count, FEATURES)).astype(np.float32)
    return x, x[:, :CLASSES].argmax(1).astype(np.int32)


X, Y = samples(22)
QUIET: Any = {"progress": False, "device": "xla"}
LABELS: Any = {"loss": "cross_entropy", "optimizer": SGD(0.3), "batch_size": 8, **QUIET}


def reference(model: Any, params: Any, x: np.ndarray) -> np.ndarray:
    g: Any = rlx.Graph()
    g.set_outputs([model(g.input("x", ("n", FEATURES)))])
    return rlx.evaluate(g, {"x": x, **params})[0]


def loss_of(logits: np.ndarray, y: np.ndarray) -> float:
    shifted = logits.astype(np.float64) - logits.max(1, keepdims=True)
    return float(np.mean(np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(y)), y]))


@pytest.fixture(scope="module")
def trained() -> Any:
    return fit(Network(), (X, Y), epochs=3, validation=samples(13, 1), metrics=["accuracy", "f1"], seed=4, **LABELS)


def test_equals_a_loop_over_steps_with_a_short_last_batch(trained: Any) -> None:
    """The steps, the statistics of the normalisation and the mean of an epoch are those of steps for 8, 8 and 6 samples."""
    model, params, losses = Network(), Network().init(4), []
    for epoch in range(3):
        order = np.random.default_rng([4, epoch]).permutation(22)
        for start in (0, 8, 16):
            chosen = order[start : start + 8]
            g: Any = rlx.Graph()
            x, y = g.input("x", (len(chosen), FEATURES)), g.input("y", (len(chosen),), "i32")
            g.set_outputs([g.mean(g.softmax_cross_entropy_with_logits(model(x, training=True), y))])
            step = TrainStep(g, SGD(0.3), params=params, device="xla")
            step.set_params({n: params[n] for n in ("norm.running_mean", "norm.running_var")})
            losses.append((epoch, len(chosen), step({"x": X[chosen], "y": Y[chosen]})["loss"]))
            params = model.params_from(step)
    for name, value in trained.params.items():
        np.testing.assert_allclose(value, params[name], rtol=2e-4, atol=2e-5, err_msg=name)
    for epoch, entry in enumerate(trained.history):
        mean = sum(size * loss for e, size, loss in losses if e == epoch) / 22
        assert entry["loss"] == pytest.approx(mean, rel=1e-4)


def test_validation_and_prediction_are_those_of_the_whole_data(trained: Any) -> None:
    from sklearn.metrics import confusion_matrix, f1_score

    x, y = samples(13, 1)
    logits = reference(Network(), trained.params, x)
    np.testing.assert_allclose(trained.predict(x, batch_size=4), logits, rtol=1e-4, atol=1e-5)
    predicted = logits.argmax(1)
    found = trained.evaluate((x, y))
    assert found == {n.removeprefix("val_"): v for n, v in trained.history[-1].items() if n.startswith("val_")}
    assert found["loss"] == pytest.approx(loss_of(logits, y), rel=1e-4)
    assert found["accuracy"] == np.mean(predicted == y)
    assert found["f1"] == pytest.approx(f1_score(y, predicted, average="macro"))
    matrix = trained.confusion_matrix((x, y))
    np.testing.assert_array_equal(matrix.counts, confusion_matrix(y, predicted, labels=range(CLASSES)))
    assert matrix.accuracy == found["accuracy"]


def test_the_history_has_an_entry_for_each_epoch(trained: Any) -> None:
    assert [entry["epoch"] for entry in trained.history] == [1, 2, 3]
    assert [entry["step"] for entry in trained.history] == [3, 6, 9]
    names = ["loss", "accuracy", "f1", "val_loss", "val_accuracy", "val_f1"]
    assert trained.history.names() == names == list(trained.history.history)
    assert trained.history["loss"] == [entry["loss"] for entry in trained.history]
    with pytest.raises(rlx.Error, match=r"no 'val_acuracy' \(did you mean 'val_accuracy'"):
        trained.history["val_acuracy"]


def test_graphs_and_state_dicts(trained: Any, tmp_path: Path) -> None:
    graphs = trained.graphs
    program = rlx.Session("xla").compile(graphs.prediction, params=trained.params)
    np.testing.assert_allclose(program.run({"x": X})[0], trained.predict(X), rtol=1e-5, atol=1e-6)
    assert [o.name for o in graphs.training.outputs] == ["loss", "sums/accuracy", "sums/f1"]
    assert [o.name for o in graphs.evaluation.outputs] == ["loss", "sums/accuracy", "sums/f1"]
    torch = pytest.importorskip("torch")
    theirs = torch.nn.ModuleDict(
        {"first": torch.nn.Linear(5, 8), "norm": torch.nn.BatchNorm1d(8), "last": torch.nn.Linear(8, 3)}
    )
    theirs.load_state_dict(trained.state_dict())
    theirs.eval()
    with torch.no_grad():
        expected = theirs["last"](torch.tanh(theirs["norm"](theirs["first"](torch.from_numpy(X))))).numpy()
    np.testing.assert_allclose(trained.predict(X), expected, rtol=1e-4, atol=1e-5)
    again = fit(Network(), (X, Y), params=theirs.state_dict(), **{**LABELS, "optimizer": SGD(0.0)})
    np.testing.assert_array_equal(again.params["last.weight"], trained.params["last.weight"])
    trained.save(tmp_path / "weights.safetensors")
    np.testing.assert_array_equal(
        Network().load(tmp_path / "weights.safetensors")["norm.running_var"], trained.params["norm.running_var"]
    )


class Loader:
    """An iterable of batches that are not NumPy arrays, such as the loaders of PyTorch, grain and tf.data give."""

    class Array:
        def __init__(self, values: np.ndarray):
            self.values = values

        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return self.values

    def __init__(self, is_dict: bool) -> None:
        self.is_dict, self.epochs = is_dict, 0

    def __iter__(self) -> Iterator[Any]:
        self.epochs += 1
        for start in (0, 8, 16):
            x, y = (
                self.Array(X[start : start + 8].astype(np.float64)),
                self.Array(Y[start : start + 8].astype(np.int64)),
            )
            yield {"x": x, "label": y} if self.is_dict else (x, y)


def test_all_forms_of_data_are_the_same_training() -> None:
    torch = pytest.importorskip("torch")
    pairs = [(X[i : i + 8], Y[i : i + 8]) for i in (0, 8, 16)]
    data_set = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y).long())
    forms: list[Any] = [
        (X.astype(np.float64), Y.astype(np.int64)),
        {"x": X, "labels": Y},
        pairs,
        [{"x": x, "y": y} for x, y in pairs],
        lambda epoch: iter(pairs),
        torch.utils.data.DataLoader(data_set, batch_size=8),
        Loader(False),
        Loader(True),
    ]
    losses = [fit(Network(), data, epochs=2, shuffle=False, **LABELS).history["loss"] for data in forms]
    assert all(found == losses[0] for found in losses[1:])
    iterator = fit(Network(), iter(pairs * 2), epochs=2, steps_per_epoch=3, **LABELS)
    assert iterator.history["loss"] == losses[0]


def test_resuming_in_an_epoch_gives_the_same_history_and_parameters(tmp_path: Path) -> None:
    options: Any = {**LABELS, "optimizer": AdamW(cosine(0.05, 9)), "metrics": ["accuracy"], "ema": 0.9}
    options |= {"epochs": 3, "validation": samples(7, 2), "accumulate": 2}
    whole = fit(Network(dropout=0.2), (X, Y), **options)
    path = tmp_path / "c.safetensors"
    begun = fit(Network(dropout=0.2), (X, Y), checkpoint=path, on_step=lambda e: e["step"] == 5, **options)
    assert [e["step"] for e in begun.history] == [3, 5]
    resumed = fit(Network(dropout=0.2), (X, Y), checkpoint=path, resume=True, **options)
    assert resumed.history == whole.history
    for name, value in whole.params.items():
        np.testing.assert_array_equal(resumed.params[name], value, err_msg=name)
    over = fit(Network(dropout=0.2), (X, Y), checkpoint=path, resume=True, **options)
    assert over.history == whole.history and over.step.num_updates == whole.step.num_updates


def test_a_checkpoint_is_a_file_of_parameters(tmp_path: Path) -> None:
    """`params=`, `Module.load` and `Session.compile` take the parameters that `predict` uses, best and averaged."""
    path, frozen = tmp_path / "c.safetensors", {**LABELS, "optimizer": SGD(0.0)}
    options: Any = {**LABELS, "optimizer": AdamW(0.3), "ema": 0.9, "validation": samples(7, 2), "keep_best": True}
    first = fit(Network(), (X, Y), epochs=3, checkpoint=path, **options)
    assert any(not np.array_equal(first.params[n], v) for n, v in first.step.params().items())
    again = fit(Network(), (X, Y), params=path, **frozen)
    for name, value in Network().load(path).items():
        np.testing.assert_array_equal(value, first.params[name], err_msg=name)
    for name, value in again.step.params().items():  # running means are not parameters, and have moved
        np.testing.assert_array_equal(value, first.params[name], err_msg=name)
    program = rlx.Session("xla").compile(first.graphs.prediction, params=path)
    np.testing.assert_allclose(program.run({"x": X})[0], first.predict(X), rtol=1e-5, atol=1e-6)
    with pytest.raises(rlx.Error, match=r"'norm\.weight' has no place here") as caught:
        TwoInputs().load(path)
    assert "adam" not in str(caught.value)


def test_ctrl_c_keeps_history_and_state(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"

    def interrupt(entry: dict[str, Any]) -> None:
        if entry["step"] == 5:
            os.kill(os.getpid(), signal.SIGINT)

    stopped = fit(Network(), (X, Y), epochs=4, on_step=interrupt, checkpoint=path, **LABELS)
    assert stopped.interrupted and [e["step"] for e in stopped.history] == [3, 5]
    assert stopped.step.position == (5, 1, 2)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    resumed = fit(Network(), (X, Y), epochs=4, checkpoint=path, resume=True, **LABELS)
    whole = fit(Network(), (X, Y), epochs=4, **LABELS)
    assert resumed.history == whole.history and not resumed.interrupted


def test_early_stopping_restores_the_best(tmp_path: Path) -> None:
    options: Any = {**LABELS, "optimizer": SGD(30.0)}
    found = fit(Network(), (X, Y), epochs=40, validation=0.3, patience=2, keep_best=True, **options)
    losses = found.history["val_loss"]
    assert len(losses) == int(np.argmin(losses)) + 3 < 40
    assert min(losses) < losses[-1]


def test_binary_targets_and_models_that_end_with_probabilities() -> None:
    from sklearn.metrics import f1_score, precision_score, recall_score

    y = (X[:, 0] > 0.3).astype(np.int64)
    options: Any = {**LABELS, "loss": "binary_crossentropy", "metrics": ["accuracy", "f1", "precision", "recall"]}
    logits = fit(Network(1), (X, y.astype(bool)), epochs=2, **options)
    ended = fit(rlx.nn.Sequential(Network(1), rlx.nn.Sigmoid()), (X, y), epochs=2, **options)
    first = fit(rlx.nn.Sequential(Network(1)), (X, y), epochs=2, **options)
    assert ended.history["loss"] == first.history["loss"]
    probabilities = 1 / (1 + np.exp(-first.predict(X).astype(np.float64)))
    np.testing.assert_allclose(ended.predict(X), probabilities, rtol=1e-5)
    found, predicted = logits.evaluate((X, y)), (logits.predict(X)[:, 0] > 0).astype(int)
    for name, score in (("f1", f1_score), ("precision", precision_score), ("recall", recall_score)):
        assert found[name] == pytest.approx(float(score(y, predicted)))
    np.testing.assert_array_equal(ended.confusion_matrix((X, y)).counts, first.confusion_matrix((X, y)).counts)


def test_regression_and_functions() -> None:
    y = X[:, :2] ** 2
    metrics: Any = {
        "mae": rlx.train.MeanAbsoluteError,
        "r2": "r2",
        "worst": lambda o, t: rlx.ops.max(rlx.ops.abs(o - t), -1),
    }
    found = fit(Network(2), (X, y), loss="mse", epochs=2, metrics=metrics, batch_size=8, **QUIET).evaluate((X, y))
    own = fit(Network(2), (X, y), loss=lambda o, t: (o - t) ** 2, epochs=2, batch_size=8, **QUIET)
    outputs = own.predict(X)
    assert own.evaluate((X, y))["loss"] == found["loss"] == pytest.approx(np.mean((outputs - y) ** 2), rel=1e-5)
    assert found["mae"] == pytest.approx(np.abs(outputs - y).mean(), rel=1e-5)
    assert found["r2"] == pytest.approx(1 - ((outputs - y) ** 2).sum() / ((y - y.mean()) ** 2).sum(), rel=1e-4)
    assert found["worst"] == pytest.approx(np.abs(outputs - y).max(1).mean(), rel=1e-5)


@pytest.mark.parametrize("has_axis", [True, False])
def test_targets_of_one_output_may_lack_the_last_axis(has_axis: bool) -> None:
    column = np.round(X[:, :1] * 4)
    own, other = (column, column[:, 0]) if has_axis else (column[:, 0], column)
    options: Any = {"loss": "mse", "batch_size": 8, "metrics": ["mae"], **QUIET}
    found = fit(Network(1), (X, own), validation=(X, other.astype(np.int64)), **options)
    outputs = found.predict(X)
    expected = {"loss": np.mean((outputs - column) ** 2), "mae": np.abs(outputs - column).mean()}
    for targets in (own, other, other.astype(np.int64)):
        assert found.evaluate((X, targets)) == pytest.approx(expected, rel=1e-5)
    assert found.evaluate([(X[:9], other[:9]), (X[9:], own[9:].reshape(other[9:].shape))]) == pytest.approx(expected)
    assert found.history[-1]["val_loss"] == pytest.approx(expected["loss"], rel=1e-5)
    training = r"and that of the training data f32\[batch, 1\]" if has_axis else r"training data f32\[batch\]"
    with pytest.raises(rlx.Error, match=rf"y of a batch is f32\[batch, 3\], .*{training}$"):
        found.evaluate((X, X[:, :3]))
    with pytest.raises(rlx.Error, match=rf"y of validation is f32\[batch, 3\], .*{training}$") as caught:
        fit(Network(1), (X, own), validation=(X, X[:, :3]), **options)
    assert not hasattr(caught.value, "trained")  # before the first step


def test_targets_of_integers_stay_exact() -> None:
    found = fit(Network(1), (X, Y), loss="mse", batch_size=8, **QUIET)
    assert found.evaluate((X, Y.astype(np.float32))) == found.evaluate((X, Y))
    with pytest.raises(rlx.Error, match=r"y of a batch is f32\[batch\], and that of the training data i32\[batch\]"):
        found.evaluate((X, Y + 0.5))


class TwoInputs(rlx.nn.Module):
    def __init__(self) -> None:
        self.layer = rlx.nn.Linear(FEATURES, 2)

    def forward(self, left: rlx.Tensor, right: rlx.Tensor) -> dict[str, rlx.Tensor]:
        return {"sum": self.layer(left + right), "difference": self.layer(left - right)}


def test_several_inputs_outputs_and_targets() -> None:
    targets = {"sum": X[:, :2], "difference": X[:, 2:4]}

    def loss(outputs: Any, targets: Any) -> Any:
        return rlx.ops.mse_loss(outputs["sum"], targets["sum"]) + rlx.ops.l1_loss(
            outputs["difference"], targets["difference"]
        )

    options: Any = {"loss": loss, "optimizer": SGD(0.1), "epochs": 2, "batch_size": 8, **QUIET}
    found = fit(TwoInputs(), ((X, 2 * X), targets), **options)
    by_name = fit(TwoInputs(), ({"right": 2 * X, "left": X}, targets), **options)
    assert by_name.history["loss"] == found.history["loss"]
    outputs = found.predict((X, 2 * X))
    assert list(outputs) == ["sum", "difference"] and outputs["sum"].shape == (22, 2)
    np.testing.assert_array_equal(by_name.predict({"left": X, "right": 2 * X})["sum"], outputs["sum"])


BAD = X.copy()
BAD[17, 2] = np.nan


def without_targets(**options: Any) -> Any:
    return fit(Network(), {"x": X}, **{**LABELS, **options})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: fit(Network(), (X, Y + 1), **LABELS),
            r"y of data: label 3 at \d+; the model has 3 outputs, so labels are 0",
        ),
        (lambda: fit(Network(), (X, Y - 1), **LABELS), r"label -1 at"),
        (lambda: fit(Network(), (X, Y), validation=(X, Y + 1), **LABELS), "y of validation: label 3"),
        (lambda: fit(Network(), [(X, Y + 1)], **LABELS), "y of batch 1 of data: label 3"),
        (lambda: fit(Network(), (X, Y.astype(np.float32)), **LABELS), "the outputs are .*3.* and the targets f32"),
        (
            lambda: fit(Network(), (X, Y), **{**LABELS, "loss": "mse"}),
            "the outputs are .* and the targets .*; they need one",
        ),
        (lambda: fit(Network(), (X, Y), **{**LABELS, "loss": "crossentropy"}), "did you mean 'cross_entropy'"),
        (lambda: fit(Network(), (X, Y), **{**LABELS, "loss": None}), "loss= is missing; the names are cross_entropy"),
        (lambda: fit(Network(), (X, Y), metrics=["acuracy"], **LABELS), "no metric 'acuracy' .did you mean 'accuracy'"),
        (lambda: fit(Network(), (X, Y), metrics="f1", **LABELS), "metrics must be a list"),
        (lambda: fit(Network(2), (X, X[:, :2]), metrics=["f1"], **{**LABELS, "loss": "mse"}), "'f1' needs labels"),
        (
            lambda: fit(Network(), (X, Y), **{**LABELS, "optimizer": "adamm"}),
            "no optimiser 'adamm' .did you mean 'adam'",
        ),
        (lambda: fit(Network(), (X[:0], Y[:0]), **LABELS), "data is empty: x is \\[0, 5\\]"),
        (lambda: fit(Network(), [], **LABELS), "data is empty: it has no batch"),
        (lambda: fit(Network(), (X, Y[:9]), **LABELS), "data: x has 22 samples, and y has 9"),
        (without_targets, "data has no targets; it has x"),
        (lambda: fit(Network(), X, **LABELS), "data is one array; expected inputs and targets"),
        (lambda: fit(Network(), [X, Y], **LABELS), "data is a list of two arrays"),
        (lambda: fit(Network(), 3, **LABELS), "data is int; expected"),
        (
            lambda: fit(Network(), {"image": X, "z": X, "y": Y}, **LABELS),
            "'image', which is not a parameter of Network.forward",
        ),
        (lambda: fit(Network(), (X[:, :4], Y), **LABELS), "got f32"),
        (lambda: fit(Network(), (X, Y), epoch=2, **LABELS), "did you mean 'epochs'|epochs"),
        (lambda: fit(cast(Any, Network), (X, Y), **LABELS), "got the class Network"),
        (lambda: fit(Network(), (X, Y), validation=1.5, **LABELS), "a share between 0 and 1, got 1.5"),
        (lambda: fit(Network(), (X, Y), patience=2, **LABELS), "patience needs batches to validate with"),
        (
            lambda: fit(Network(), (BAD, Y), **LABELS),
            r"the loss is nan at step \d .*: 'x' of data has nan at \[17, 2\]",
        ),
    ],
)
def test_errors(call: Any, message: str) -> None:
    with pytest.raises(rlx.Error, match=message):
        call()


def test_an_iterator_ends_and_the_first_epoch_is_kept() -> None:
    with pytest.raises(rlx.Error, match="epoch 2 has no batch: data is an iterator") as caught:
        fit(Network(), iter([(X, Y)]), epochs=2, **LABELS)
    assert cast(Any, caught.value).trained.history["loss"]

    def ends_early() -> Any:
        yield from ((X, Y), (X, Y), (X, Y))
        raise ValueError("no such file")

    with pytest.raises(ValueError, match="no such file") as failed:
        fit(Network(), ends_early(), **LABELS)
    assert cast(Any, failed.value).trained.history["loss"]
    with pytest.raises(rlx.Error, match=r"x of batch 2 of data is f32.batch, 4., and that of the first batch"):
        fit(Network(), [(X, Y), (X[:, :4], Y)], **LABELS)


class FixedSize(rlx.nn.Module):
    def __init__(self) -> None:
        self.layer = rlx.nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Any) -> Any:
        return self.layer(x) + np.zeros((x.shape[0], CLASSES), np.float32)


def test_a_forward_that_needs_a_fixed_number_of_samples_is_an_error() -> None:
    with pytest.raises(
        rlx.Error, match=r"FixedSize.forward needs a fixed number of samples, and it is the symbol 'batch'"
    ):
        fit(FixedSize(), (X, Y), **LABELS)


def test_an_infinite_loss_ends_the_training() -> None:
    with pytest.raises(
        rlx.Error, match=r"the loss is (nan|inf) at step \d+ \(epoch \d+\), and the numbers of this batch are finite"
    ):
        fit(Network(2), (X, 1e19 * X[:, :2]), epochs=30, **{**LABELS, "loss": "mse", "optimizer": SGD(1e18)})


def test_the_learning_rate_finder_takes_the_steps_of_its_schedule() -> None:
    options: Any = {**LABELS, "shuffle": False, "drop_last": True}
    found = rlx.train.find_learning_rate(Network(), (X, Y), start=1e-4, end=100.0, num_rates=40, **options)
    np.testing.assert_allclose(np.diff(np.log(found.rates)), np.log(1e6) / 39, rtol=1e-6)
    model = Network()
    g: Any = rlx.Graph()
    x, y = g.input("x", (8, FEATURES)), g.input("y", (8,), "i32")
    g.set_outputs([g.mean(g.softmax_cross_entropy_with_logits(model(x, training=True), y))])
    step = TrainStep(g, SGD(rlx.train.exponential(1e-4, 39, 1e6)), params=model.init(0), device="xla")
    expected = [step({"x": X[i : i + 8], "y": Y[i : i + 8]})["loss"] for i in [0, 8] * 20][: len(found.losses)]
    np.testing.assert_allclose(found.losses, expected, rtol=1e-4)
    assert 1e-3 < found.suggestion < found.rates[int(np.argmin(found.smoothed))] < 100
    wrong: Any = {"lss": "mse"}
    with pytest.raises(rlx.Error, match=r"find_learning_rate: got .* 'lss' \(did you mean 'loss'"):
        rlx.train.find_learning_rate(Network(), (X, Y), **wrong)


def test_a_checkpoint_with_a_negative_position_is_refused(tmp_path: Path) -> None:
    path, damaged = tmp_path / "c.safetensors", tmp_path / "d.safetensors"
    fit(Network(), (X, Y), checkpoint=path, **LABELS)
    tensors = load_file(path)
    tensors["train/position"][:] = -3
    with safe_open(path, "np") as file:
        save_file(tensors, damaged, file.metadata())
    with pytest.raises(rlx.Error, match=r"'train/position' is \[-3, -3, -3\], with a negative number"):
        fit(Network(), (X, Y), checkpoint=damaged, resume=True, epochs=2, **LABELS)

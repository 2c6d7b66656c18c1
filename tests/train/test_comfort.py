"""Validation, patience, the best parameters, resuming, groups, masks, averages, and files of logs."""

from __future__ import annotations

import csv
import importlib
import struct
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from safetensors.numpy import load_file

import rlx
from rlx.train import SGD, Adam, AdamW, CSVLogger, TensorBoardLogger, TrainStep, checkpoint, fit
from tests.train import mlp


def step(optimizer: Any = None, **options: Any) -> TrainStep:
    return TrainStep(mlp.graph(), optimizer or SGD(0.1), device="xla", params=mlp.params(), **options)


DATA = mlp.batches(4)


def test_validation_is_the_mean_over_batches() -> None:
    trained = step()
    history = fit(trained, DATA, epochs=2, log_every=100, validation=DATA[:2])
    assert [e["step"] for e in history] == [4, 8]
    expected = [rlx.evaluate(mlp.graph(), {**b, **trained.params()})[:2] for b in DATA[:2]]
    found = [history[-1]["val_loss"], history[-1]["val_mae"]]
    np.testing.assert_allclose(found, np.mean(expected, axis=0), rtol=1e-5)
    assert "val_predicted" not in history[-1]
    assert "val_loss" in fit(step(), DATA, validation=lambda: iter(DATA), validate_every=3)[2]


def test_patience_ends_training_and_the_best_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "best.safetensors"
    trained = step(SGD(2.0))  # too fast: the loss grows
    options: Any = {"validation": DATA, "patience": 2, "keep_best": True, "checkpoint": path}
    history = fit(trained, DATA, epochs=50, log_every=1000, **options)
    losses = [e["val_loss"] for e in history]
    best = int(np.argmin(losses))
    assert len(losses) == best + 3 < 50 and min(losses) < losses[-1]
    assert trained.evaluate(DATA)["loss"] == pytest.approx(losses[best], rel=1e-6)
    assert trained.num_updates == 4 * (best + 1)
    again = step(SGD(2.0))
    again.load(path)
    assert again.evaluate(DATA)["loss"] == pytest.approx(losses[best], rel=1e-6)


@pytest.mark.parametrize("first", [3, 4, 6])
def test_a_resumed_training_is_the_same_to_the_bit(tmp_path: Path, first: int) -> None:
    path = tmp_path / "c.safetensors"

    def shuffled(epoch: int) -> Any:
        return [DATA[i] for i in np.random.default_rng(epoch).permutation(4)]

    whole = fit(step(AdamW(0.01)), shuffled, epochs=3)
    begun = fit(step(AdamW(0.01)), shuffled, epochs=3, steps=first, checkpoint=path, resume=True)
    resumed = step(AdamW(0.01))
    rest = fit(resumed, shuffled, epochs=3, checkpoint=path, resume=True)
    assert [e["step"] for e in begun + rest] == list(range(1, 13))
    assert [e["loss"] for e in begun + rest] == [e["loss"] for e in whole]
    assert fit(step(AdamW(0.01)), shuffled, epochs=3, checkpoint=path, resume=True) == []


def test_groups_and_masks() -> None:
    (batch,) = DATA[:1]
    start = mlp.params()
    plain, decayed = step(AdamW(0.1, weight_decay=0.0)), step(AdamW(0.1, weight_decay=0.5))
    masked = step(AdamW(0.1, weight_decay=0.5), weight_decay_mask=["w*"])
    by_shape = step(AdamW(0.1, weight_decay=0.5), weight_decay_mask=lambda name, shape: shape.rank > 1)
    groups = step(
        AdamW(0.1), groups={"w1": {"learning_rate": 0.0}, "w*": {"weight_decay": 0.5}, "b1": {"weight_decay": 0.0}}
    )
    for each in (plain, decayed, masked, by_shape, groups):
        each(batch)
    for other in (masked, by_shape):
        np.testing.assert_array_equal(other.params()["b1"], plain.params()["b1"])
        np.testing.assert_array_equal(other.params()["w1"], decayed.params()["w1"])
    assert not np.array_equal(plain.params()["w1"], decayed.params()["w1"])
    np.testing.assert_array_equal(groups.params()["w1"], start["w1"])
    np.testing.assert_array_equal(groups.params()["w2"], decayed.params()["w2"])
    np.testing.assert_array_equal(groups.params()["b1"], plain.params()["b1"])


def test_moving_averages(tmp_path: Path) -> None:
    averaged = step(ema=0.75)
    expected = mlp.params()
    for batch in DATA:
        averaged(batch)
        expected = {n: 0.75 * expected[n] + 0.25 * p for n, p in averaged.params().items()}
    for name, mean in averaged.ema_params().items():
        np.testing.assert_allclose(mean, expected[name], rtol=1e-5, atol=1e-7)
    losses = [rlx.evaluate(mlp.graph(), {**b, **expected})[0] for b in DATA]
    assert averaged.evaluate(DATA)["loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    averaged.save(tmp_path / "a.safetensors")
    other = TrainStep(mlp.graph(), SGD(0.1), device="xla", ema=0.75)
    other.load(tmp_path / "a.safetensors")
    np.testing.assert_array_equal(other.ema_params()["w1"], averaged.ema_params()["w1"])


@pytest.mark.parametrize("narrow", [False, True])
def test_a_checkpoint_is_a_file_of_the_moving_averages(narrow: bool, tmp_path: Path) -> None:
    """Its weights are those that `evaluate` uses, and training continues from it to the bit."""
    path, kind = tmp_path / "a.safetensors", np.float16 if narrow else np.float32
    dtype = np.dtype(kind).name.replace("loat", "")
    g = rlx.Graph()
    g.set_outputs({"loss": g.mean(g.square(g.cast(g.param("w", (3,), dtype) * g.input("x", (3,), dtype), "f32")))})
    start, batch = {"w": np.array([1.0, -2.0, 3.0], kind)}, {"x": np.array([0.5, 1.0, 0.25], kind)}
    first, second = (TrainStep(g, Adam(0.1), params=start, device="xla", ema=0.75) for _ in range(2))
    first(batch)
    first.save(path)
    averages = first.ema_params()["w"]
    assert not np.array_equal(averages, first.params()["w"])
    np.testing.assert_array_equal(load_file(path)["w"], averages)
    assert rlx.Session("xla").compile(g, params=path).run(batch)[0] == pytest.approx(first.evaluate([batch])["loss"])
    second.load(path)
    for name, value in first.snapshot().items():
        np.testing.assert_array_equal(second.snapshot()[name], value, err_msg=name)

    checkpoint.write(path, first.snapshot())  # the names of older files
    second.load(path)
    for name, value in first.snapshot().items():
        np.testing.assert_array_equal(second.snapshot()[name], value, err_msg=name)
    first.save(path)
    with pytest.raises(rlx.Error, match=r"(?s)'train/current/w' has no place here.*and ema; .* as params="):
        TrainStep(g, Adam(0.1), device="xla").load(path)


def records(path: Path) -> list[bytes]:
    """Return the records of a TensorFlow file: length, its checksum, content, its checksum."""
    data, found = path.read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        found.append(data[12 : 12 + length])
        data = data[16 + length :]
    return found


def test_logs(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    callbacks: Any = [CSVLogger(path, columns=("val_loss", "val_mae"))]
    pytest.importorskip("tensorboardX")
    callbacks.append(TensorBoardLogger(tmp_path / "events"))
    history = fit(step(), DATA, epochs=2, validation=DATA, callbacks=callbacks)
    fit(step(), DATA, steps=1, callbacks=[CSVLogger(path, columns=("val_loss", "val_mae"))])
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["step", "loss", "mae", "val_loss", "val_mae"] and len(rows) == 9
    assert float(rows[7]["loss"]) == history[7]["loss"] and rows[0]["val_loss"] == ""
    assert float(rows[3]["val_loss"]) == history[3]["val_loss"]
    event = importlib.import_module("tensorboardX.proto.event_pb2").Event
    (events,) = (tmp_path / "events").iterdir()
    values = [(e.step, v.tag, v.simple_value) for e in map(event.FromString, records(events)) for v in e.summary.value]
    assert [s for s, tag, _ in values if tag == "loss"] == list(range(1, 9))
    assert {s: v for s, tag, v in values if tag == "val_loss"}[8] == pytest.approx(history[7]["val_loss"], rel=1e-6)


def test_the_log_has_columns_that_come_later(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    history = fit(step(), DATA, epochs=2, validation=DATA, callbacks=[CSVLogger(path)])
    assert path.read_text().startswith("step,loss,mae,val_loss,val_mae\n1,")
    fit(step(), DATA, steps=1, callbacks=[CSVLogger(path)], on_step=lambda e: e.update({"a,b": 0.5}))
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == [*map(str, range(1, 9)), "1"]
    assert [float(row["val_mae"]) for row in rows if row["val_mae"]] == [
        e["val_mae"] for e in history if "val_mae" in e
    ]
    assert rows[-1]["a,b"] == "0.5" and rows[0]["a,b"] == "" and float(rows[3]["loss"]) == history[3]["loss"]
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")
    with pytest.raises(rlx.Error, match=r"other.csv is not a log of CSVLogger: its columns are a, b"):
        fit(step(), DATA, callbacks=[CSVLogger(other)])
    assert other.read_text() == "a,b\n1,2\n"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fit(step(), DATA, patience=2), "patience needs batches to validate with"),
        (lambda: fit(step(), DATA, resume=True), "resume needs a file"),
        (lambda: fit(step(), DATA, callbacks=cast(Any, [3])), "callbacks must be a list of functions"),
        (lambda: fit(step(), DATA, validation=cast(Any, 3)), "validation is int; expected batches"),
        (lambda: fit(step(), DATA, validation=[]), "no batch to evaluate"),
        (lambda: step(groups={"head": {}}), "no trained parameter fits 'head'; there are w1, b1, w2"),
        (
            lambda: step(groups={"w1": {"learning_rat": 1}}),
            r"SGD has no option 'learning_rat' \(did you mean 'learning_rate'",
        ),
        (lambda: step(groups=["w1"]), "groups must be a mapping"),
        (lambda: step(weight_decay_mask=["bias"]), "no trained parameter fits 'bias'"),
        (lambda: step(weight_decay_mask=lambda n, s: None), "must give True or False"),
        (lambda: step(ema=1.0), "ema"),
        (lambda: step().ema_params(), "there are no moving averages"),
    ],
)
def test_wrong_options_are_named(call: Any, message: str) -> None:
    with pytest.raises(rlx.Error, match=message):
        call()


def _with_dropout() -> tuple[Any, Any, Any]:
    """Return a model with dropout and batch normalisation: parameters, the graph for training and that for inference."""
    model = rlx.nn.Sequential(rlx.nn.Linear(3, 8), rlx.nn.BatchNorm(8), rlx.nn.Dropout(0.9), rlx.nn.Linear(8, 1))
    graphs: list[Any] = []
    for training in (True, False):
        g: Any = rlx.Graph()
        x, y = g.input("x", (8, 3)), g.input("y", (8, 1))
        found = model(x, training=True, seed=0) if training else model(x)
        g.set_outputs({"mse": g.mse_loss(found, y)})
        graphs.append(g)
    return model, *graphs


def test_validation_computes_the_graph_for_use() -> None:
    model, training, use = _with_dropout()
    random = np.random.default_rng(0)
    batch = {
        "x": random.standard_normal((8, 3)).astype(np.float32),
        "y": random.standard_normal((8, 1)).astype(np.float32),
    }
    trained = TrainStep(training, SGD(0.05), params=model.init(0), evaluation=use)
    history = fit(trained, [batch] * 5, validation=[batch])
    (expected,) = rlx.evaluate(use, {**batch, **model.params_from(trained)})
    assert history[-1]["val_loss"] == pytest.approx(float(expected), rel=1e-5)
    assert trained.evaluate([batch]) == trained.evaluate([batch])
    other: Any = rlx.Graph()
    other.set_outputs([other.sum(other.param("elsewhere", (2,)))])
    with pytest.raises(rlx.Error, match="evaluation= has 'elsewhere'"):
        TrainStep(training, SGD(0.05), evaluation=other)


@pytest.mark.parametrize("first", [5, 8, 11])
def test_a_resumed_training_knows_the_best_and_how_long_it_has_waited(tmp_path: Path, first: int) -> None:
    """If the loss grows, a resumed training ends at the same step as the whole one, and restores the same step."""

    def options(name: str) -> Any:
        return {
            "validation": DATA,
            "patience": 3,
            "keep_best": True,
            "checkpoint": tmp_path / name,
            "checkpoint_every": 1,
        }

    whole = step(SGD(2.0))
    history = fit(whole, DATA, epochs=50, log_every=1000, **options("whole"))
    begun = step(SGD(2.0))
    with pytest.raises(KeyboardInterrupt):
        fit(begun, DATA, epochs=50, log_every=1000, callbacks=[lambda e: _stop(e, first)], **options("left"))
    resumed = step(SGD(2.0))
    rest = fit(resumed, DATA, epochs=50, log_every=1000, resume=True, **options("left"))
    assert rest[-1]["step"] == history[-1]["step"]
    np.testing.assert_array_equal(resumed.params()["w1"], whole.params()["w1"])
    assert fit(resumed, DATA, epochs=50, resume=True, **options("left")) == []


def _stop(entry: dict[str, Any], number: int) -> None:
    if entry["step"] == number:
        raise KeyboardInterrupt

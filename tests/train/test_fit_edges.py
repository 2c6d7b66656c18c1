"""`fit` and its results for unusual data: labels, sizes, containers, functions of epochs, interrupts, and old files."""

from __future__ import annotations

import functools
import math
import signal
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.train.learning_rates import LearningRateSearch, _losses
from rlx.train.loop import epoch_of

fit: Any = rlx.train.fit  # wrong arguments too
QUIET: Any = {"progress": False, "device": "xla"}
X = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)
Y = np.array([0, 1, 2, 3, 0, 1], np.int32)
Pair = namedtuple("Pair", ["mean", "var"])


class Several(rlx.nn.Module):
    """A layer with outputs in a container."""

    def __init__(self, form: Any):
        self.layer, self.form = rlx.nn.Linear(3, 2), form

    def forward(self, x: rlx.Tensor) -> Any:
        return self.form(self.layer(x))


@pytest.fixture(scope="module")
def trained() -> Any:
    return fit(rlx.nn.Linear(3, 4), (X, Y), loss="cross_entropy", batch_size=4, **QUIET)


@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda *_: None, signal.default_int_handler])
def test_an_error_of_the_data_is_raised_with_any_handler_of_interrupts(handler: Any) -> None:
    def batches() -> Iterator[Any]:
        yield X, Y
        raise ValueError("of the data")

    before = signal.signal(signal.SIGINT, handler)
    try:
        with pytest.raises(ValueError, match="of the data"):
            fit(rlx.nn.Linear(3, 4), batches, loss="cross_entropy", **QUIET)
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("label", [-1, 4, 7])
def test_a_confusion_matrix_refuses_labels_of_no_class(trained: Any, label: int) -> None:
    with pytest.raises(rlx.Error, match=f"label {label} at 2"):
        trained.confusion_matrix((X, np.array([0, 1, label, 3, 0, 1])))


def test_a_confusion_matrix_takes_labels_as_evaluate_does(trained: Any) -> None:
    expected = trained.confusion_matrix((X, Y)).counts
    assert expected.sum() == 6
    for labels in (Y.astype(np.float32), Y[:, None], Y.astype(np.int64)):
        np.testing.assert_array_equal(trained.confusion_matrix((X, labels)).counts, expected)
    with pytest.raises(rlx.Error, match="y of a batch is"):
        trained.confusion_matrix((X, Y + np.float32(0.5)))


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_nan_in_data_for_validation_and_evaluation_is_found(trained: Any, number: float) -> None:
    """The position is that in the array, also if the samples are validated in batches."""
    wrong = X.copy()
    wrong[5, 1] = number
    options: Any = {"loss": "cross_entropy", "batch_size": 4, "epochs": 3, "keep_best": True, "patience": 2, **QUIET}
    place = rf"the loss of the evaluation is (nan|inf): 'x' of VALUE has {number} at \[5, 1\]"
    with pytest.raises(rlx.Error, match=place.replace("VALUE", "validation")) as caught:
        fit(rlx.nn.Linear(3, 4), (X, Y), validation=(wrong, Y), **options)
    assert caught.value.hint == "clean the data" and len(caught.value.trained.history) == 1  # type: ignore[attr-defined]
    with pytest.raises(rlx.Error, match=place.replace("VALUE", "data")):
        trained.evaluate((wrong, Y))
    with pytest.raises(rlx.Error, match=r"'x' of batch 2 of data has (nan|inf) at \[3, 1\]"):
        trained.evaluate([(X, Y), (wrong[2:], Y[2:])])
    assert not np.isfinite(trained.predict(wrong)[5]).all() and np.isfinite(trained.predict(wrong)[:5]).all()


def test_a_model_that_replaces_nan_takes_it() -> None:
    class Masked(rlx.nn.Module):
        def __init__(self) -> None:
            self.layer = rlx.nn.Linear(3, 4)

        def forward(self, x: rlx.Tensor) -> Any:
            return self.layer(rlx.ops.where(rlx.ops.isnan(x), 0.0, x))

    wrong = X.copy()
    wrong[5, 1] = math.nan
    found = fit(Masked(), (wrong, Y), validation=(wrong, Y), loss="cross_entropy", batch_size=6, **QUIET)
    assert math.isfinite(found.history[0]["val_loss"])


def test_labels_out_of_range_are_found_in_the_data(trained: Any) -> None:
    with pytest.raises(rlx.Error, match="y of data: label 7 at 5"):
        trained.evaluate((X, np.array([0, 1, 2, 3, 0, 7])))


@pytest.mark.parametrize("size", [-1, 0, 2.5, True, "4"])
def test_a_wrong_batch_size_is_refused(trained: Any, size: Any) -> None:
    for call in (lambda: trained.predict(X, batch_size=size), lambda: trained.evaluate((X, Y), batch_size=size)):
        with pytest.raises(rlx.Error, match="batch_size must be an integer of at least 1"):
            call()


def test_data_without_inputs_is_refused(trained: Any) -> None:
    model = rlx.nn.Linear(3, 4)
    for call in (
        lambda: trained.predict({}),
        lambda: fit(model, {"y": Y}, loss="cross_entropy", **QUIET),
        lambda: fit(model, ({}, Y), loss="cross_entropy", **QUIET),
        lambda: fit(model, [{"y": Y}], loss="cross_entropy", **QUIET),
    ):
        with pytest.raises(rlx.Error, match=r"has no inputs[\s\S]*Linear.forward are x"):
            call()


@pytest.mark.parametrize(
    "form",
    [
        lambda t: {"output_mean": t, "output_var": t * 2.0},
        lambda t: {"output": t},
        lambda t: [t, t * 2.0],
        lambda t: [t],
        lambda t: (t, t * 2.0),
        lambda t: Pair(t, t * 2.0),
    ],
)
def test_predictions_have_the_container_of_forward(form: Any) -> None:
    def loss(outputs: Any, y: Any) -> Any:
        first = next(iter(outputs.values())) if isinstance(outputs, dict) else outputs[0]
        return rlx.ops.mean((first - y) * (first - y))

    found = fit(Several(form), (X, X[:, :2]), loss=loss, **QUIET).predict(X)
    expected = form(np.zeros((6, 2), np.float32))
    assert type(found) is type(expected) and len(found) == len(expected)
    if isinstance(found, dict):
        assert list(found) == list(expected)
    values = list(found.values()) if isinstance(found, dict) else list(found)
    for factor, value in enumerate(values, 1):
        np.testing.assert_allclose(value, factor * values[0], rtol=1e-6)


def test_a_search_takes_negative_losses() -> None:
    class Step:
        def __init__(self, losses: list[float]):
            self._losses = iter(losses)

        def __call__(self, batch: Any) -> dict[str, float]:
            return {"loss": next(self._losses)}

    def found(*losses: float) -> list[float]:
        step: Any = Step([*losses, math.inf])
        data: Any = lambda epoch: iter([{}] * 20)  # noqa: E731
        return _losses(step, data, 20)

    assert found(-0.5, -0.6, -0.7, -0.6, 3.0) == [-0.5, -0.6, -0.7, -0.6]
    assert found(1.0, 0.1, -0.01, 0.1, 5.0) == [1.0, 0.1, -0.01, 0.1]
    assert found(2.0, 1.0, 3.9, 4.1, 1.0) == [2.0, 1.0, 3.9]


def test_a_search_without_a_decrease_is_drawn_without_a_suggestion() -> None:
    pytest.importorskip("matplotlib")
    place = LearningRateSearch([0.1, 0.2, 0.4], [1.0, 2.0, 3.0]).plot().axes[0]
    assert [line.get_label() for line in place.lines] == ["loss of a batch", "smoothed"]
    assert len(LearningRateSearch([0.1, 0.2, 0.4], [3.0, 2.0, 1.0]).plot().axes[0].lines) == 3


def test_the_best_state_of_an_earlier_training_is_not_used(tmp_path: Path) -> None:
    path, best = tmp_path / "c.safetensors", tmp_path / "c.safetensors.best"
    options: Any = {"loss": "mse", "keep_best": True, "checkpoint": path, "batch_size": 6, **QUIET}
    model, y = rlx.nn.Linear(3, 1), X[:, :1]
    fit(model, (X, y), validation=(X, y), **options)
    assert best.exists()
    never = (X, np.full_like(y, 1e30))  # the loss is infinite: no validation is the best
    later = fit(model, (X, y), validation=never, epochs=2, seed=5, **options)
    alone = fit(model, (X, y), epochs=2, seed=5, **{**options, "keep_best": False, "checkpoint": None})
    for name, value in alone.params.items():
        np.testing.assert_array_equal(later.params[name], value)
    assert not best.exists()


def test_functions_get_the_epoch() -> None:
    def default(epoch: int = 0) -> Any:
        return [{"epoch": epoch}]

    def after(size: int = 3, *, epoch: int = 0) -> Any:
        return [{"epoch": epoch, "size": size}]

    def other(number: int) -> Any:
        return [{"epoch": number}]

    for function in (default, other, lambda epoch: [{"epoch": epoch}], functools.partial(after, 3)):
        assert next(iter(epoch_of(function, 7, "data")))["epoch"] == 7
    assert list(epoch_of(after, 7, "data")) == [{"epoch": 7, "size": 3}]
    assert list(epoch_of(functools.partial(default, epoch=2), 7, "data")) == [{"epoch": 2}]
    assert list(epoch_of(lambda size=3: [{"size": size}], 7, "data")) == [{"size": 3}]


def test_an_iterable_that_can_be_called_is_an_iterable() -> None:
    class Loader:
        def __iter__(self) -> Iterator[Any]:
            return iter([(X, Y)])

        def __call__(self, sample: Any) -> Any:
            raise AssertionError("not called")

    first: Any = next(iter(epoch_of(Loader(), 0, "data")))
    assert first[0] is X
    assert len(fit(rlx.nn.Linear(3, 4), Loader(), loss="cross_entropy", epochs=2, **QUIET).history) == 2


def test_a_step_takes_lists(trained: Any) -> None:
    step = trained.step
    step.restore(state := step.snapshot())
    expected = step({"x": X[:3], "y": Y[:3]})
    step.restore(state)
    assert step({"x": X[:3].tolist(), "y": Y[:3].tolist()}) == expected
    assert step.sums["samples"] == 3
    whole = step.evaluate([{"x": X[:4], "y": Y[:4]}, {"x": X[4:5], "y": Y[4:5]}])
    lists = step.evaluate([{"x": X[:4].tolist(), "y": Y[:4].tolist()}, {"x": X[4:5].tolist(), "y": Y[4:5].tolist()}])
    assert lists == whole
    with pytest.raises(rlx.Error, match=r"'x' of this batch has nan at \[0, 0\]"):
        step({"x": [[math.nan, 0.0, 0.0]], "y": [1]})
    step.restore(state)

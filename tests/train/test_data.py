"""Forms of the data of `fit` and of a trained model, which name their arrays differently."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.train.data import IterableData, data_of

fit: Any = rlx.train.fit
X = np.random.default_rng(0).standard_normal((22, 5)).astype(np.float32)
Y = X[:, :3].argmax(1).astype(np.int32)


class OneInput(rlx.nn.Module):
    def __init__(self) -> None:
        self.layer = rlx.nn.Linear(5, 3)

    def forward(self, x: rlx.Tensor) -> rlx.Tensor:
        return self.layer(x)


class TwoInputs(rlx.nn.Module):
    def forward(self, left: rlx.Tensor, right: rlx.Tensor) -> rlx.Tensor:
        return left + right


def test_one_input_may_have_any_name() -> None:
    """The training, other data and inputs for predictions may be named or not, each in its own way."""
    options: Any = {"loss": "cross_entropy", "batch_size": 8, "shuffle": False, "progress": False, "device": "xla"}
    forms: list[Any] = [(X, Y), {"x": X, "y": Y}, {"image": X, "label": Y}, [{"image": X, "label": Y}]]
    first, *others = (fit(OneInput(), data, validation=forms[3 - i], **options) for i, data in enumerate(forms[:3]))
    for other in others:
        assert other.history["loss"] == first.history["loss"]
        assert other.history["val_loss"] == pytest.approx(first.history["val_loss"])
        for data in forms:
            assert other.evaluate(data) == pytest.approx(first.evaluate((X, Y)))
        np.testing.assert_array_equal(other.confusion_matrix(forms[1]).counts, first.confusion_matrix((X, Y)).counts)
        for x in (X, {"x": X}, {"image": X}):
            np.testing.assert_array_equal(other.predict(x), first.predict(X))
    with pytest.raises(rlx.Error, match="data has the arrays x, y0, y1; the training data has x, y"):
        first.evaluate((X, (Y, Y)))


def test_named_arrays_of_later_batches_may_have_another_order() -> None:
    low, high = np.zeros((2, 5), np.float32), np.ones((2, 5), np.float32)
    batches = [
        ({"left": low, "right": high}, {"low": low, "high": high}),
        ({"right": high, "left": low}, {"high": high, "low": low}),
    ]
    data, _ = data_of(batches, TwoInputs(), "data", 2)
    assert isinstance(data, IterableData)
    for batch in data(0):
        for name, expected in (("left", low), ("right", high), ("low", low), ("high", high)):
            np.testing.assert_array_equal(batch[name], expected, err_msg=name)


@pytest.mark.parametrize(
    ("model", "data", "message"),
    [
        (OneInput(), [(X, Y), ((X, X), Y)], "batch 2 of data has 2 inputs; expected x"),
        (OneInput(), [(X, (Y, Y)), (X, (Y, Y, Y))], "batch 2 of data has 3 targets; expected y0, y1"),
        (OneInput(), [(X, {"a": Y}), (X, {"b": Y})], "batch 2 of data has the targets b; expected a"),
        (OneInput(), ([[1.0, 2.0], [3.0]], [0, 1]), "x of data: the list is no array of numbers"),
        (
            TwoInputs(),
            [((X, X), Y), ({"left": X, "up": X}, Y)],
            "batch 2 of data has the inputs left, up; expected left",
        ),
    ],
)
def test_errors_name_the_arrays(model: Any, data: Any, message: str) -> None:
    with pytest.raises(rlx.Error, match=message):
        list(data_of(data, model, "data", 8)[0](0))

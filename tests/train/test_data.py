"""Forms of the data of `fit` and of a trained model, which name their arrays differently."""

from __future__ import annotations

from collections.abc import Iterator
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


def values_of(data: Any, epochs: int, begin: int = 0, **options: Any) -> list[list[float]]:
    """Return the first value of each batch, by epoch."""
    batches, _ = data_of(data, OneInput(), "data", 2, **options)
    return [[float(batch["x"][0, 0]) for batch in batches(epoch)] for epoch in range(begin, epochs)]


def batches_of(count: int) -> list[Any]:
    return [(np.full((2, 5), i, np.float32), np.zeros(2, np.int32)) for i in range(count)]


class Unsized:
    """An iterable without `len`."""

    def __iter__(self) -> Iterator[Any]:
        return iter(batches_of(5))


@pytest.mark.parametrize("begin", [0, 1, 3])
@pytest.mark.parametrize("steps", [1, 3, 5, 7, 12])
def test_an_epoch_of_given_steps_continues_the_data(steps: int, begin: int) -> None:
    """Also where a training is resumed, whose first epoch is not epoch 0."""
    expected = [[float(i % 5) for i in range(e * steps, (e + 1) * steps)] for e in range(begin, 6)]
    arrays = tuple(np.concatenate(parts) for parts in zip(*batches_of(5), strict=True))
    for data in (batches_of(5), Unsized(), arrays):
        assert values_of(data, 6, begin, steps_per_epoch=steps) == expected
    shuffled = values_of(arrays, 5, shuffle=True)
    continued = values_of(arrays, 6, begin, shuffle=True, steps_per_epoch=steps)
    whole = [value for epoch in values_of(arrays, 6 * steps, shuffle=True) for value in epoch]
    assert shuffled[0] != shuffled[1] and [v for e in continued for v in e] == whole[begin * steps : 6 * steps]


def test_fewer_batches_than_the_steps_of_an_epoch_are_an_error() -> None:
    options: Any = {"loss": "cross_entropy", "progress": False, "device": "xla", "steps_per_epoch": 3, "epochs": 2}
    for count, epoch, found in ((2, 1, 2), (3, 2, 0), (5, 2, 2)):
        message = rf"data is an iterator, which ended after {count} batches: epoch {epoch} has {found} of 3 batches"
        with pytest.raises(rlx.Error, match=message + r" \(steps_per_epoch=3\)"):
            fit(OneInput(), iter(batches_of(count)), **options)
    message = r"the function of data returned 2 batches for epoch 2; expected 3 \(steps_per_epoch=3\)"
    with pytest.raises(rlx.Error, match=message) as raised:
        fit(OneInput(), lambda epoch: batches_of(3 - epoch), **options)
    assert raised.value.trained.history[0]["step"] == 3  # type: ignore[attr-defined]
    assert fit(OneInput(), (X, Y), batch_size=8, **options).history[-1]["step"] == 6

    class Exhausted:
        batches = iter(batches_of(2))

        def __iter__(self) -> Iterator[Any]:
            return self.batches

    with pytest.raises(rlx.Error, match="data has no batch when it is read again"):
        fit(OneInput(), Exhausted(), **options)
    with pytest.raises(rlx.Error, match="epoch 2 has no batch"):
        rlx.train.find_learning_rate(OneInput(), lambda e: batches_of(2) if e == 0 else [], loss="cross_entropy")


def test_errors_name_the_position_in_the_data() -> None:
    """Also if the samples are shuffled, or if a share of them is used."""
    options: Any = {"loss": "cross_entropy", "batch_size": 8, "progress": False, "device": "xla"}
    wrong, labels = X.copy(), np.where(np.arange(22) == 20, 3, Y)
    wrong[17, 2] = np.nan
    cases: list[tuple[Any, dict[str, Any], str]] = [
        ((wrong, Y), {}, r"'x' of data has nan at \[17, 2\]"),
        ((wrong, Y), {"validation": 0.5}, r"'x' of data has nan at \[17, 2\]"),
        (
            [(X[:8], Y[:8]), (wrong[8:], Y[8:])],
            {},
            r"the loss is nan at step 2 .*: 'x' of batch 2 of data has nan at \[9, 2\]",
        ),
        ((X, labels), {"validation": 0.5}, "y of data: label 3 at 20"),
    ]
    for data, more, message in cases:
        with pytest.raises(rlx.Error, match=message):
            fit(OneInput(), data, **more, **options)

"""Losses against their formulas in f80, and against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlx.ir.dtype import dtype
from rlx.support.errors import ShapeError
from tests.ops.references import FLOATS, INTEGERS, agree, decomposed, random, run, samples_of

NAN, INF = np.nan, np.inf


def _wide(function: Callable[..., Any], *arrays: np.ndarray) -> np.ndarray:
    """Apply a function of f80 numbers, and return its result in the dtype of the first array."""
    with np.errstate(all="ignore"):
        return np.asarray(function(*(a.astype(np.longdouble) for a in arrays))).astype(arrays[0].dtype)


# --- cross entropy of classes -----------------------------------------------------------------------


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("dims", [(7,), (2, 3), ()])
def test_softmax_cross_entropy(dims: tuple[int, ...], name: str) -> None:
    logits = random(name, (*dims, 11), low=-30, high=30)
    labels = np.random.default_rng(0).integers(0, 11, dims)
    got = run("softmax_cross_entropy_with_logits", logits, labels)
    wide = logits.astype(np.longdouble)
    expected = np.log(np.exp(wide - np.take_along_axis(wide, labels[..., None], -1)).sum(-1)).astype(logits.dtype)
    agree(got, np.asarray(expected), factor=0.5)


@pytest.mark.parametrize("name", INTEGERS)
def test_labels_out_of_range_lose_nothing(name: str) -> None:
    kind = dtype(name)
    labels = np.array([0, 4, 5, 127, *([-1, -5] if kind.is_signed else [200]), kind.min, kind.max], object).astype(
        kind.numpy
    )
    logits = random("f32", (len(labels), 5))
    for evaluated in (run, decomposed):
        got = evaluated("softmax_cross_entropy_with_logits", logits, labels)
        inside = (labels >= 0) & (labels < 5)
        chosen = np.where(inside, labels, 0).astype(np.int64)
        wide = logits.astype(np.float64)
        loss = np.log(np.exp(wide).sum(-1)) - wide[np.arange(len(labels)), chosen]
        agree(got, np.where(inside, loss, 0).astype(np.float32), noise=np.full(len(labels), 1e-7))


def test_labels_beyond_32_bits_are_out_of_range() -> None:
    labels = np.array([2**32 + 1, 2**63 - 1, -(2**32) + 2, 1])
    for evaluated in (run, decomposed):
        got = evaluated("softmax_cross_entropy_with_logits", random("f32", (4, 5)), labels)
        assert (got[:3] == 0).all() and got[3] > 0


def test_softmax_cross_entropy_of_special_values() -> None:
    logits = np.array(
        [[1000, 0, -1000], [3e38, -3e38, 0], [-INF, 0, 1], [NAN, 0, 1], [-INF] * 3, [0, 1, 2]], np.float32
    )
    labels = np.array([2, 0, 0, 1, 1, 7])
    expected = np.array([2000, 0, INF, NAN, NAN, 0], np.float32)
    for evaluated in (run, decomposed):
        agree(evaluated("softmax_cross_entropy_with_logits", logits, labels), expected)
    # Rows with NaN or without a finite logit are also ignored if their label is.
    ignored = run("softmax_cross_entropy_with_logits", logits, np.full(6, -1))
    assert (ignored == 0).all()


# --- elementwise losses -----------------------------------------------------------------------------

_ELEMENTS: list[tuple[str, dict[str, Any], Callable[..., Any]]] = [
    ("mse_loss", {}, lambda x, y: (x - y) ** 2),
    ("huber_loss", {"delta": 1.0}, lambda x, y: _huber(x, y, 1.0)),
    ("huber_loss", {"delta": 0.25}, lambda x, y: _huber(x, y, 0.25)),
    ("binary_cross_entropy_with_logits", {}, lambda x, y: _binary_cross_entropy(x, y)),
]
_REDUCED: dict[str, Callable[[np.ndarray], Any]] = {"none": lambda x: x, "mean": np.mean, "sum": np.sum}


def _huber(x: np.ndarray, y: np.ndarray, delta: float) -> np.ndarray:
    distance = np.abs(x - y)
    return np.where(distance > delta, delta * (distance - delta / 2), distance * distance / 2)


def _binary_cross_entropy(logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """`-t·log(sigmoid(x)) - (1 - t)·log(sigmoid(-x))`. PyTorch's own has half of the digits for large x."""
    losses = targets * np.logaddexp(0, -logits) + (1 - targets) * np.logaddexp(0, logits)
    undefined = (logits == np.inf) | (logits == -np.inf) & (targets == 0)  # inf - inf, or inf·0, in the formula
    return np.where(undefined, np.nan, losses)


_IDS = [f"{name}-{i}" for i, (name, _, _) in enumerate(_ELEMENTS)]


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize(("op", "attributes", "reference"), _ELEMENTS, ids=_IDS)
def test_losses_of_elements(
    op: str, attributes: dict[str, Any], reference: Callable[..., Any], reduction: str, name: str
) -> None:
    x, y = random(name, (6, 15), seed=1), random(name, (6, 15), low=0, high=1, seed=2)
    got = run(op, x, y, reduction=reduction, **attributes)
    assert got.shape == ((6, 15) if reduction == "none" else ())
    room = np.finfo(np.float64).eps * 10  # for x - x·t, which may cancel
    expected = _wide(lambda a, b: _REDUCED[reduction](reference(a, b)), x, y)
    agree(got, expected, factor=0.5, noise=np.full(got.shape, room))


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize(("op", "attributes", "reference"), _ELEMENTS, ids=_IDS)
def test_losses_of_special_values(
    op: str, attributes: dict[str, Any], reference: Callable[..., Any], name: str
) -> None:
    special_values = samples_of(name, 0)
    x = np.repeat(special_values, 3)
    y = np.tile(np.array([0, 1, 0.5]).astype(x.dtype), len(special_values))
    got = run(op, x, y, reduction="none", **attributes)
    agree(got, _wide(reference, x, y))


@pytest.mark.parametrize("op", ["mse_loss", "huber_loss", "binary_cross_entropy_with_logits"])
def test_reductions_of_nothing(op: str) -> None:
    x = np.zeros((0, 3), np.float32)
    assert np.isnan(run(op, x, x, reduction="mean"))
    assert run(op, x, x, reduction="sum") == 0
    assert run(op, x, x, reduction="none").shape == (0, 3)


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_small_binary_cross_entropies_keep_their_digits(name: str) -> None:
    """For a confident and correct prediction, `log(1 + exp(-x))` is `exp(-x)`, far below the added 1."""
    x = np.linspace(1, 80, 200).astype(dtype(name).numpy)
    x = np.concatenate([x, -x])
    target = (x > 0).astype(x.dtype)
    exact = np.log1p(np.exp(-np.abs(x.astype(np.longdouble)))).astype(x.dtype)
    for evaluated in (run, decomposed):
        got = evaluated("binary_cross_entropy_with_logits", x, target, reduction="none")
        assert (np.abs(got - exact) <= 4 * np.finfo(x.dtype).eps * exact).all()


def test_a_mean_of_narrow_numbers_does_not_overflow() -> None:
    x = np.full((3000,), 250, np.float16)
    for evaluated in (run, decomposed):
        assert evaluated("mse_loss", x, np.zeros_like(x), reduction="mean") == np.float16(62500)


def test_what_does_not_fit_is_refused() -> None:
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(ShapeError, match="one shape"):
        run("mse_loss", x, x[0])
    with pytest.raises(ShapeError, match="dtype"):
        run("mse_loss", x, x.astype(np.float64))
    for delta in (0.0, -1.0, NAN, INF):
        with pytest.raises(ShapeError, match="delta"):
            run("huber_loss", x, x, delta=delta)
    with pytest.raises(ShapeError, match="labels"):
        run("softmax_cross_entropy_with_logits", x, np.zeros(3, np.int32))
    with pytest.raises(ShapeError, match="no classes"):
        run("softmax_cross_entropy_with_logits", x[:, :0], np.zeros(2, np.int32))

"""Losses with weights, ignored labels, soft labels and other options, against formulas in wider arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special

import rlx
from tests.functions.test_spectral import built

RANDOM = np.random.default_rng(2)
X = (3 * RANDOM.standard_normal((6, 5, 3))).astype(np.float32)
LABELS = RANDOM.integers(0, 5, (6, 3)).astype(np.int32)
SOFT = RANDOM.dirichlet(np.ones(5), (6, 3)).transpose(0, 2, 1).astype(np.float32)
WEIGHT = RANDOM.uniform(0.2, 3, 5).astype(np.float32)
P, T = (RANDOM.uniform(0, 1, (4, 5)).astype(np.float32) for _ in range(2))
A, B, C = (RANDOM.standard_normal((4, 6)).astype(np.float32) for _ in range(3))
SIGN = np.array([1, -1, 1, -1], np.float32)


def of_labels(x: Any, labels: Any, weight: Any = None, ignored: int = -100, smoothing: float = 0.0) -> tuple[Any, Any]:
    """Compute each loss and its weight, in loops."""
    x, weight = np.moveaxis(x.astype(np.float64), 1, -1), np.ones(x.shape[1]) if weight is None else weight
    logs = x - special.logsumexp(x, -1, keepdims=True)
    losses, shares = np.zeros(labels.shape), np.zeros(labels.shape)
    for at in np.ndindex(*labels.shape):
        label = labels[at]
        if label == ignored or not 0 <= label < x.shape[-1]:
            continue
        shares[at] = weight[label]
        losses[at] = -(1 - smoothing) * weight[label] * logs[at][label] - smoothing * (weight * logs[at]).mean()
    return losses, shares


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_labels(reduction: str) -> None:
    some = LABELS.copy()
    some[0], some[1, 0], some[2, 1] = -100, 5, -1
    cases: list[dict[str, Any]] = [
        {},
        {"weight": WEIGHT},
        {"label_smoothing": 0.2},
        {"weight": WEIGHT, "label_smoothing": 0.1},
    ]
    for options in cases:
        for labels, ignored in ((LABELS, -100), (LABELS, 2), (some, -100)):
            losses, shares = of_labels(X, labels, options.get("weight"), ignored, options.get("label_smoothing", 0.0))
            expected = {"mean": losses.sum() / shares.sum(), "sum": losses.sum(), "none": losses}[reduction]
            given = {**options, "ignore_index": ignored, "reduction": reduction}
            (got,) = built(lambda g, x, t, o=given: g.cross_entropy(x, t, **o), X, labels)
            np.testing.assert_allclose(got, expected, rtol=2e-6, atol=1e-6)
            if "label_smoothing" in options:
                continue
            (got,) = built(lambda g, x, t, o=given: g.nll_loss(g.log_softmax(x, 1), t, **o), X, labels)
            np.testing.assert_allclose(got, expected, rtol=4e-6, atol=1e-6)


def test_probabilities_of_all_classes() -> None:
    logs = special.log_softmax(X.astype(np.float64), 1)
    smooth = SOFT * 0.9 + 0.1 / 5
    (got,) = built(lambda g, x, t: g.cross_entropy(x, t, label_smoothing=0.1), X, SOFT)
    np.testing.assert_allclose(got, -(smooth * logs).sum(1).mean(), rtol=2e-6)
    (got,) = built(lambda g, x, t: g.cross_entropy(x, t, weight=WEIGHT, reduction="none"), X, SOFT)
    np.testing.assert_allclose(got, -(SOFT * logs * WEIGHT[:, None]).sum(1), rtol=4e-6)
    certain = np.array([[-np.inf, 0.0, 0.0]], np.float32), np.array([[0.0, 0.5, 0.5]], np.float32)
    np.testing.assert_allclose(built(lambda g, x, t: g.cross_entropy(x, t), *certain)[0], np.log(2), rtol=1e-6)


def test_edges_of_cross_entropy() -> None:
    last = np.moveaxis(X, 1, -1).copy()
    (got,) = built(lambda g, x, t: g.cross_entropy(x, t, axis=-1), last, LABELS.astype(np.int64))
    losses, _ = of_labels(X, LABELS)
    np.testing.assert_allclose(got, losses.mean(), rtol=2e-6)
    (one,) = built(lambda g, x, t: g.cross_entropy(x, t), X[0, :, 0], np.asarray(LABELS[0, 0]))
    np.testing.assert_allclose(one, losses[0, 0], rtol=2e-6)
    (none,) = built(lambda g, x, t: g.cross_entropy(x, t), X, np.full_like(LABELS, -100))
    assert np.isnan(none)  # as in PyTorch: the mean of no elements
    (symbols,) = built(
        lambda g, x, t: g.cross_entropy(x, t, label_smoothing=0.3), X, LABELS, dims=[("n", "c", 3), ("n", 3)]
    )
    np.testing.assert_allclose(symbols, of_labels(X, LABELS, smoothing=0.3)[0].mean(), rtol=2e-6)
    far = np.array([[1e4, -1e4], [-1e4, 1e4]], np.float32), np.array([0, 0], np.int32)
    (large,) = built(lambda g, x, t: g.cross_entropy(x, t, reduction="none"), *far)
    np.testing.assert_array_equal(large, [0, 2e4])


def bce(p: Any, t: Any) -> Any:
    with np.errstate(all="ignore"):
        p, t = p.astype(np.float64), t.astype(np.float64)
        return -(t * np.maximum(np.log(p), -100) + (1 - t) * np.maximum(np.log1p(-p), -100))


def test_two_classes() -> None:
    hard = P.copy()
    hard[0, :4] = [0, 1, 0, 1]
    target = T.copy()
    target[0, :4] = [0, 0, 1, 1]
    (got,) = built(lambda g, p, t: g.binary_cross_entropy(p, t, weight=2.0, reduction="none"), hard, target)
    np.testing.assert_allclose(got, 2 * bce(hard, target), rtol=2e-6)
    logits, positive = A[:, :5] * 20, np.array([3, 1, 0.5, 2, 1], np.float32)
    wide = logits.astype(np.float64)
    both = T * positive * np.logaddexp(0, -wide) + (1 - T) * np.logaddexp(0, wide)
    (got,) = built(
        lambda g, x, t: g.binary_cross_entropy_with_logits(
            x, t, reduction="none", pos_weight=positive, weight=np.ones((4, 1), np.float32) * 3
        ),
        logits,
        T,
    )
    np.testing.assert_allclose(got, 3 * both, rtol=4e-6, atol=1e-6)
    (row,) = built(lambda g, x, t: g.binary_cross_entropy_with_logits(x, t[0]), logits, T)
    np.testing.assert_allclose(
        row, (T[0] * np.logaddexp(0, -wide) + (1 - T[0]) * np.logaddexp(0, wide)).mean(), rtol=2e-6
    )


def distances(x: Any, y: Any, p: float = 2.0) -> Any:
    return (np.abs(x.astype(np.float64) - y + 1e-6) ** p).sum(-1) ** (1 / p)


def cosine(x: Any, y: Any) -> Any:
    x, y = x.astype(np.float64), y.astype(np.float64)
    return (x * y).sum(-1) / np.sqrt((x * x).sum(-1) * (y * y).sum(-1))


R = T * 4
D = np.abs(A.astype(np.float64) - B)
FORMULAS: list[tuple[Any, Any, Any]] = [
    (lambda g, x, y: g.l1_loss(x, y), D.mean(), (A, B)),
    (lambda g, x, y: g.l1_loss(x, y[0]), np.abs(A.astype(np.float64) - B[0]).mean(), (A, B)),
    (lambda g, x, y: g.mse_loss(x, y[0]), ((A.astype(np.float64) - B[0]) ** 2).mean(), (A, B)),
    (lambda g, x, y: g.huber_loss(x, 0.0, delta=0.5, reduction="sum"), special.huber(0.5, A.astype(np.float64)).sum(), (A, B)),
    (lambda g, x, y: g.smooth_l1_loss(x, y, beta=0.3), (special.huber(0.3, D) / 0.3).mean(), (A, B)),
    (lambda g, x, y: g.smooth_l1_loss(x, y, beta=0), D.mean(), (A, B)),
    (
        lambda g, x, y: g.kl_div(x, y, "batchmean"),
        special.rel_entr(T, np.exp(A[:, :5].astype(np.float64))).sum() / 4,
        (A[:, :5], T),
    ),
    (lambda g, x, y: g.kl_div(x, g.log(y), "sum", log_target=True), (T * (np.log(T) - A[:, :5])).sum(), (A[:, :5], T)),
    (lambda g, x, y: g.cosine_similarity(x, y), cosine(A, B), (A, B)),
    (lambda g, x, y: g.cosine_similarity(x * 0.0, y, axis=-1), np.zeros(4), (A, B)),
    (
        lambda g, x, y: g.cosine_embedding_loss(x, y, SIGN, margin=0.1, reduction="none"),
        np.where(SIGN == 1, 1 - cosine(A, B), np.maximum(0, cosine(A, B) - 0.1)),
        (A, B),
    ),
    (lambda g, x, y: g.pairwise_distance(x, y, p=3), distances(A, B, 3), (A, B)),
    (
        lambda g, x, y, z: g.triplet_margin_loss(x, y, z, margin=0.5, swap=True, reduction="none"),
        np.maximum(0, distances(A, B) - np.minimum(distances(A, C), distances(B, C)) + 0.5),
        (A, B, C),
    ),
    (lambda g, x: g.hinge_loss(x[:, 0], SIGN), np.maximum(0, 1 - A[:, 0] * SIGN).mean(), (A,)),
    (lambda g, x: g.soft_margin_loss(x[:, 0], SIGN), np.logaddexp(0, -A[:, 0] * SIGN).mean(), (A,)),
    (lambda g, x: g.hinge_embedding_loss(x[:, 0], SIGN), np.where(SIGN == 1, A[:, 0], np.maximum(0, 1 - A[:, 0])).mean(), (A,)),
    (
        lambda g, x, y: g.margin_ranking_loss(x[:, 0], y[:, 0], SIGN, margin=0.2),
        np.maximum(0, 0.2 - SIGN * (A[:, 0] - B[:, 0])).mean(),
        (A, B),
    ),
    (lambda g, x, y: g.poisson_nll_loss(x, y), (np.exp(A.astype(np.float64)) - B * A).mean(), (A, B)),
    (
        lambda g, x, y: g.poisson_nll_loss(x, y, log_input=False, full=True),
        (P - R * np.log(P + 1e-8) + np.where(R > 1, R * np.log(R) - R + np.log(2 * np.pi * R) / 2, 0)).mean(),
        (P, R),
    ),
    (
        lambda g, x, y, v: g.gaussian_nll_loss(x, y, v, full=True),
        (np.log(np.maximum(P[:, 0:1], 1e-6)) + (A - B) ** 2 / np.maximum(P[:, 0:1], 1e-6) + np.log(2 * np.pi)).mean() / 2,
        (A, B, P[:, 0:1]),
    ),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(FORMULAS)))
def test_losses_are_their_formulas(number: int) -> None:
    call, expected, arrays = FORMULAS[number]
    (got,) = built(call, *arrays)
    assert got.shape == np.shape(expected) and got.dtype == np.float32
    np.testing.assert_allclose(got, expected, rtol=4e-6, atol=1e-6)


# Distances and targets, also other targets than 1 and -1.
Z = np.repeat(np.array([-1.5, -0.25, 0, 0.75, 1, 2.5]), 6)
TARGETS = np.tile(np.array([1, -1, 0, 0.5, -2, 3]), 6)
PAIRS = np.stack([np.ones(36), np.zeros(36)], 1), np.stack([np.cos(Z), np.sin(Z)], 1)
COSINES = np.cos(Z) / (1 + 1e-12)  # PyTorch adds 1e-12 to the squared lengths
# PyTorch's losses for targets of 1 and -1, in the words of its sources: the formula decides what other targets mean.
OF_SIGNS: dict[str, tuple[Any, np.ndarray]] = {
    "hinge_embedding_loss": (
        lambda g, **options: g.hinge_embedding_loss(Z, TARGETS, **options),
        np.where(TARGETS != 1, np.maximum(0.4 - Z, 0), 0) + np.where(TARGETS != -1, Z, 0),
    ),
    "margin_ranking_loss": (
        lambda g, **options: g.margin_ranking_loss(Z, -2 * Z, TARGETS, **options),
        np.maximum(-TARGETS * (Z + 2 * Z) + 0.4, 0),
    ),
    "hinge_loss": (
        lambda g, **options: g.hinge_loss(Z, TARGETS, **options),
        np.maximum(0.4 - Z * TARGETS, 0),
    ),
    "cosine_embedding_loss": (
        lambda g, **options: g.cosine_embedding_loss(*PAIRS, TARGETS, **options),
        np.where(TARGETS == 1, 1 - COSINES, 0) + np.where(TARGETS == -1, np.maximum(COSINES - 0.4, 0), 0),
    ),
    "soft_margin_loss": (
        lambda g, margin, **options: g.soft_margin_loss(Z, TARGETS, **options),
        np.logaddexp(0, -TARGETS * Z),
    ),
}


@pytest.mark.parametrize("name", OF_SIGNS)
def test_targets_other_than_1_and_minus_1(name: str) -> None:
    call, expected = OF_SIGNS[name]
    with rlx.eager():
        got = np.asarray(call(rlx.ops, margin=0.4, reduction="none"))
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["c64", "c128"])
@pytest.mark.parametrize("name", ["l1_loss", "smooth_l1_loss", "pairwise_distance"])
def test_distances_of_complex_numbers_are_real(name: str, kind: str) -> None:
    x, y = ((a[:, :3] + 1j * a[:, 3:]).astype(rlx.dtype(kind).numpy) for a in (A, B))
    distance = np.abs(x - y)
    expected = np.linalg.norm(distance, axis=-1) if name == "pairwise_distance" else distance.mean()
    options: dict[str, Any] = {"smooth_l1_loss": {"beta": 0}, "pairwise_distance": {"eps": 0}}.get(name, {})
    (got,) = built(lambda g, x, y: getattr(g, name)(x, y, **options), x, y)
    assert got.dtype == rlx.dtype(kind).part.numpy
    np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize("shape", [(4, 4), (3, 4, 4), (4,), (2, 3)])
def test_variances_without_the_last_axis(shape: tuple[int, ...]) -> None:
    """A variance of the shape of the predictions without the last axis is one for each row, also of a square matrix."""
    x, t = (np.random.default_rng(i).standard_normal(shape) for i in range(2))
    v = np.random.default_rng(2).uniform(0.5, 3, shape[:-1])
    wide = v[..., None]
    expected = 0.5 * (np.log(wide) + (x - t) ** 2 / wide)
    for given in (v, wide, np.broadcast_to(wide, shape)):
        (got,) = built(lambda g, x, t, v: g.gaussian_nll_loss(x, t, v, reduction="none"), x, t, given)
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


def slope(call: Any, x: np.ndarray) -> np.ndarray:
    g: Any = rlx.Graph("slope")
    g.set_outputs(call(g, g.param("x", x.shape, x.dtype)))
    return rlx.evaluate(rlx.grad(g, ["x"]), {"x": x})[-1]


def test_gradients_at_logits_of_zero() -> None:
    zeros, t = np.zeros(4, np.float32), np.array([0, 1, 0.25, 1], np.float32)
    for call in (g_of_logits, lambda g, x: g.sum(g.softplus(x)) - g.sum(x * t)):
        np.testing.assert_allclose(slope(call, zeros), 0.5 - t, atol=1e-7)
    np.testing.assert_allclose(slope(lambda g, x: g.soft_margin_loss(x, SIGN, "sum"), zeros), -SIGN / 2)


def g_of_logits(g: Any, x: Any) -> Any:
    t = np.array([0, 1, 0.25, 1], np.float32)
    return g.binary_cross_entropy_with_logits(x, t, reduction="sum", pos_weight=1.0)


def test_gradients_are_finite_at_edges() -> None:
    edge = np.array([0, 1, 0, 1], np.float32)
    wanted = np.array([0, 0, 1, 1], np.float32)
    # PyTorch's derivative: the difference divided by the variance, which counts as at least 1e-12.
    np.testing.assert_allclose(
        slope(lambda g, p: g.binary_cross_entropy(p, wanted, reduction="sum"), edge), [0, 1e12, -1e12, 0], rtol=1e-6
    )
    zeros = np.zeros((2, 3), np.float32)
    for call in (
        lambda g, x: g.sum(g.cosine_similarity(x, B[:2, :3])),
        lambda g, x: g.cosine_embedding_loss(x, B[:2, :3], SIGN[:2]),
        lambda g, x: g.triplet_margin_loss(x, x * 1.0, B[:2, :3]),
        lambda g, x: g.kl_div(B[:2, :3], x),
        lambda g, x: g.sum(g.normalize(x)),
    ):
        assert np.isfinite(slope(call, zeros)).all()
    labels = np.array([0, -100], np.int32)
    got = slope(lambda g, x: g.cross_entropy(x, labels), A[:2])
    expected = np.stack([special.softmax(A[0]) - np.eye(6)[0], np.zeros(6)])
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_small_floats_are_computed_wide(dtype: str) -> None:
    kind = rlx.dtype(dtype).numpy
    x, y = (A * 8).astype(kind), B.astype(kind)
    for call in (
        lambda g, s, t: g.l1_loss(s, t),
        lambda g, s, t: g.kl_div(s, t, "sum"),
        lambda g, s, t: g.cross_entropy(s, g.softmax(t)),
    ):
        small, wide = built(call, x, y)[0], built(call, x.astype(np.float64), y.astype(np.float64))[0]
        assert small.dtype == kind
        np.testing.assert_allclose(small.astype(np.float64), wide, rtol=2e-2 if dtype == "bf16" else 2e-3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g, x: g.cross_entropy(x, LABELS[0]), "labels must be .6, 3."),
        (lambda g, x: g.cross_entropy(x, LABELS, reduction="avg"), "'mean', 'sum' or 'none'"),
        (lambda g, x: g.cross_entropy(x, LABELS, weight=[1.0, 2.0]), "one for each class"),
        (lambda g, x: g.cross_entropy(x, LABELS, label_smoothing=2), "from 0 to 1"),
        (lambda g, x: g.cross_entropy(x, SOFT[:2]), "shape of the logits"),
        (lambda g, x: g.cross_entropy(x, targets=LABELS), "did you mean 'target'"),
        (lambda g, x: g.mse_loss(x, WEIGHT), "broadcast"),
        (lambda g, x: g.smooth_l1_loss(x, x, beta=-1), "from 0 on"),
        (lambda g, x: g.cosine_similarity(x, x, axis=4), "out of range"),
    ],
)  # fmt: skip
def test_mistakes_name_the_call(call: Any, message: str) -> None:
    with pytest.raises(rlx.Error, match=message):
        built(call, X)

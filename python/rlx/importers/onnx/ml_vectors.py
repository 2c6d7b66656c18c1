"""Linear classifiers and support vector machines of `ai.onnx.ml`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.importers.onnx.ml_scores import kernel, labels_of, rows_of, transformed, two_columns
from rlx.importers.onnx.rules import bounded, imports
from rlx.importers.table import constant as literal_or_weight
from rlx.ir.graph.builder import Tensor
from rlx.support.errors import UnsupportedError

_DOMAIN = "ai.onnx.ml"
_MOST_CLASSES = 64  # the largest number of classes of classifiers that compare each pair
_MOST_STEPS = 100


@imports(f"{_DOMAIN}.LinearClassifier")
def linear_classifier(
    g: Any,
    x: Tensor,
    *,
    wanted: Sequence[bool],
    coefficients: Any,
    intercepts: Any = None,
    classlabels_ints: Any = None,
    classlabels_strings: Any = None,
    multi_class: int = 0,
    post_transform: str = "NONE",
) -> tuple[Tensor, Tensor]:
    x, labels = g.cast(rows_of(g, x), "f32"), (classlabels_ints, classlabels_strings)
    classes = len(classlabels_ints or classlabels_strings or ())
    count = len(intercepts) if intercepts else classes
    if count not in (1, classes):
        raise ValueError(f"{count} scores for {classes} classes")
    weights = np.array(coefficients, np.float32).reshape(count, -1)
    scores = g.matmul(x, literal_or_weight(g, weights.T.copy()))
    scores = g.add(scores, g.constant(np.array(intercepts, np.float32))) if intercepts else scores
    if count > 1:
        return labels_of(g, g.argmax(scores, 1), *labels, wanted), transformed(g, scores, post_transform)
    if classes != 2:
        raise UnsupportedError(f"of {classes} classes by one score cannot be imported")
    second = g.squeeze(g.gt(scores, 0.0), 1)
    return labels_of(g, g.cast(second, "i32"), *labels, wanted), two_columns(g, scores, post_transform, True)


@imports(f"{_DOMAIN}.SVMRegressor")
def svm_regressor(
    g: Any,
    x: Tensor,
    *,
    coefficients: Any,
    rho: Any,
    kernel_params: Any = None,
    kernel_type: str = "LINEAR",
    n_supports: int = 0,
    one_class: int = 0,
    post_transform: str = "NONE",
    support_vectors: Any = None,
) -> Tensor:
    if post_transform != "NONE":
        raise UnsupportedError(f"with the function '{post_transform}' of its result cannot be imported")
    x, weights = g.cast(rows_of(g, x), "f32"), np.array(coefficients, np.float32)
    if n_supports:
        vectors = np.array(support_vectors, np.float32).reshape(n_supports, -1)
        products = kernel(g, x, vectors, kernel_type, kernel_params)
        result = g.matmul(products, literal_or_weight(g, weights.reshape(-1, 1)))
    else:
        result = kernel(g, x, weights.reshape(1, -1), "LINEAR", None)
    result = g.add(result, float(rho[0]))
    return g.where(g.gt(result, 0.0), 1.0, -1.0) if one_class else result


@imports(f"{_DOMAIN}.SVMClassifier")
def svm_classifier(
    g: Any,
    x: Tensor,
    *,
    wanted: Sequence[bool],
    coefficients: Any,
    rho: Any,
    classlabels_ints: Any = None,
    classlabels_strings: Any = None,
    kernel_params: Any = None,
    kernel_type: str = "LINEAR",
    post_transform: str = "NONE",
    prob_a: Any = None,
    prob_b: Any = None,
    support_vectors: Any = None,
    vectors_per_class: Any = None,
) -> tuple[Tensor, Tensor]:
    """Classify by votes from a comparison of each pair of classes; without support vectors, by the largest score."""
    x, labels = g.cast(rows_of(g, x), "f32"), (classlabels_ints, classlabels_strings)
    classes = bounded(len(classlabels_ints or classlabels_strings or ()), "classes", _MOST_CLASSES)
    if classes < 2:
        raise UnsupportedError(f"of {classes} classes cannot be imported")
    weights = np.array(coefficients, np.float32)
    if not vectors_per_class:
        if classes == 2:
            raise UnsupportedError("of two classes without support vectors cannot be imported")
        scores = g.add(kernel(g, x, weights.reshape(classes, -1), "LINEAR", None), float(rho[0]))
        return labels_of(g, g.argmax(scores, 1), *labels, wanted), transformed(g, scores, post_transform)
    if len(vectors_per_class) != classes or min(vectors_per_class) < 0:
        raise ValueError(f"vectors_per_class is a number of vectors for each class, not {vectors_per_class}")
    vectors = np.array(support_vectors, np.float32).reshape(sum(vectors_per_class), -1)
    products = kernel(g, x, vectors, kernel_type, kernel_params)
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    table = _pair_weights(weights.reshape(classes - 1, -1), pairs, vectors_per_class)
    decisions = g.add(g.matmul(products, literal_or_weight(g, table)), g.constant(np.array(rho, np.float32)))
    best = g.argmax(_votes(g, decisions, pairs, classes), 1)
    if prob_a:
        scores = transformed(g, _shares(g, decisions, pairs, classes, prob_a, prob_b), post_transform)
    elif classes == 2:
        scores = two_columns(g, decisions, post_transform, post_transform != "NONE")
    else:
        scores = transformed(g, decisions, post_transform)
    return labels_of(g, best, *labels, wanted), scores


def _pair_weights(weights: np.ndarray, pairs: Sequence[tuple[int, int]], counts: Sequence[int]) -> np.ndarray:
    """Return the weight of each support vector in the comparison of each pair, `[vectors, pairs]`."""
    ends = np.cumsum(counts)
    table = np.zeros((weights.shape[1], len(pairs)), np.float32)
    for number, (i, j) in enumerate(pairs):
        first, second = (slice(ends[k] - counts[k], ends[k]) for k in (i, j))
        table[first, number], table[second, number] = weights[j - 1, first], weights[i, second]
    return table


def _votes(g: Any, decisions: Tensor, pairs: Sequence[tuple[int, int]], classes: int) -> Tensor:
    """Return the number of comparisons that each class has won, `[rows, classes]`."""
    won = np.zeros((len(pairs), classes), np.float32)
    for number, (i, j) in enumerate(pairs):
        won[number, i], won[number, j] = 1, -1
    lost = np.maximum(-won, 0).sum(0)
    return g.add(g.matmul(g.cast(g.gt(decisions, 0.0), "f32"), g.constant(won)), g.constant(lost))


def _shares(
    g: Any, decisions: Tensor, pairs: Sequence[tuple[int, int]], classes: int, slopes: Any, offsets: Any
) -> Tensor:
    """Return class probabilities from pair probabilities, `[rows, classes]`.

    This is the second method of Wu, Lin and Weng, with the stopping criterion of libsvm.
    """
    a, b = (g.constant(np.array(v, np.float32)) for v in (slopes, offsets))
    first = g.clamp(g.sub(1.0, g.sigmoid(g.add(g.mul(decisions, a), b))), 1e-7, 1 - 1e-7)
    columns = {p: g.narrow(first, 1, n, 1) for n, p in enumerate(pairs)}
    zero = g.zeros_like(g.narrow(first, 1, 0, 1))

    def of(i: int, j: int) -> Tensor:
        return zero if i == j else columns[i, j] if i < j else g.sub(1.0, columns[j, i])

    rows: list[Tensor] = []
    for t in range(classes):
        others = [of(j, t) for j in range(classes) if j != t]
        total = g.mul(others[0], others[0])
        for r in others[1:]:
            total = g.add(total, g.mul(r, r))
        rows.append(g.concat([total if j == t else g.neg(g.mul(of(j, t), of(t, j))) for j in range(classes)], 1))
    return _coupled(g, g.stack(rows, 1), classes)


def _coupled(g: Any, q: Tensor, classes: int) -> Tensor:
    """Return the probabilities at which a step changes little, for a matrix of each row `[rows, classes, classes]`."""
    tolerance = 0.005 / classes

    def products(p: Tensor) -> Tensor:
        return g.sum(g.mul(q, g.expand_dims(p, 1)), (2,))

    def step(carry: Any, _: Any) -> Any:
        before, ended = carry
        p, qp = before, products(before)
        pqp = g.sum(g.mul(p, qp), (1,), True)
        is_last = g.lt(g.max(g.abs(g.sub(qp, pqp)), (1,), True), tolerance)
        stays = g.logical_or(ended, is_last)
        for t in range(classes):
            row, own = q[:, t, :], q[:, t, t : t + 1]
            by = g.div(g.sub(pqp, qp[:, t : t + 1]), own)
            unit = g.constant(np.eye(classes, dtype=np.float32)[t : t + 1])
            scale = g.add(1.0, by)
            change = g.mul(by, g.add(g.mul(by, own), g.mul(qp[:, t : t + 1], 2.0)))
            pqp = g.div(g.add(pqp, change), g.mul(scale, scale))
            p = g.div(g.add(p, g.mul(unit, by)), scale)
            qp = g.div(g.add(qp, g.mul(row, by)), scale)
        return (g.where(stays, before, p), stays), ()

    start = g.broadcast_to(g.constant(np.float32(1 / classes)), q.shape.dims[:2])
    ended = g.broadcast_to(g.constant(False), (q.shape.dims[0], 1))
    steps = g.iota((max(_MOST_STEPS, classes),), 0, "i32")
    return g.scan(step, (start, ended), (steps,))[0][0]

"""Linear classifiers and support vector machines of `ai.onnx.ml`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlx.importers.onnx.ml_scores import ClassLabels, apply_post_transform, kernel, rows_of, two_columns
from rlx.importers.onnx.rules import element_count, imports
from rlx.importers.table import constant as literal_or_weight
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.support.errors import UnsupportedError

_DOMAIN = "ai.onnx.ml"
_MOST_CLASSES = 64  # the largest number of classes of classifiers that compare each pair
_MOST_STEPS = 100


@dataclass(frozen=True, kw_only=True)
class LinearAttributes(ArgumentGroup):
    """The attributes of a linear classifier, with ONNX's names."""

    coefficients: Sequence[float]
    intercepts: Sequence[float] | None = None
    multi_class: int = 0
    post_transform: str = "NONE"


@imports(f"{_DOMAIN}.LinearClassifier")
def linear_classifier(
    g: Graph, x: Tensor, *, wanted: Sequence[bool], labels: ClassLabels, linear: LinearAttributes
) -> tuple[Tensor, Tensor]:
    x, intercepts, kind = g.cast(rows_of(g, x), "f32"), linear.intercepts, linear.post_transform
    count = len(intercepts) if intercepts else labels.count
    if count not in (1, labels.count):
        raise ValueError(f"{count} scores for {labels.count} classes")
    weights = np.array(linear.coefficients, np.float32).reshape(count, -1)
    scores = g.matmul(x, literal_or_weight(g, weights.T.copy()))
    scores = g.add(scores, g.constant(np.array(intercepts, np.float32))) if intercepts else scores
    if count > 1:
        return labels.of(g, g.argmax(scores, 1), wanted), apply_post_transform(g, scores, kind)
    if labels.count != 2:
        raise UnsupportedError(f"of {labels.count} classes by one score cannot be imported")
    second = g.squeeze(g.gt(scores, 0.0), 1)
    return labels.of(g, g.cast(second, "i32"), wanted), two_columns(g, scores, kind, True)


@dataclass(frozen=True, kw_only=True)
class SvmAttributes(ArgumentGroup):
    """The attributes of a support vector machine, with ONNX's names."""

    coefficients: Sequence[float]
    rho: Sequence[float]
    kernel_params: Sequence[float] | None = None
    kernel_type: str = "LINEAR"
    post_transform: str = "NONE"
    support_vectors: Sequence[float] | None = None

    @property
    def weights(self) -> np.ndarray:
        """The coefficients."""
        return np.array(self.coefficients, np.float32)

    def products(self, g: Graph, x: Tensor, count: int) -> Tensor:
        """Return the kernel of rows and the `count` support vectors: `[rows, vectors]`."""
        vectors = np.array(self.support_vectors, np.float32).reshape(count, -1)
        return kernel(g, x, vectors, self.kernel_type, self.kernel_params)


@imports(f"{_DOMAIN}.SVMRegressor")
def svm_regressor(g: Graph, x: Tensor, *, svm: SvmAttributes, n_supports: int = 0, one_class: int = 0) -> Tensor:
    if svm.post_transform != "NONE":
        raise UnsupportedError(f"with the function '{svm.post_transform}' of its result cannot be imported")
    x, weights = g.cast(rows_of(g, x), "f32"), svm.weights
    if n_supports:
        result = g.matmul(svm.products(g, x, n_supports), literal_or_weight(g, weights.reshape(-1, 1)))
    else:
        result = kernel(g, x, weights.reshape(1, -1), "LINEAR", None)
    result = g.add(result, float(svm.rho[0]))
    return g.where(g.gt(result, 0.0), 1.0, -1.0) if one_class else result


@dataclass(frozen=True, kw_only=True)
class SvmClassifierAttributes(SvmAttributes):
    """The attributes of a classifier by support vectors, with ONNX's names."""

    prob_a: Sequence[float] | None = None
    prob_b: Sequence[float] | None = None
    vectors_per_class: Sequence[int] | None = None


@imports(f"{_DOMAIN}.SVMClassifier")
def svm_classifier(
    g: Graph, x: Tensor, *, wanted: Sequence[bool], labels: ClassLabels, svm: SvmClassifierAttributes
) -> tuple[Tensor, Tensor]:
    """Classify by votes from a comparison of each pair of classes; without support vectors, by the largest score."""
    x, counts, kind = g.cast(rows_of(g, x), "f32"), svm.vectors_per_class, svm.post_transform
    classes = element_count(labels.count, "classes", _MOST_CLASSES)
    if classes < 2:
        raise UnsupportedError(f"of {classes} classes cannot be imported")
    if not counts:
        if classes == 2:
            raise UnsupportedError("of two classes without support vectors cannot be imported")
        scores = g.add(kernel(g, x, svm.weights.reshape(classes, -1), "LINEAR", None), float(svm.rho[0]))
        return labels.of(g, g.argmax(scores, 1), wanted), apply_post_transform(g, scores, kind)
    if len(counts) != classes or min(counts) < 0:
        raise ValueError(f"vectors_per_class is a number of vectors for each class, not {counts}")
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    table = literal_or_weight(g, _pair_weights(svm.weights.reshape(classes - 1, -1), pairs, counts))
    decisions = g.matmul(svm.products(g, x, sum(counts)), table)
    decisions = g.add(decisions, g.constant(np.array(svm.rho, np.float32)))
    best = g.argmax(_votes(g, decisions, pairs, classes), 1)
    if svm.prob_a:
        scores = apply_post_transform(g, _shares(g, decisions, pairs, classes, svm.prob_a, svm.prob_b), kind)
    elif classes == 2:
        scores = two_columns(g, decisions, kind, kind != "NONE")
    else:
        scores = apply_post_transform(g, decisions, kind)
    return labels.of(g, best, wanted), scores


def _pair_weights(weights: np.ndarray, pairs: Sequence[tuple[int, int]], counts: Sequence[int]) -> np.ndarray:
    """Return the weight of each support vector in the comparison of each pair, `[vectors, pairs]`."""
    ends = np.cumsum(counts)
    table = np.zeros((weights.shape[1], len(pairs)), np.float32)
    for number, (i, j) in enumerate(pairs):
        first, second = (slice(ends[k] - counts[k], ends[k]) for k in (i, j))
        table[first, number], table[second, number] = weights[j - 1, first], weights[i, second]
    return table


def _votes(g: Graph, decisions: Tensor, pairs: Sequence[tuple[int, int]], classes: int) -> Tensor:
    """Return the number of comparisons that each class has won, `[rows, classes]`."""
    won = np.zeros((len(pairs), classes), np.float32)
    for number, (i, j) in enumerate(pairs):
        won[number, i], won[number, j] = 1, -1
    lost = np.maximum(-won, 0).sum(0)
    return g.add(g.matmul(g.cast(g.gt(decisions, 0.0), "f32"), g.constant(won)), g.constant(lost))


def _shares(
    g: Graph,
    decisions: Tensor,
    pairs: Sequence[tuple[int, int]],
    classes: int,
    slopes: Sequence[float] | None,
    offsets: Sequence[float] | None,
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


def _coupled(g: Graph, q: Tensor, classes: int) -> Tensor:
    """Return the probabilities at which a step changes little, for a matrix of each row `[rows, classes, classes]`."""
    tolerance = 0.005 / classes

    def products(p: Tensor) -> Tensor:
        return g.sum(g.mul(q, g.expand_dims(p, 1)), (2,))

    def step(carry: Sequence[Tensor], _: Sequence[Tensor]) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
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

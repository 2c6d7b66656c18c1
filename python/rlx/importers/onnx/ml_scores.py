"""Shared helpers of the `ai.onnx.ml` classifiers: functions of scores, labels, and kernels of vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlx.importers.table import constant as literal_or_weight
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.support.errors import UnsupportedError

KINDS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def apply_post_transform(g: Graph, scores: Tensor, kind: str) -> Tensor:
    """A function of scores, `[rows, classes]`, by its name in `post_transform`.

    Raises:
        UnsupportedError: The function does not exist.
    """
    if kind == "NONE":
        return scores
    if kind == "LOGISTIC":
        return g.sigmoid(scores)
    if kind == "SOFTMAX":
        return g.softmax(scores, -1)
    if kind == "SOFTMAX_ZERO":  # values that are 0 stay near 0
        largest = g.max(scores, (-1,), True)
        powers = g.where(g.gt(g.abs(scores), 1e-7), g.exp(g.sub(scores, largest)), 0.0)
        return g.div(powers, g.sum(powers, (-1,), True))
    if kind == "PROBIT":
        return g.mul(_inverse_erf(g, g.sub(g.mul(scores, 2.0), 1.0)), math.sqrt(2))
    raise UnsupportedError(f"with the function '{kind}' of its scores cannot be imported")


def reduce_targets(g: Graph, result: Tensor, kind: str) -> Tensor:
    """A function of the targets of a regression, `[rows, targets]`.

    Raises:
        UnsupportedError: The function needs several scores, but there is one. ONNX Runtime leaves it unchanged.
    """
    if kind not in ("NONE", "PROBIT") and result.shape.dims[1] == 1:
        raise UnsupportedError(f"of one target with the function '{kind}' of it cannot be imported")
    return apply_post_transform(g, result, kind)


def _inverse_erf(g: Graph, x: Tensor) -> Tensor:
    """Return the inverse of erf by Winitzki's formula, as in ONNX's reference evaluator and ONNX Runtime."""
    log = g.log(g.mul(g.sub(1.0, x), g.add(1.0, x)))
    half = g.add(2 / (math.pi * 0.147), g.mul(log, 0.5))
    root = g.sqrt(g.sub(g.sqrt(g.sub(g.mul(half, half), g.div(log, 0.147))), half))
    return g.mul(g.where(g.lt(x, 0), -1.0, 1.0), root)


def two_columns(g: Graph, score: Tensor, kind: str, is_share: bool) -> Tensor:
    """The scores of two classes by that of the second, `[rows, 1]`, as ONNX Runtime gives them.

    Args:
        g: The graph.
        score: The score.
        kind: The function of scores.
        is_share: Whether the score is a probability.
    """
    if kind == "PROBIT":
        raise UnsupportedError("of two classes by one score, with the function 'PROBIT' of it, cannot be imported")
    if kind == "LOGISTIC":
        return g.sigmoid(g.concat([g.neg(score), score], 1))
    return g.concat([g.sub(1.0, score) if is_share else g.neg(score), score], 1)


def labels_of(
    g: Graph, index: Tensor, numbers: Sequence[int] | None, texts: Sequence[str] | None, wanted: Sequence[bool]
) -> Tensor:
    """The labels of classes by their index.

    Raises:
        UnsupportedError: The labels are strings and are used.
    """
    if texts and not numbers:
        if wanted[0]:
            hint = "export it with classes that are integers"
            raise UnsupportedError("whose classes are named by texts cannot be imported", hint=hint)
        return g.cast(index, "i64")
    return g.gather(literal_or_weight(g, np.array(numbers, np.int64)), index)


@dataclass(frozen=True, kw_only=True)
class ClassLabels(ArgumentGroup):
    """The attributes that name the classes, with ONNX's names."""

    classlabels_ints: Sequence[int] | None = None
    classlabels_strings: Sequence[str] | None = None

    @property
    def count(self) -> int:
        """The number of classes."""
        return len(self.classlabels_ints or self.classlabels_strings or ())

    def of(self, g: Graph, index: Tensor, wanted: Sequence[bool]) -> Tensor:
        """The labels of classes by their index."""
        return labels_of(g, index, self.classlabels_ints, self.classlabels_strings, wanted)


def rows_of(g: Graph, x: Tensor) -> Tensor:
    """Return features as floats, `[rows, features]`."""
    x = x if x.dtype.is_float else g.cast(x, "f32")
    return g.reshape(x, (1, -1)) if x.shape.rank == 1 else x


def kernel(g: Graph, x: Tensor, vectors: np.ndarray, kind: str, parameters: Sequence[float] | None) -> Tensor:
    """Return the kernel of rows `[rows, features]` and vectors `[vectors, features]`, as `[rows, vectors]`."""
    gamma, offset, degree = tuple(parameters or ()) or (0.0, 0.0, 0.0)
    table = literal_or_weight(g, vectors)
    if kind == "RBF":
        apart = g.sub(g.expand_dims(x, 1), g.expand_dims(table, 0))
        return g.exp(g.mul(g.sum(g.mul(apart, apart), (2,)), -gamma))
    products = g.matmul(x, g.transpose(table, (1, 0)))
    if kind == "LINEAR":
        return products
    scaled = g.add(g.mul(products, gamma), offset)
    if kind == "POLY":
        return g.pow(scaled, float(degree))
    if kind == "SIGMOID":
        return g.tanh(scaled)
    raise UnsupportedError(f"with the kernel '{kind}' cannot be imported")

"""Ops whose number of results depends on the values of their operands. They are imported only if those are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.importers.onnx.rules import (
    Static,
    element_count,
    elements,
    imports,
    integers,
    known_elements,
    static_dims,
)
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.support.errors import UnsupportedError

_MOST_SKIPPED = 1000


@imports("NonZero")
def nonzero(g: Graph, x: Tensor, *, static: Static) -> Tensor:
    return g.constant(np.array(np.nonzero(np.atleast_1d(known_elements(static, 0, "X"))), np.int64))


@imports("Compress")
def compress(g: Graph, x: Tensor, condition: Tensor, *, static: Static, axis: int | None = None) -> Tensor:
    chosen = np.flatnonzero(known_elements(static, 1, "condition"))
    flat = g.reshape(x, (-1,)) if axis is None else x
    return g.gather(flat, g.constant(chosen.astype(np.int32)), axis=axis or 0)


@imports("Unique")
def unique(
    g: Graph, x: Tensor, *, static: Static, outputs: int, axis: int | None = None, sorted: int = 1
) -> list[Tensor]:
    found, first, inverse, counts = np.unique(known_elements(static, 0, "X"), True, True, True, axis=axis)
    if not sorted:  # in the order of occurrence
        order = np.argsort(first)
        found, first, counts = np.take(found, order, axis or 0), first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    others = [np.asarray(a, np.int64).reshape(-1) for a in (first, inverse, counts)]
    return [g.constant(a) for a in (found, *others)][:outputs]


def _corners(boxes: np.ndarray, center_point_box: int) -> np.ndarray:
    """Return boxes as minimum and maximum coordinates."""
    if center_point_box:
        centre, size = boxes[:, [1, 0]], boxes[:, [3, 2]]
        return np.concatenate([centre - size / 2, centre + size / 2], 1)
    return np.concatenate([np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])], 1)


def _overlap(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the intersection of a box with others, divided by their union."""
    sides = np.maximum(0, np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2]))
    shared = sides.prod(axis=1)
    areas = [(b[..., 2:] - b[..., :2]).prod(axis=-1) for b in (box, others)]
    return shared / np.maximum(areas[0] + areas[1] - shared, 1e-30)


@dataclass(frozen=True)
class BoxOperands(ArgumentGroup):
    """The operands of `NonMaxSuppression`, in its order."""

    boxes: Tensor
    scores: Tensor
    max_output_boxes_per_class: Tensor | None = None
    iou_threshold: Tensor | None = None
    score_threshold: Tensor | None = None


@imports("NonMaxSuppression")
def non_max_suppression(g: Graph, operands: BoxOperands, *, static: Static, center_point_box: int = 0) -> Tensor:
    all_boxes, all_scores = known_elements(static, 0, "boxes"), known_elements(static, 1, "scores")
    count = (integers(static, 2, "max_output_boxes_per_class") or (0,))[0]
    limit, floor = (elements(static, i, n) for i, n in ((3, "iou_threshold"), (4, "score_threshold")))
    threshold = 0.0 if limit is None else float(limit.reshape(()))
    rows: list[tuple[int, int, int]] = []
    for batch, of_batch in enumerate(all_scores):
        corners = _corners(all_boxes[batch], center_point_box)
        for kind, values in enumerate(of_batch):
            chosen: list[int] = []
            for i in np.argsort(-values, kind="stable").tolist():
                if len(chosen) == count or (floor is not None and values[i] <= float(floor.reshape(()))):
                    break
                if not chosen or (_overlap(corners[i], corners[chosen]) <= threshold).all():
                    chosen.append(i)
            rows += [(batch, kind, i) for i in chosen]
    return g.constant(np.array(rows, np.int64).reshape(-1, 3))


@dataclass(frozen=True, kw_only=True)
class TfIdfAttributes(ArgumentGroup):
    """The attributes of `TfIdfVectorizer`, with ONNX's names."""

    max_gram_length: int
    max_skip_count: int
    min_gram_length: int
    mode: str
    ngram_counts: Sequence[int]
    ngram_indexes: Sequence[int]
    pool_int64s: Sequence[int] | None = None
    pool_strings: Sequence[str] | None = None
    weights: Sequence[float] | None = None

    def grams(self) -> list[tuple[int, tuple[int, ...]]]:
        """The n-grams of the pool whose lengths count, each with its place in the result.

        Raises:
            UnsupportedError: They are texts.
        """
        pool = self.pool_int64s
        if pool is None or self.mode not in ("TF", "IDF", "TFIDF"):
            raise UnsupportedError("of strings cannot be imported")
        grams: list[tuple[int, ...]] = []
        for n, (start, end) in enumerate(zip(self.ngram_counts, [*self.ngram_counts[1:], len(pool)], strict=True), 1):
            grams += [tuple(pool[i : i + n]) for i in range(start, end, n)]
        pairs = zip(self.ngram_indexes, grams, strict=True)
        return [(i, gram) for i, gram in pairs if self.min_gram_length <= len(gram) <= self.max_gram_length]


@imports("TfIdfVectorizer")
def tf_idf_vectorizer(g: Graph, x: Tensor, *, pool: TfIdfAttributes) -> Tensor:
    """Count the n-grams of a pool in an integer tensor, with up to `max_skip_count` skipped elements.

    The tensor may be computed at run time.
    """
    grams = pool.grams()
    rows = g.reshape(x, (1, -1)) if x.shape.rank < 2 else x
    (length,) = static_dims(rows, 1)
    element_count(max(pool.ngram_indexes), "counts")
    element_count(pool.max_skip_count, "skipped elements", _MOST_SKIPPED)
    found: list[Any] = [None] * (max(pool.ngram_indexes) + 1)
    for place, gram in grams:
        for step in range(1, pool.max_skip_count + 2 if len(gram) > 1 else 2):
            windows = length - (len(gram) - 1) * step
            if windows <= 0:
                break
            same = [g.eq(g.narrow(rows, 1, i * step, windows), int(word)) for i, word in enumerate(gram)]
            hit = same[0]
            for other in same[1:]:
                hit = g.logical_and(hit, other)
            times = g.sum(g.cast(hit, "f32"), (1,))
            found[place] = times if found[place] is None else g.add(found[place], times)
    zero = g.zeros((rows.shape.dims[0],), dtype="f32")
    counts = g.stack([zero if f is None else f for f in found], 1)
    scale = np.ones(len(found), np.float32)
    if pool.weights is not None:
        scale[list(pool.ngram_indexes)] = pool.weights
    if pool.mode == "IDF":
        counts = g.cast(g.gt(counts, 0.0), "f32")
    result = counts if pool.mode == "TF" else g.mul(counts, g.constant(scale))
    return g.reshape(result, (len(found),)) if x.shape.rank < 2 else result

"""Attention as products, masks and a softmax, with axes in random orders."""

from __future__ import annotations

import math
import random
from typing import Any

import rlx


class RandomAttention:
    """A graph `g` of one attention whose axes have letters: batches, `g`roups, `s` queries, `t` keys, `d`, `v` channels."""

    def __init__(self, seed: int):
        self.random = choose = random.Random(seed)
        self.g: Any = rlx.Graph("attention")
        batch = {f"b{i}": choose.choice([1, 2, 3]) for i in range(choose.choice([0, 1, 2, 2, 2, 3]))}
        group = choose.choice([{}, {}, {"g": 1}, {"g": 2}])
        queries, keys = choose.choice([1, 2, 4]), choose.choice([1, 3, 4])
        lanes, width = choose.choice([1, 2, 4]), choose.choice([1, 2, 5])
        q = self._input("q", {**batch, **group, "s": queries, "d": lanes})
        k, v = self._input("k", {**batch, "t": keys, "d": lanes}), self._input("v", {**batch, "t": keys, "v": width})
        if choose.random() < 0.3:
            q = q[0] * 0.5, q[1]
        scores = self._seen(self._product(q, k, "d", list(batch)))
        if choose.random() < 0.6:
            scores = (scores[0] * 0.7 if choose.random() < 0.5 else scores[0] / 2.0), scores[1]
        self.mask = choose.choice(["none", "added", "bool", "inverted", "low", "causal"])
        scores, names = self._seen(self._masked(*self._seen(scores), keys - queries))
        weights = self._seen((self.g.softmax(scores, axis=names.index("t")), names))
        self.g.set_outputs(self._product(weights, v, "t", list(batch))[0])

    def _input(self, name: str, sizes: dict[str, int]) -> tuple[Any, list[str]]:
        names = self.random.sample(list(sizes), len(sizes))
        return self.g.input(name, tuple(sizes[n] for n in names)), names

    def _product(self, a: Any, b: Any, contracting: str, batch: list[str]) -> tuple[Any, list[str]]:
        self.random.shuffle(batch)
        (x, left), (y, right) = (a, b) if self.random.random() < 0.5 else (b, a)
        axes = [[names.index(n) for n in batch] for names in (left, right)]
        result = self.g.dot_general(x, y, (left.index(contracting),), (right.index(contracting),), *axes)
        return result, [*batch, *(n for names in (left, right) for n in names if n not in (contracting, *batch))]

    def _seen(self, value: Any) -> tuple[Any, list[str]]:
        """Return the value transposed, with another axis of size 1, or unchanged."""
        (x, names), way = value, self.random.random()
        if way < 0.4:
            perm = self.random.sample(range(len(names)), len(names))
            return self.g.transpose(x, perm), [names[i] for i in perm]
        if way < 0.6:
            at, dims = self.random.randrange(len(names) + 1), x.shape.dims
            return self.g.reshape(x, (*dims[:at], 1, *dims[at:])), [*names[:at], "unit", *names[at:]]
        return x, names

    def _masked(self, scores: Any, names: list[str], ahead: int) -> tuple[Any, list[str]]:
        g, dims = self.g, scores.shape.dims
        if self.mask == "none":
            return scores, names
        if self.mask == "causal":
            square = tuple(d if n in "st" else 1 for n, d in zip(names, dims, strict=True))
            query, key = (g.iota(square, axis=names.index(n)) for n in "st")
            return g.where(query + self.random.choice([ahead, 0, 1]) >= key, scores, -math.inf), names
        kept = tuple(d if self.random.random() < 0.6 else 1 for d in dims)[self.random.choice([0, 0, 1]) :]
        mask = g.input("mask", kept, "f32" if self.mask == "added" else "bool")
        if self.mask == "added":
            return scores + mask, names
        if self.mask == "inverted":
            return g.where(mask, -math.inf, scores), names
        return g.where(mask, scores, -math.inf if self.mask == "bool" else -3e38), names

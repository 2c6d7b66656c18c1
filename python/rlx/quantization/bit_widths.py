"""`rlx.search_bits`: chooses the bit width of the weights of each product, within a budget of bytes or accuracy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.ir.calls import Answered, with_call_errors
from rlx.ir.dtype import family
from rlx.ir.graph.graph import Graph
from rlx.ir.shape import shape_of
from rlx.passes.dtypes.quantization_sites import sites
from rlx.passes.integer.value_ranges import ValueRanges
from rlx.quantization.calibrate import check_batch, runner
from rlx.quantization.integer import Quantization, bound_graph, integer_only, primitive_graph, quantizations
from rlx.report.progress import progress as shown
from rlx.report.text import bytes_text, table
from rlx.support.cached_property import cached_property
from rlx.support.errors import Error
from rlx.support.guards import is_integer, is_real

Arrays = dict[str, np.ndarray]
# A function of the outputs of each batch, by name, as floats. Larger is better.
Score = Callable[[list[Arrays]], float]
_LOWER = (4, 2)


@dataclass(frozen=True)
class BitWidthTrial:
    """One product with fewer bits, while all others have 8.

    Attributes:
        name: The product.
        bits: The bits of its weights.
        saved: The number of bytes of weights that this saves.
        score: The score with this change.
    """

    name: str
    bits: int
    saved: int
    score: float


@dataclass(frozen=True)
class BitWidths(Answered):
    """The result of `search_bits`; as text, a table.

    Attributes:
        layers: Bits by product, in the form of the argument of `integer_only`.
        weight_bytes: The size of all weights of products with these bits, packed.
        score: The score with these bits.
        score_at_8: The score with 8 bits everywhere.
        trials: Each product tried alone.
    """

    layers: Mapping[str, int]
    weight_bytes: int
    score: float
    score_at_8: float
    trials: Sequence[BitWidthTrial]

    def __str__(self) -> str:
        by_name = {name: {t.bits: t.score for t in self.trials if t.name == name} for name in self.layers}
        cells = [
            (name, str(bits), *(f"{by_name[name][b]:.5f}" if b in by_name[name] else "" for b in _LOWER))
            for name, bits in self.layers.items()
        ]
        heads = ("product", "bits", *(f"score at {b} bits alone" for b in _LOWER))
        total = f"{bytes_text(self.weight_bytes)} of weights, score {self.score:.5f}; {self.score_at_8:.5f} with 8 bits"
        return "\n".join([*table(cells, heads, right=(1, 2, 3)), total])


@with_call_errors
def search_bits(
    graph: Any,
    ranges: ValueRanges,
    batches: Iterable[Mapping[str, Any]],
    *,
    params: Mapping[str, Any] | None = None,
    max_bytes: int | None = None,
    min_score: float | None = None,
    score: Score | None = None,
    symmetric: bool = False,
    device: Any = None,
    progress: bool = True,
    bind: Mapping[str, int] | None = None,
) -> BitWidths:
    """Choose 8, 4 or 2 bits for the weights of each product: the fewest bits within the given budgets.

    First, each product is tried with fewer bits while all others have 8. Then the bits of products are reduced one
    after the other, in the order of increasing loss of score per saved byte. The search ends when the weights are small
    enough, or when the next step would reduce the score too much.

    Args:
        graph: As for `integer_only`.
        ranges: As for `integer_only`.
        batches: Inputs by name, as floats, to measure the score on.
        params: Weights that did not come with the graph.
        max_bytes: The largest size of the weights of products in bytes, packed.
        min_score: The smallest acceptable score.
        score: A function of the outputs of each batch by name, as floats. Larger is better, for example the fraction of
            correct answers. The default is the mean cosine of the outputs with those in f32.
        symmetric: As for `integer_only`.
        device: The device for the integer graphs; None uses the NumPy evaluator.
        progress: Show a bar on a terminal.
        bind: As for `integer_only`. The batches have these sizes.

    Raises:
        Error: No budget is given, it cannot be met (the message has the attainable size or score), or as for `integer_only`.
    """
    if max_bytes is None and min_score is None:
        raise Error("search_bits needs a budget", hint="give max_bytes, min_score, or both")
    if max_bytes is not None and (not is_integer(max_bytes) or max_bytes < 0):
        raise Error(f"max_bytes is a number of bytes, got {max_bytes!r:.60}")
    if min_score is not None and not is_real(min_score):
        raise Error(f"min_score must be a number, got {min_score!r:.60}")
    data = [dict(batch) for batch in batches]
    for number, batch in enumerate(data, 1):
        check_batch(batch, number)
    if not data:
        raise Error("there is no batch to measure on", hint="give at least one mapping of input names to arrays")
    source = bound_graph(graph, "search_bits", bind)
    values = {**source.weights, **(params or {})}
    search = _BitWidthSearch(source, ranges, data, values, symmetric, device, score)
    return search.found(max_bytes, min_score, progress)


@dataclass(frozen=True)
class _BitWidthSearch:
    source: Graph
    ranges: ValueRanges
    data: list[dict[str, Any]]
    values: Mapping[str, Any]
    symmetric: bool
    device: Any
    given_score: Score | None

    @cached_property
    def counts(self) -> dict[str, int]:
        """The number of weights of each product."""
        primitives = primitive_graph(self.source, "search_bits")
        known = sites(primitives.function, ranks=(3, 4))
        return {site.name: int(np.prod(shape_of(site.weights).static)) for site in known}

    @cached_property
    def score(self) -> Score:
        """The score that was given, or that of the outputs in f32."""
        if self.given_score is not None:
            return self.given_score
        reference, names = runner(self.source, self.values, self.device), [o.name for o in self.source.outputs]
        return _Cosine([dict(zip(names, reference(batch), strict=True)) for batch in self.data])

    def bytes_of(self, layers: Mapping[str, int]) -> int:
        return sum(-(-count * layers[name] // 8) for name, count in self.counts.items())

    def measured(self, layers: Mapping[str, int]) -> float:
        graph = integer_only(
            self.source, self.ranges, params=self.values, layers=layers, symmetric=self.symmetric, allow_float=True
        )
        known, call = quantizations(graph), runner(graph, {}, self.device)
        names = [o.name for o in graph.outputs]
        outputs: list[Arrays] = []
        for batch in self.data:
            given = {n: known[n].quantize(x) if n in known else x for n, x in batch.items()}
            results = zip(names, call(given), strict=True)
            outputs.append({n: _floats(known.get(n), array) for n, array in results})
        return float(self.score(outputs))

    def found(self, max_bytes: int | None, min_score: float | None, progress: bool) -> BitWidths:
        eight = dict.fromkeys(self.counts, 8)
        at_8 = self.measured(eight)
        if min_score is not None and at_8 < min_score:
            raise Error(f"with 8 bits everywhere the score is {at_8:.5f}, below {min_score}")
        least = self.bytes_of(dict.fromkeys(self.counts, 2))
        if max_bytes is not None and least > max_bytes:
            raise Error(f"with 2 bits everywhere the weights take {least} bytes, more than {max_bytes}")
        options = [(name, bits) for name in self.counts for bits in _LOWER]
        trials = [
            BitWidthTrial(name, bits, self.bytes_of(eight) - self.bytes_of(eight | {name: bits}), score)
            for name, bits in shown(options, "measure fewer bits", show=progress)
            for score in [self.measured(eight | {name: bits})]
        ]
        layers, score = dict(eight), at_8
        for trial in sorted(trials, key=lambda t: ((at_8 - t.score) / max(t.saved, 1), -t.bits)):
            if max_bytes is not None and self.bytes_of(layers) <= max_bytes:
                break
            if trial.bits >= layers[trial.name]:
                continue
            candidate = layers | {trial.name: trial.bits}
            reached = self.measured(candidate)
            if min_score is None or reached >= min_score:
                layers, score = candidate, reached
        size = self.bytes_of(layers)
        if max_bytes is not None and size > max_bytes:
            raise Error(
                f"no choice of bits was found with a score of {min_score} in {max_bytes} bytes",
                hint=f"{size} bytes have a score of {score:.5f}",
            )
        return BitWidths(layers, size, score, at_8, trials)


def _floats(known: Quantization | None, array: np.ndarray) -> np.ndarray:
    return array if known is None else known.dequantize(array)


class _Cosine:
    """The mean cosine of outputs with the expected ones. For integers, the fraction of equal elements."""

    def __init__(self, expected: list[Arrays]):
        self.expected = expected

    def __call__(self, outputs: list[Arrays]) -> float:
        pairs = [
            (wanted, got[name])
            for known, got in zip(self.expected, outputs, strict=True)
            for name, wanted in known.items()
        ]
        return float(np.mean([_likeness(*pair) for pair in pairs]))


def _likeness(wanted: np.ndarray, got: np.ndarray) -> float:
    if family(wanted.dtype) != "float":
        return float(np.mean(wanted == got)) if wanted.size else 1.0
    first, second = wanted.astype(np.float64).ravel(), got.astype(np.float64).ravel()
    norms = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(first @ second) / norms if norms else float(np.array_equal(first, second))

"""Sampling: the order of the parameters, written again, and the frequencies of the tokens."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from rlx.llm.distribution import likeliest, log_sum_exp, nucleus, top_logprobs
from rlx.llm.options import GenerationOptions
from rlx.llm.sampler import Sampler
from rlx.support.errors import Error


def _probabilities(logits: np.ndarray, options: dict[str, Any], prompt: list[int], output: list[int]) -> np.ndarray:
    """Return the distribution of the next token, as the documentation describes it."""
    scores = logits.astype(np.float64).copy()
    for token, bias in options.get("logit_bias", {}).items():
        scores[token] += bias
    repetition = options.get("repetition_penalty", 1.0)
    for token in {*prompt, *output}:
        scores[token] = scores[token] / repetition if scores[token] > 0 else scores[token] * repetition
    for token, count in Counter(output).items():
        scores[token] -= options.get("presence_penalty", 0.0) + count * options.get("frequency_penalty", 0.0)
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    order = order[: options.get("top_k") or len(order)]

    def softmax(values: Any) -> np.ndarray:
        powers = np.exp(np.array(values, np.float64) - max(values))
        return powers / powers.sum()

    share = softmax([scores[i] for i in order])
    kept, total = [], 0.0
    for token, probability in zip(order, share, strict=True):
        kept.append(token)
        total += probability
        if total >= options.get("top_p", 1.0):
            break
    share = softmax([scores[i] for i in kept])
    kept = [t for t, p in zip(kept, share, strict=True) if p >= options.get("min_p", 0.0) * share[0]]
    final = softmax([scores[i] / options["temperature"] for i in kept])
    result = np.zeros(len(scores))
    result[kept] = final
    return result


_OPTIONS: list[dict[str, Any]] = [
    {"temperature": 1.0},
    {"temperature": 0.5, "top_k": 7},
    {"temperature": 2.0, "top_p": 0.7},
    {"temperature": 1.3, "min_p": 0.1},
    {"temperature": 1.7, "top_k": 15, "top_p": 0.9, "min_p": 0.05},
    {"temperature": 1.0, "repetition_penalty": 1.8, "presence_penalty": 0.5, "frequency_penalty": 0.4},
    {"temperature": 1.0, "logit_bias": {3: 2.0, 4: -np.inf}, "top_k": 5},
    {"temperature": 0.8, "logit_bias": {0: -np.inf, 23: -np.inf}},
    {"temperature": 1.0, "top_k": 24, "min_p": 0.2},
]


@pytest.mark.parametrize("case", range(len(_OPTIONS)))
def test_frequencies(seed: int, case: int) -> None:
    options = _OPTIONS[case]
    rng = np.random.default_rng(seed + case)
    logits = rng.normal(size=24).astype(np.float32) * 1.5
    logits[5] = logits[6]  # ties: the lower id comes first
    prompt, output = [1, 2, 3], [3, 7, 7]
    expected = _probabilities(logits, options, prompt, output)
    sampler = Sampler(GenerationOptions(**options), prompt, seed, len(logits))
    counts = np.zeros(len(logits))
    number = 4000
    for _ in range(number):
        sampler._output, sampler._seen = Counter(output), {*prompt, *output}
        counts[sampler.choose(logits)[0]] += 1
    assert not counts[expected == 0].any()
    likely = expected * number >= 5
    groups = [*counts[likely], counts[~likely].sum()], [*expected[likely] * number, expected[~likely].sum() * number]
    if groups[1][-1] < 1e-9:
        groups = groups[0][:-1], groups[1][:-1]
    assert chisquare(*groups).pvalue > 1e-4


def test_greedy_takes_the_first_of_equal_tokens() -> None:
    logits = np.array([0, 3, 3, 1], np.float32)
    assert Sampler(GenerationOptions(), [], 0, 4).choose(logits)[0] == 1
    assert Sampler(GenerationOptions(repetition_penalty=2.0), [1], 0, 4).choose(logits)[0] == 2
    assert Sampler(GenerationOptions(logit_bias={3: 5.0}), [], 0, 4).choose(logits)[0] == 3
    singles: list[dict[str, Any]] = [{"top_p": 0.0}, {"top_k": 1}, {"top_p": 0.0, "top_k": 3, "min_p": 1.0}]
    for single in singles:
        options = GenerationOptions(temperature=9.0, **single)
        assert {Sampler(options, [], seed, 4).choose(logits)[0] for seed in range(20)} == {1}


def test_seeds() -> None:
    logits = np.zeros(50, np.float32)

    def drawn(seed: int) -> list[int]:
        sampler = Sampler(GenerationOptions(temperature=1.0), [], seed, 50)
        return [sampler.choose(logits)[0] for _ in range(20)]

    assert drawn(3) == drawn(3) != drawn(4)


def _scores(seed: int, kind: str, count: int = 3000) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=count) * {"flat": 1, "peaked": 6}.get(kind, 2)
    if kind == "ties":
        values = np.round(values)
    elif kind == "excluded":
        values[1:][rng.random(count - 1) < 0.9] = -np.inf
    elif kind == "equal":
        values[:] = 3
    elif kind == "wide":
        values *= 1e300
    elif kind == "single":
        values[count // 2] = 1e4
    return values


_KINDS = ("flat", "peaked", "ties", "excluded", "equal", "wide", "single")


@pytest.mark.parametrize("kind", _KINDS)
def test_the_likeliest(seed: int, kind: str) -> None:
    """Against a sort of all scores. Of equal scores, the lower id comes first."""
    for count in (1, 5, 63, 3000):
        scores = _scores(seed, kind, count)
        order = np.argsort(-scores, kind="stable")
        for number in (0, 1, 2, 40, 46, 47, 1000, count - 1, count, count + 1):
            for dtype in (np.float64, np.float32) if kind != "wide" else (np.float64,):
                own = scores.astype(dtype)
                expected = np.sort(np.argsort(-own, kind="stable")[:number])
                assert likeliest(own, number).tolist() == expected.tolist()
        best = order[:4].tolist()
        taken = int(order[-1])
        found = top_logprobs(scores, 4, taken)
        assert list(found) == (best if taken in best else [*best, taken])
        shifted = scores - scores.max()
        expected = shifted - np.log(np.exp(shifted).sum())
        np.testing.assert_allclose([*found.values()], expected[list(found)], rtol=1e-12, atol=1e-12)
        assert log_sum_exp(scores) == pytest.approx(np.log(np.exp(shifted).sum()) + scores.max())


@pytest.mark.parametrize("kind", _KINDS)
def test_the_nucleus(seed: int, kind: str) -> None:
    """Against the sums of sorted probabilities. The last token may differ where a sum is about the share."""
    for count in (1, 5, 3000, 20000):
        scores = _scores(seed, kind, count)
        order = np.argsort(-scores, kind="stable")
        with np.errstate(over="ignore"):
            totals = np.cumsum(np.exp(scores[order] - scores[order[0]]))
        totals /= totals[-1]
        for share in (0.0, 1e-9, 0.1, 0.5, 0.9, 0.95, 0.999, 1 - 1e-12):
            found = nucleus(scores, share)
            assert (np.diff(found) > 0).all() and set(found) == set(order[: len(found)])
            assert totals[len(found) - 1] >= share - 1e-12
            assert len(found) == 1 or totals[len(found) - 2] < share + 1e-12


def test_a_draw_is_never_an_excluded_token() -> None:
    """Also at the ends of the interval of random numbers, which tokens of probability 0 begin and end."""
    for count in (200, 8192, 8193, 20000):
        excluded = np.zeros(count, np.float32)
        excluded[[0, 1, 150, count - 1]] = -np.inf
        if count == 20000:
            excluded[5000:17000] = excluded[17500:] = -np.inf  # whole parts of the computation, too
        allowed = np.flatnonzero(excluded == 0)
        for value, expected in ((0.0, 2), (0.5, allowed[len(allowed) // 2]), (np.nextafter(1, 0), allowed[-1])):
            sampler = Sampler(GenerationOptions(temperature=1.0), [], 0, count)
            sampler._random = SimpleNamespace(random=lambda number=value: number)  # type: ignore[assignment]
            assert sampler.choose(excluded)[0] == expected


def test_frequencies_of_a_large_vocabulary(seed: int) -> None:
    """Eight groups of tokens of equal probability: of all, of the likeliest, and of a nucleus that is found by intervals."""
    number, count = 2000, 20000
    logits = np.random.default_rng(seed).normal(size=count).astype(np.float32)
    cases: list[dict[str, Any]] = [{}, {"top_k": 1500}, {"top_p": 0.8}, {"min_p": 0.05}]
    for options in cases:
        expected = _probabilities(logits, {"temperature": 1.5, **options}, [], [])
        groups = np.searchsorted(np.arange(1, 8) / 8, np.cumsum(expected) - expected / 2)
        sampler = Sampler(GenerationOptions(temperature=1.5, **options), [], seed, count)
        drawn = [sampler.choose(logits)[0] for _ in range(number)]
        assert (expected[drawn] > 0).all()
        counts = np.bincount(groups[drawn], minlength=8)
        shares = np.bincount(groups, weights=expected, minlength=8)
        assert chisquare(counts, shares * number).pvalue > 1e-4, options


@pytest.mark.parametrize(("value", "name"), [(np.nan, "NaN"), (np.inf, "infinity")])
def test_logits_that_are_no_numbers(value: float, name: str) -> None:
    cases: list[dict[str, Any]] = [{}, {"temperature": 1.0}, {"temperature": 1.0, "top_p": 0.5, "logprobs": 2}]
    for options in cases:
        with pytest.raises(Error, match=f"logits have {name}"):
            Sampler(GenerationOptions(**options), [], 0, 3).choose(np.array([0, value, 1], np.float32))

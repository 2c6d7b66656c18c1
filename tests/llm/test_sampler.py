"""Sampling: the order of the parameters, written again, and the frequencies of the tokens."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from rlx.llm.options import GenerationOptions
from rlx.llm.sampler import Sampler


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


def test_seeds() -> None:
    logits = np.zeros(50, np.float32)

    def drawn(seed: int) -> list[int]:
        sampler = Sampler(GenerationOptions(temperature=1.0), [], seed, 50)
        return [sampler.choose(logits)[0] for _ in range(20)]

    assert drawn(3) == drawn(3) != drawn(4)

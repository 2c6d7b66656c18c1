"""The search for bit widths of weights: budgets are kept, and met if possible."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from tests.drawing import drawn
from tests.quantization.networks import Arrays, batches, network, weights


def _searched(**options: Any) -> rlx.BitWidths:
    graph = network("convolution")
    params, data = weights(graph, 0), batches(graph, 4, 1)
    ranges = rlx.observe_ranges(graph, data, params=params, device=None)
    return rlx.search_bits(graph, ranges, data, params=params, progress=False, **options)


@drawn("larger", [372, 190])
def test_bytes(larger: int) -> None:
    counts = {"c1": 36, "c2": 216, "fc": 120}
    for most in (larger, 93):
        found = _searched(max_bytes=most)
        assert found.weight_bytes == sum(-(-n * found.layers[name] // 8) for name, n in counts.items()) <= most
    assert set(found.layers.values()) == {2}
    assert _searched(max_bytes=400).layers == dict.fromkeys(counts, 8)
    with pytest.raises(rlx.Error, match="2 bits everywhere the weights take 93 bytes, more than 92"):
        _searched(max_bytes=92)


def test_scores() -> None:
    found = _searched(min_score=0.98)
    assert found.score_at_8 > found.score >= 0.98 and found.weight_bytes < 372
    assert {t.bits for t in found.trials} == {4, 2} and all(t.score <= 1 for t in found.trials)
    lines = str(found).splitlines()
    assert lines[-1].endswith("with 8 bits") and len(lines) == 5
    with pytest.raises(rlx.Error, match="with 8 bits everywhere the score is"):
        _searched(min_score=0.99999)
    with pytest.raises(rlx.Error, match=r"no choice of bits was found.*in 94 bytes"):
        _searched(min_score=0.98, max_bytes=94)


def test_a_score_of_ones_own() -> None:
    seen: list[list[Arrays]] = []

    def negative_error(outputs: list[Arrays]) -> float:
        seen.append(outputs)
        return -float(np.mean([np.abs(o["output0"]).mean() for o in outputs]))

    assert _searched(max_bytes=200, score=negative_error).weight_bytes <= 200
    assert all(o["output0"].dtype == np.float32 and o["output0"].shape == (1, 5) for o in seen[0]) and len(seen[0]) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs a budget"),
        ({"max_bytes": -1}, "max_bytes is a number of bytes"),
        ({"max_bytes": 1.5}, "max_bytes is a number of bytes"),
        ({"min_score": "high"}, "min_score must be a number"),
    ],
)
def test_what_is_wrong_is_said(options: dict[str, Any], message: str) -> None:
    with pytest.raises(rlx.Error, match=message):
        _searched(**options)

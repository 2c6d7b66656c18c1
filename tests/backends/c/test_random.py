"""Random graphs of integers: the evaluator and the C of this machine agree to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
from tests.backends.c.graphs import random_graph

CASES = 25


@pytest.mark.parametrize("seed", range(8))
def test_the_host_gives_what_the_evaluator_gives(seed: int) -> None:
    graph, inputs = random_graph(1000 + seed, CASES)
    got = rlx.Session("c").compile(graph, cache=False).run(inputs)
    for output, one, other in zip(graph.outputs, got, rlx.evaluate(graph, inputs), strict=True):
        assert np.array_equal(one, other), output.name

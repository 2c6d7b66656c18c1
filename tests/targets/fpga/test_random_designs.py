"""Random integer graphs: hardware agrees exactly with the evaluator."""

from __future__ import annotations

import numpy as np

from tests.drawing import drawn, graph_seed
from tests.packages import needs_package
from tests.targets.fpga.integer_graphs import inputs_of, random_graph, random_options
from tests.targets.fpga.simulated import check

pytestmark = [needs_package("pycde", "fpga"), needs_package("llvmlite", "fpga")]

_BATCHES, _GRAPHS = 16, 10


@drawn("batch", range(_BATCHES), of_each=2)
def test_hardware_is_the_evaluator(batch: int, seed: int) -> None:
    kinds: set[str] = set()
    for number in range(_GRAPHS):
        own = graph_seed(seed, batch * _GRAPHS + number)
        rng = np.random.default_rng(own)
        graph = random_graph(rng)
        options = random_options(rng)
        try:
            design = check(graph, [inputs_of(graph, rng) for _ in range(3)], part="xc7", **options)
        except Exception as problem:
            raise AssertionError(f"graph {own}, {options}: {problem}") from problem
        kinds |= {type(layer).__name__ for layer in design.network.layers}
    assert {"Pointwise", "Requantiser", "WindowLayer"} <= kinds

"""An activation that several products read is computed once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from tests.ops.references import agree
from tests.targets.iree.iree_text import iree_text


def _graph(kind: str, products: int) -> rlx.Graph:
    g: Any = rlx.Graph("layer")
    x, w, y = g.input("x", (5, 6)), g.input("w", (6, 7)), g.input("y", (5, 3))
    h = g.activation(kind, x)
    g.set_outputs([h @ w, g.transpose(h) @ y][:products])
    return g


def _fences(graph: rlx.Graph) -> int:
    return iree_text(graph).count('"util.optimization_barrier"')


@pytest.mark.parametrize(("kind", "products", "fences"), [("gelu", 2, 1), ("gelu", 1, 0), ("relu", 2, 0)])
def test_is_kept(kind: str, products: int, fences: int) -> None:
    graph = _graph(kind, products)
    assert _fences(graph) == fences
    rng = np.random.default_rng(0)
    values = {a.name: rng.standard_normal(a.shape.static).astype(np.float32) for a in graph.arguments}
    for got, expected in zip(rlx.Session().compile(graph).run(values), rlx.evaluate(graph, values), strict=True):
        agree(got, expected, noise=np.array(1e-5))

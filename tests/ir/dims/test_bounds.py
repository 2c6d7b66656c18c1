"""Bounds of open sizes: as text, through passes and transforms, and their checks at run time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.dims.bounds import bounds_from_text, bounds_text

BATCHES, EVENS = 'tensor<?x2xf32, #rlx.dims<["batch"]>>', 'tensor<?xf32, #rlx.dims<["2*n"]>>'
TEXT = f"""
func.func @main(%x: {BATCHES} {{rlx.name = "x", rlx.bounds = "3 <= batch <= 64"}},
                %y: {EVENS} {{rlx.name = "y", rlx.bounds = "2*n <= 9"}}) -> {BATCHES} {{
  %s = rlx.reduce(%y) {{axes = array<i64: 0>, keep_dims = false, kind = "sum"}} : ({EVENS}) -> tensor<f32>
  %r = rlx.binary(%x, %s) {{kind = "mul"}} : ({BATCHES}, tensor<f32>) -> {BATCHES}
  return %r : {BATCHES}
}}
"""
OUTSIDE = [
    ((2, 4), "input 'x': batch must be 3 or more (for batch = 2)"),
    ((65, 4), "input 'x': batch must be 64 or less (for batch = 65)"),
    ((3, 10), "input 'y': 2*n must be 9 or less (for n = 5)"),
]


def given(rows: int, length: int) -> dict[str, np.ndarray]:
    return {"x": np.ones((rows, 2), np.float32), "y": np.ones(length, np.float32)}


def holds(run: Callable[[dict[str, np.ndarray]], Any]) -> None:
    """Sizes at the bounds are accepted; sizes beyond them are refused."""
    for sizes in ((3, 0), (64, 8)):
        run(given(*sizes))
    for sizes, message in OUTSIDE:
        with pytest.raises(rlx.ShapeError) as caught:
            run(given(*sizes))
        assert message in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["3 <= batch <= 64", "0 <= n", "n <= 0", "3 <= n and 2*n+m//3 <= 9", "max(n,2) <= 4", "n%2 == 0", "n-m != -3"],
)
def test_text(text: str) -> None:
    assert bounds_text(bounds_from_text(text)) == text


def test_the_graph_keeps_them() -> None:
    g = rlx.parse(TEXT)
    assert rlx.parse(str(g)).arguments == g.arguments
    simplified = rlx.passes.run(g, "rlx-decompose,rlx-simplify,canonicalize,cse")
    for graph in (g.clone(), rlx.vjp(g, ["y"]), rlx.jvp(g, ["x"]), rlx.vmap(g, {"x": 1}, size=2), simplified):
        assert [a.bounds for a in graph.arguments[:2]] == [a.bounds for a in g.arguments]


def test_whatever_runs_the_graph_checks_them(tmp_path: Path) -> None:
    g = rlx.parse(TEXT)
    compiled = rlx.Session("cpu").compile(g)
    compiled.save(tmp_path / "bounded.rlxa")
    holds(lambda values: rlx.evaluate(g, values))
    holds(compiled.run)
    holds(rlx.deploy.load(tmp_path / "bounded.rlxa").run)


def test_sizes_that_are_bound_lie_within() -> None:
    g = rlx.parse(TEXT)
    bound = rlx.passes.run(g, "rlx-bind{batch=3*k n=4}")
    assert [[str(b) for b in a.bounds] for a in bound.arguments] == [["3 <= 3*k <= 64"], []]
    for sizes, message in {
        "batch=2": "batch must be 3 or more, got 2",
        "n=5": r"2\*n must be 9 or less, got 10",
    }.items():
        with pytest.raises(rlx.PassError, match=f"rlx-bind: .*{message}"):
            rlx.passes.run(g, f"rlx-bind{{{sizes}}}")
    with pytest.raises(rlx.Error, match="'x': batch must be 64 or less, got 65"):
        rlx.Session("cpu").compile(g, bind={"batch": 65})

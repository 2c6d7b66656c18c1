"""Differences between two listings of one graph."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.graph.listing import GraphReport, inspect_graph
from rlx.ir.graph.listing_diff import inspect_diff
from tests.models.tiny_bert import encoder


def chain(extra: set[int], *, swapped: int | None = None, alike: bool = True) -> GraphReport:
    """Return a listing of equal layers, some of them with an additional op, and one with exchanged operands.

    Args:
        extra: The layers with one more op.
        swapped: The layer whose operands are exchanged.
        alike: Whether all layers read the same value, rather than each its own.
    """
    g: Any = rlx.Graph("chain")
    h = x = g.input("x", (4, 4))
    for i in range(60):
        w = x if alike else g.param(f"w{i}", (4, 4))
        h = g.tanh(h) - w if i != swapped else w - g.tanh(h)
        if i in extra:
            h = g.exp(h)
    g.set_outputs([h])
    return inspect_graph(g)


def check(before: GraphReport, after: GraphReport) -> tuple[int, int]:
    """Check that the diff has every op of both listings once, in order. Return how many were removed and added."""
    diff = inspect_diff(before, after)
    signs = [line.sign for line in diff.lines]
    assert [line.text for line in diff.lines if line.sign != "-"] == list(map(str, after.ops))
    assert signs.count(" ") + diff.removed == len(before.ops)
    assert [line.text for line in diff.lines if line.sign == "-"] == [
        str(op) for op in before.ops if str(op) in {line.text for line in diff.lines if line.sign == "-"}
    ]
    return diff.removed, diff.added


@pytest.mark.parametrize("seed", range(6))
def test_what_came_and_went_is_found(seed: int) -> None:
    draw = random.Random(seed)
    before, after = (set(draw.sample(range(60), draw.randrange(8))) for _ in range(2))
    for alike in (False, True):
        removed, added = check(chain(before, alike=alike), chain(after, alike=alike))
        assert removed >= len(before - after) and added >= len(after - before)
        if not alike:  # the op after each difference reads another value; equal ops cannot always be distinguished
            assert removed + added <= 3 * len(before ^ after)


def test_numbers_are_no_change_and_operands_are() -> None:
    assert check(chain(set()), chain(set())) == (0, 0) and not inspect_diff(chain(set()), chain(set())).hunks()
    assert check(chain({3}), chain(set())) == (1, 0)
    (removed, added) = check(chain(set()), chain(set(), swapped=30))
    assert removed == added == 1
    text = str(inspect_diff(chain(set()), chain(set(), swapped=30)))
    assert text.startswith("… 59 ops\n") and text.count("\n- ") == text.count("\n+ ") == 1


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        (np.array([1, 2, 3], np.float32), np.array([1, 2, 3], np.float32), True),
        (np.array([1, 2, 3], np.float32), np.array([3, 2, 1], np.float32), False),
        (np.array([2, 2, 2], np.float32), np.array([3, 3, 3], np.float32), False),  # splats
        (np.array([[1, 2, 3], [1, 2, 3]], np.float32), np.array([[1, 2, 3], [1, 2, 4]], np.float32), False),
        (np.array([0, 1, 2], np.float32), np.array([-0.0, 1, 2], np.float32), False),
        (np.array([5], np.float32), np.array([6], np.float32), False),
        (np.array([], np.float32), np.array([], np.float32), True),
    ],
)
def test_values_of_constants_are_compared(first: np.ndarray, second: np.ndarray, is_same: bool) -> None:
    reports = []
    for value in (first, second):
        g: Any = rlx.Graph("scaled")
        g.set_outputs([g.input("x", (2, value.shape[-1])) * g.constant(value)])
        reports.append(inspect_graph(g))
    diff = inspect_diff(*reports)
    assert (diff.removed, diff.added) == ((0, 0) if is_same else (1, 1))
    changed = [line.text for line in diff.lines if line.sign != " "]
    assert len(set(changed)) == len(changed), "the lines differ, so that a reader sees the change"


@pytest.mark.parametrize("passes", ["rlx-lower-blocks", "rlx-lower-blocks,rlx-fuse", "rlx-lower-blocks,rlx-decompose"])
def test_passes_over_a_model(passes: str) -> None:
    graph = encoder()
    removed, added = check(inspect_graph(graph), inspect_graph(rlx.passes.run(graph, passes)))
    assert removed >= 2 and added >= 10

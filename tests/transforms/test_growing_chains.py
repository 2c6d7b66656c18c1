"""Derivatives of a chain of ops: the work is proportional to its length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rlx
from tests.growth import check_linear

SMALL, LARGE = 3, 12


def link(g: Any, x: Any) -> Any:
    """Build a chain of unary and binary ops, a choice, a product, a reduction, and ops that move elements."""
    y = g.transpose(g.matmul(g.sin(x), x), (1, 0))
    return g.softmax(g.where(g.gt(y, 0.0), y * x, g.concat([y[1:], y[:1]], 0)))


TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "jvp": lambda g: rlx.jvp(g, ["x"]),
    "hvp": lambda g: rlx.hvp(g, ["x"]),
    "hessian": lambda g: rlx.hessian(g, ["x"]),
    "vmap": lambda g: rlx.vmap(g, {"x": 0}, size=2),
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_transforms_of_chains(transform: Callable[[Any], Any]) -> None:
    def work(count: int) -> Callable[[], Any]:
        g: Any = rlx.Graph("chain")
        x = y = g.input("x", (3, 3))
        for _ in range(count):
            y = link(g, y)
        g.set_outputs(g.sum(y * x))
        return lambda: str(transform(g))

    check_linear(work, SMALL, LARGE)

"""Calls as users of NumPy, JAX and PyTorch type them: each works, or is answered with the call that does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx

CALLS = (Path(__file__).parent / "calls_as_typed.txt").read_text().splitlines()
ANSWERS = ("instead: ", "did you mean", "hint: ")


def _names() -> dict[str, Any]:
    g: Any = rlx.Graph()
    shapes = {
        **dict.fromkeys(("x", "y"), (2, 3, 4)),
        **{"m": (3, 4), "w": (4, 5), "v": (4,), "lg": (2, 5), "q": (1, 2, 4, 8)},
        **{"img": (1, 3, 8, 8), "k": (6, 3, 3, 3), "b6": (6,), "sq": (3, 3)},
    }
    names = {name: g.input(name, dims) for name, dims in shapes.items()}
    for name, dims in {"i": (3,), "lab": (2,), "s": (), "ii": (3, 4)}.items():
        names[name] = g.input(name, dims, dtype="i32")
    return names | {"g": g, "np": np, "rlx": rlx, "mask": g.input("mask", (3, 4), dtype="bool")}


def test_most_work_as_typed() -> None:
    names, working = _names(), 0
    for call in CALLS:
        try:
            exec(call, dict(names))
            working += 1
        except (rlx.Error, AttributeError, TypeError, ImportError):
            pass
    assert working >= 810, f"{working} of {len(CALLS)}"


@pytest.mark.parametrize("call", CALLS)
def test_a_call_works_or_is_answered(call: str) -> None:
    try:
        exec(call, _names())
    except (rlx.Error, AttributeError, TypeError, ImportError) as problem:
        assert any(answer in str(problem) for answer in ANSWERS), str(problem)

"""Whatever stands in place of an argument of a method of graphs: it is taken, or refused with an error of RLX's."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ops import surface

VALUES: list[Any] = [
    -1,
    2.5,
    "a",
    None,
    [],
    {},
    float("nan"),
    10**30,
    -(10**30),
    object(),
    (1, "x"),
    True,
    b"x",
    [None],
]
VALUES += [np.zeros(0, np.float32), lambda: 0]
# What stands in place of the others.
USUAL: dict[str, Any] = {
    **dict.fromkeys(("axis", "k", "n", "num", "size", "length", "kernel"), 1),
    **dict.fromkeys(("shape", "sizes"), (2, 3, 4)),
    "dtype": "f32",
}
BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@pytest.mark.parametrize("name", sorted(surface.methods()))
def test_any_argument_is_taken_or_refused(name: str) -> None:
    method = getattr(rlx.Graph, name)
    _, *parameters = inspect.signature(method).parameters.values()
    for tested in parameters:
        if tested.kind is tested.VAR_KEYWORD:
            continue
        for value in VALUES:
            g: Any = rlx.Graph()
            x, indices = g.input("x", (2, 3, 4)), g.input("i", (2,), dtype="i32")
            usual = {**USUAL, "xs": [x, x], **dict.fromkeys(("indices", "target", "labels"), indices)}
            # By name, so that those with a default may be left out; what has no name comes by its position.
            named = {p.name: usual.get(p.name, x) for p in parameters if p.default is p.empty and p.kind in BY_NAME}
            rest: tuple[Any, ...] = ()
            if tested.kind in BY_NAME:
                named[tested.name] = value
            else:
                rest = (value,)
            first = [
                named.pop(p.name) for p in parameters if rest and p.name in named and p.kind is p.POSITIONAL_OR_KEYWORD
            ]
            try:
                method(g, *first, *rest, **named)
            except rlx.Error:
                pass
            except Exception as problem:
                pytest.fail(f"{tested.name} = {value!r:.40}: {type(problem).__name__}: {problem}")

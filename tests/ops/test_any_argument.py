"""Any value in place of an argument of a graph method is accepted, or refused with an RLX error."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np

import rlx
from rlx.ops import surface
from tests.drawing import drawn

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
# Values for the other arguments.
USUAL: dict[str, Any] = {
    **dict.fromkeys(("axis", "k", "n", "num", "size", "length", "kernel"), 1),
    **dict.fromkeys(("shape", "sizes"), (2, 3, 4)),
    "dtype": "f32",
}
BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def _unanswered(name: str) -> Iterator[str]:
    """Yield calls of a method that fail with an error that is not RLX's."""
    method = getattr(rlx.Graph, name)
    _, *parameters = inspect.signature(method).parameters.values()
    g: Any = rlx.Graph()
    x, indices = g.input("x", (2, 3, 4)), g.input("i", (2,), dtype="i32")
    usual = {**USUAL, "xs": [x, x], **dict.fromkeys(("indices", "target", "labels"), indices)}
    for tested in parameters:
        if tested.kind is tested.VAR_KEYWORD:
            continue
        for value in VALUES:
            # Arguments are passed by name, so that those with a default may be omitted; nameless ones are passed by
            # position.
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
                yield f"{name}: {tested.name} = {value!r:.40}: {type(problem).__name__}: {problem}"


@drawn("share", range(3))
def test_any_argument_is_taken_or_refused(share: int) -> None:
    failures = [failure for name in sorted(surface.methods())[share::3] for failure in _unanswered(name)]
    assert not failures, "\n".join(failures)

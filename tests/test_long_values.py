"""Long values for any argument of public calls: messages have bounded length, and are always messages."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ops.surface import methods
from rlx.support.short import short_repr, shorten_lines
from tests.drawing import drawn

LONGEST = 2500  # characters: much more than any message that does not repeat a value
LONG: dict[str, Any] = {
    "text": "x" * 44_000,
    "number": 10**5000,  # Python refuses to print it
    "list": list(range(20_000)),
    "texts": ["n" * 50] * 5000,
    "array": np.arange(30_000.0).reshape(100, 300),
    "bytes": b"y" * 44_000,
    "mapping": {f"k{i}": i for i in range(20_000)},
}
SHARES = 16
# Calls that take an object from another call instead of a value that users write.
INTERNAL = {
    "CompileResult",
    "Program",
    "Device",
    "inspect_graph",
    "quantizations",
    "tick",
    "train.Optimizer",
}


def graph() -> rlx.Graph:
    g = rlx.Graph()
    g.set_outputs(g.input("x", (4, 4)) @ g.param("w", (4, 4)))
    return g


def public() -> dict[str, Any]:
    """Return the public calls, by name. Methods of graphs get a graph when they are called."""
    found = {n: f for n in dir(rlx) if not n.startswith("_") and n not in INTERNAL and callable(f := getattr(rlx, n))}
    for package in ("nn", "train"):
        module = getattr(rlx, package)
        found |= {f"{package}.{n}": f for n in module.__all__ if callable(f := getattr(module, n))}
    errors = {n for n, f in found.items() if isinstance(f, type) and issubclass(f, BaseException)}
    return {n: f for n, f in found.items() if n not in errors and n not in INTERNAL and "Logger" not in n}


def check(call: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Check that a call succeeds, or raises a short message.

    Python's own messages about missing arguments are excluded, as are NumPy's about an array instead of True or False.
    """
    try:
        call(*args, **named)
    except rlx.Error as problem:
        assert len(str(problem)) <= LONGEST, f"{call} of {[*named] or len(args)}: {str(problem)[:300]}"
    except ValueError as problem:
        assert "truth value of an array" in str(problem), f"{call} of {[*named] or len(args)}: {problem}"
    except TypeError as problem:
        assert "argument" in str(problem) or "instantiated" in str(problem), (
            f"{call} of {[*named] or len(args)}: {problem}"
        )


def parameters(call: Any) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    try:
        return [p.name for p in inspect.signature(call).parameters.values() if p.kind in kinds]
    except (TypeError, ValueError):
        return []


@pytest.mark.filterwarnings("ignore")
@drawn("share", range(SHARES))
def test_of_methods_of_graphs(share: int) -> None:
    for name in sorted(methods())[share::SHARES]:
        for value in LONG.values():
            g = rlx.Graph()
            x, y = g.input("x", (4, 4)), g.input("y", (4, 4))
            call = getattr(g, name)
            for args in ((value,), (x, value), (x, y, value)):
                check(call, args, {})
            for parameter in parameters(call)[1:]:
                check(call, (x,), {parameter: value})


@pytest.mark.filterwarnings("ignore")
@drawn("share", range(4))
def test_of_public_functions(share: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, call in sorted(public().items())[share::4]:
        for value in LONG.values():
            for first in ((), (graph(),), ((4, 4),)):
                check(call, (*first, value), {})
                for parameter in parameters(call)[len(first) :]:
                    check(call, first, {parameter: value})
        assert name


def test_what_is_left_out_is_in_the_middle() -> None:
    assert short_repr(3) == "3" and short_repr([1, 2]) == "[1, 2]" and short_repr("a'b") == repr("a'b")
    assert short_repr(list(range(10**6))).endswith("10, 11, ...]")
    assert len(short_repr("x" * 10**6)) <= 120 and len(short_repr([["x" * 1000] * 1000] * 1000)) < 20_000
    assert shorten_lines("short") == "short"
    line = "a" * 500 + "b" * 5000 + "c" * 100
    assert shorten_lines(f"one\n{line}\nthree").split("\n")[::2] == ["one", "three"]
    assert (
        shorten_lines(line).startswith("a" * 500)
        and shorten_lines(line).endswith("c" * 100)
        and "of 5600 characters" in shorten_lines(line)
    )
    assert len(str(rlx.Error("x\n" * 10**6, hint="y" * 10**6, location="z" * 10**6))) < 10_000


@pytest.mark.parametrize("value", [LONG["number"], np.array(None)], ids=["number", "an array that is no sequence"])
def test_in_the_place_of_something_else(value: Any) -> None:
    g = rlx.Graph()
    x = g.input("x", (4, 4))
    calls = (
        lambda: x[value],
        lambda: g.scan(value, x, x),
        lambda: g.input("y", value),
        lambda: g.set_outputs(value),
        lambda: rlx.passes.run(graph(), value),
        lambda: rlx.jvp(graph(), value),
    )
    for call in calls:
        with pytest.raises(rlx.Error) as caught:
            call()
        assert len(str(caught.value)) < 1000

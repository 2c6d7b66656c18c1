"""Calls as users of NumPy, JAX and PyTorch type them: each works, or its error names the call that does.

The file of calls has an indented line with the answer below each call that does not work. After an intended change,
`python -m tests.ops.test_calls_as_typed` writes the file again. Review the changed answers in the diff.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.calls import CallError

FILE = Path(__file__).parent / "calls_as_typed.txt"
INDENT = "    "
_ANSWERS = ("hint: (.*)", "(instead: .*)", "(did you mean .*)")
REFUSALS = (rlx.Error, AttributeError, TypeError, ImportError)


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


def answer_in(message: str) -> str:
    """Return the advice in a message; empty if there is none."""
    found = next((m for m in (re.search(pattern, message, re.S) for pattern in _ANSWERS) if m), None)
    return " ".join(found[1].split()) if found else ""


def _refusal(call: str) -> Exception | None:
    """Return the error of a call; None if the call works."""
    try:
        exec(call, _names())
    except REFUSALS as problem:
        return problem
    return None


def _answer(call: str) -> str:
    """Return the advice in the error of a call; empty if the call works."""
    problem = _refusal(call)
    if problem is None:
        return ""
    answer = answer_in(str(problem))
    assert answer, f"{call}: {problem}"
    return answer


def _recorded() -> dict[str, str]:
    answers: dict[str, str] = {}
    for line in FILE.read_text().splitlines():
        if line.startswith(INDENT):
            answers[next(reversed(answers))] = line.strip()
        else:
            answers[line] = ""
    return answers


def _used(call: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(call)) if isinstance(node, ast.Name)} - {"g"}


def _difference(call: str, expected: str, found: str) -> str:
    return f"{call}\n  now: {found or 'works'}\n  was: {expected or 'works'}"


def _without_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out of answers what differs between processes and machines: custom ops of other tests, and GPUs."""
    monkeypatch.setattr("rlx.answers.names.calls_named", lambda name: [])
    monkeypatch.setattr("rlx.runtime.device._found", lambda drivers: "no GPU")


def test_a_call_works_or_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    _without_surroundings(monkeypatch)
    recorded = _recorded()
    found = {call: _answer(call) for call in recorded}
    changed = [_difference(call, was, found[call]) for call, was in recorded.items() if found[call] != was]
    assert not changed, "\n".join(changed)


def test_calls_with_other_keywords_work_as_their_answer_says() -> None:
    """The answer to a wrong keyword repeats the call with the right one, so that it can be copied."""
    failed: list[str] = []
    tried = 0
    for call, answer in _recorded().items():
        instead = re.match(r"instead: (g\.\w+\(.*?\))(?=;|$)", answer)
        if instead is None or not isinstance(_refusal(call), CallError):
            continue
        if _used(instead[1]) <= _used(call):
            tried += 1
            if problem := _refusal(instead[1]):
                failed.append(f"{call}\n  answer: {instead[1]}\n  {type(problem).__name__}: {problem}")
    assert not failed, f"{len(failed)} of {tried}:\n" + "\n".join(failed)
    assert tried > 50, tried


def _write() -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        _without_surroundings(monkeypatch)
        lines = [line for call in _recorded() for line in (call, INDENT + _answer(call)) if line.strip()]
    FILE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    _write()

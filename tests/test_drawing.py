"""The sample of tests in a run: the same for a seed, different for another seed, and all tests on request."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.drawing import (
    COSTLY,
    SEED,
    command,
    costly_functions,
    draw,
    left_out_of_quick_runs,
    number_of_seed,
    of_which,
    shares,
)

_ROOT = Path(__file__).resolve().parents[1]
_LEVELS = ("host", "v2", "v3", "foreign")


def _items() -> list[Any]:
    """Return 200 cases at four levels, 100 in three shares at four levels, and one test without parameters."""
    level, share = of_which("level", weights={"foreign": 0.15}), of_which("share")

    def item(test: str, marks: list[pytest.MarkDecorator], **params: object) -> Any:
        name = f"tests/test_a.py::{test}[{'-'.join(map(str, params.values()))}]"
        own = [mark.mark for mark in marks]
        return SimpleNamespace(nodeid=name, callspec=SimpleNamespace(params=params), iter_markers=lambda _: iter(own))

    items = [item("at", [level], case=f"case{i}", level=name) for i in range(200) for name in _LEVELS]
    items += [
        item("of", [level, share], case=f"case{i}", share=number, level=name)
        for i in range(100)
        for number in range(3)
        for name in _LEVELS
    ]
    return [*items, SimpleNamespace(nodeid="tests/test_a.py::test_plain", iter_markers=lambda _: iter(()))]


def _drawn(seed: int) -> list[str]:
    return [item.nodeid for item in draw(_items(), seed)]


def test_each_case_is_drawn_once() -> None:
    names = _drawn(SEED)
    assert len(names) == len(set(names)) == 301
    assert {name.partition("-")[0] for name in names[:200]} == {f"tests/test_a.py::at[case{i}" for i in range(200)}
    levels = Counter(name.rpartition("-")[2] for name in names[:200])
    assert min(levels[f"{level}]"] for level in _LEVELS[:3]) > 40 and 0 < levels["foreign]"] < 30
    assert {name.split("-")[1] for name in names[200:300]} == {"0", "1", "2"}


def test_of_a_group_one_is_drawn_and_of_the_others_all() -> None:
    groups = {f"op{i}": i // 3 for i in range(60)}  # of 70
    share, op = of_which("share"), of_which("op", groups=groups)

    def item(**params: object) -> Any:
        name = f"tests/test_a.py::test[{'-'.join(map(str, params.values()))}]"
        marks = [op.mark, share.mark]
        return SimpleNamespace(nodeid=name, callspec=SimpleNamespace(params=params), iter_markers=lambda _: iter(marks))

    items = [item(op=f"op{i}", share=number) for i in range(70) for number in range(1 + i % 4)]
    names = lambda seed: [i.nodeid.partition("[")[2].partition("-")[0] for i in draw(items, seed)]  # noqa: E731
    chosen = names(SEED)
    assert len(chosen) == len(set(chosen)) == 30
    assert {groups[name] for name in chosen if name in groups} == set(range(20))
    assert chosen != names(1)


def test_a_seed_draws_the_same_every_time() -> None:
    assert _drawn(3) == _drawn(3) != _drawn(4)


def test_a_new_case_changes_no_other() -> None:
    items = _items()
    without = [item for item in items if "case7-" not in item.nodeid]
    assert {i.nodeid for i in draw(without, 1)} == {n for n in _drawn(1) if "case7-" not in n}


def test_shares_have_some_of_everything() -> None:
    things = [(sample, dtype) for sample in range(10) for dtype in range(8)]
    dealt = shares(things, 4, lambda thing: thing[0])
    assert sorted(thing for share in dealt for thing in share) == things
    for share in dealt:
        assert Counter(sample for sample, _ in share) == dict.fromkeys(range(10), 2)
        assert len({dtype for _, dtype in share}) >= 6


def test_quick_runs_have_some_costly_tests_of_every_file(monkeypatch: pytest.MonkeyPatch) -> None:
    costly = {f"tests/test_{file}.py::test_{number}" for file in "abc" for number in range(5)}
    monkeypatch.setattr("tests.drawing.costly_functions", lambda: costly)
    names = [f"{name}[{case}]" for name in sorted(costly) for case in range(3)] + ["tests/test_a.py::test_cheap"]
    left_out = left_out_of_quick_runs(names, SEED)
    run = [name for name in names if name not in left_out]
    assert run[-1] == "tests/test_a.py::test_cheap"
    assert Counter(name.partition("::")[0] for name in run[:-1]) == {f"tests/test_{file}.py": 3 for file in "abc"}
    assert len({name.partition("[")[0] for name in run[:-1]}) == 9  # different functions before several cases
    assert left_out_of_quick_runs(names[::-1], SEED) == left_out != left_out_of_quick_runs(names, 1)


def test_costly_tests_exist() -> None:
    texts = {path: path.read_text() for path in (_ROOT / "tests").rglob("test_*.py")}
    assert len(costly_functions()) > 100
    for name in costly_functions():
        file, _, function = name.partition("::")
        assert f"def {function}(" in texts.get(_ROOT / file, ""), f"{COSTLY.name}: {name} does not exist; remove it"


def test_seeds() -> None:
    assert number_of_seed(None) == number_of_seed("") == SEED
    assert number_of_seed("17") == 17
    assert number_of_seed("random") > 0
    with pytest.raises(pytest.UsageError, match="expected a number or 'random'"):
        number_of_seed("often")


_FAILING = """
from hypothesis import given, strategies as st
from tests.drawing import drawn

@drawn("number", range(9), of_each=2)
def test_number(number): assert False

@given(st.integers())
def test_example(example): assert example < 100

def test_seed(seed): assert seed < 0

def test_plain(): assert False
"""


def test_a_failure_says_what_repeats_it(tmp_path: Path) -> None:
    (tmp_path / "test_failing.py").write_text(_FAILING)
    (tmp_path / "conftest.py").write_text("from tests.conftest import *")

    def run(*arguments: str) -> str:
        words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), *arguments]
        words += ["-o", f"pythonpath={_ROOT}", "-o", "filterwarnings=default"]
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False).stdout

    printed = run("--seed=17", "test_failing.py")
    assert "seed: 17" in printed and "5 failed, 7 deselected" in printed
    commands = [line for line in printed.splitlines() if line.startswith("python -m pytest --seed=17 ")]
    assert len(commands) == 4  # all but the plain one
    again = run(*shlex.split(commands[0])[3:])
    assert "1 failed" in again and commands[0] in again
    assert "12 failed" in run("--full", "test_failing.py")


def test_a_command_can_be_pasted() -> None:
    item: Any = SimpleNamespace(nodeid="tests/test_a.py::test[it's a b]")
    assert command(item, 2) == """python -m pytest --seed=2 'tests/test_a.py::test[it'"'"'s a b]'"""

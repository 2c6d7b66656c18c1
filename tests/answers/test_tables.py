"""The tables of answers, their reader, and when they are loaded."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import rlx.answers
from rlx.answers.calls import keywords
from rlx.answers.modules import counterparts
from rlx.answers.names import calls
from rlx.answers.reader import groups, lines, parsed, table

FOLDER = Path(rlx.answers.__file__ or "").parent / "tables"


def test_a_table_has_a_name_once() -> None:
    assert parsed(["a b : c", "d : e"]) == {"a": "c", "b": "c", "d": "e"}
    with pytest.raises(ValueError, match="a stands twice"):
        parsed(["a : b", "a : c"])


def test_a_line_without_an_answer_is_refused() -> None:
    with pytest.raises(ValueError, match="has no answer: a b"):
        parsed(["a b", "c : d"])


def test_lines_are_continued_and_comments_left_out() -> None:
    assert [*lines("# a comment\na b :\n    first\n    second\n# another\nc : d\n")] == ["a b : first second", "c : d"]


def test_every_file_is_read() -> None:
    """A file that no function reads would answer nothing."""
    known = {*calls(), *keywords(), *(name for names in counterparts().values() for name in names)}
    for path in FOLDER.rglob("*.txt"):
        file = path.relative_to(FOLDER).with_suffix("").as_posix()
        if file in ("within", "tensors/graphs", "keywords/notes") or file.startswith("attributes/"):
            assert table(file)
        elif file == "keywords/synonyms":
            assert all(len(group) > 1 for group in groups(file))
        else:
            names = {f"({n})" if file in ("keywords/ops", "keywords/classes") else n for n in table(file)}
            assert {f"graph({n})" if file == "keywords/graphs" else n for n in names} <= known, file


def test_no_answer_is_loaded_before_an_error() -> None:
    program = """
        import sys, rlx
        g = rlx.Graph("first")
        x, w = g.input("x", ("n", 4)), g.param("w", (4, 3))
        g.set_outputs({"y": g.relu(x @ w)})
        layer, step, function = rlx.nn.Linear(4, 3), rlx.train.TrainStep, rlx.jit(lambda x: x)
        assert not [name for name in sys.modules if name.startswith("rlx.answers")], sys.modules
        try:
            g.sum(x, dim=1)
        except rlx.Error as problem:
            assert "instead: g.sum(x, axis=1)" in str(problem)
        assert "rlx.answers.calls" in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)

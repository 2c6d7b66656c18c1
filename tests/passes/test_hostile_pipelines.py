"""Pipelines as untrusted text: at worst they are errors."""

from __future__ import annotations

from typing import Any

import pytest

import rlx
from rlx.cli import opt

HOSTILE = {
    "deep": "builtin.module(" * 5000 + "cse" + ")" * 5000,
    "unclosed": "any(" * 100_000,
    "null": "cse\0",
    "half a character": "cse{\ud800=1}",
    "long": "cse," * 400_000 + "cse",
    "long option": f"rlx-decompose{{except={'x' * 900_000}}}",
    "brackets in an option": f"rlx-decompose{{except={'{' * 100_000}}}",
    "long number": f"rlx-vmap{{size={'9' * 5000}}}",
    "long number of MLIR's": f"canonicalize{{max-iterations={'9' * 5000}}}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pipelines_are_errors(name: str, capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    g = rlx.Graph()
    g.set_outputs([g.relu(g.input("x", (4,)))])
    with pytest.raises(rlx.Error):
        rlx.passes.run(g, HOSTILE[name])
    file = tmp_path / "m.mlir"
    file.write_text(str(g))
    assert opt.main([str(file), f"--pass-pipeline={HOSTILE[name]}"]) == 1
    shown = capsys.readouterr()
    assert "error: " in shown.err and "internal error" not in shown.err and not shown.out


@pytest.mark.parametrize(
    "arguments", [["--check-numerics=²"], ["--check-numerics=" + "9" * 5000], ["-o", "a\0b"], ["a\0b"]]
)
def test_hostile_arguments_are_errors(arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    file = tmp_path / "m.mlir"
    file.write_text("module {\n}\n")
    files = [] if arguments == ["a\0b"] else [str(file)]
    assert opt.main([*arguments, *files]) == 1
    assert "internal error" not in capsys.readouterr().err

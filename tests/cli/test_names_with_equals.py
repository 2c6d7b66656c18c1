"""Names with `=` in `NAME=VALUE`: the names of the graph determine where a name ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.cli.pairs import split
from tests.cli.calling import Command


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    g = rlx.Graph("named")
    x, w = g.input("a=b", (2,)), g.param("layer=1.w", (2,))
    g.set_outputs({"y=1": x * w, "z": x + w})
    path = tmp_path / "named.mlir"
    path.write_text(str(g))
    np.save(tmp_path / "x=1.npy", np.array([1, 2], np.float32))
    return path


@pytest.mark.parametrize("value", ["@{}", "2xf32=1,2"])
def test_run(graph: Path, value: str, command: Command) -> None:
    folder = graph.parent
    value = value.format(folder / "x=1.npy")
    saved = (f"--save=y=1={folder}/product=.npy", f"--save=z={folder}/sum.npy")
    command.output("run", graph, "--evaluate", f"--input=a=b={value}", "--param=layer=1.w=2xf32=3", *saved)
    np.testing.assert_array_equal(np.load(folder / "product=.npy"), [3, 6])
    np.testing.assert_array_equal(np.load(folder / "sum.npy"), [4, 5])


def test_unknown_names_are_those_before_a_value(graph: Path, command: Command) -> None:
    message = command.error("run", graph, "--evaluate", "--input=c=b=2xf32=1")
    assert message.startswith("there is no input 'c=b' (did you mean 'a=b'?)")


@pytest.mark.parametrize(
    ("text", "names", "expected"),
    [
        ("x=@f", ["x"], ("x", "=", "@f")),
        ("a=b=@f", ["a=b"], ("a=b", "=", "@f")),
        ("a=b=@f", ["a", "a=b"], ("a=b", "=", "@f")),
        ("a=@b=@f", ["a"], ("a", "=", "@b=@f")),
        ("a=b=@f", ["c"], ("a=b", "=", "@f")),
        ("a=b=c", ["c"], ("a", "=", "b=c")),
        ("a", ["a"], ("a", "", "")),
        ("=", ["="], ("", "=", "")),
    ],
)
def test_split(text: str, names: list[str], expected: tuple[str, str, str]) -> None:
    assert split(text, "--input", names, lambda value: value.startswith("@")) == expected


def test_several_meanings_are_listed() -> None:
    with pytest.raises(rlx.Error, match=r"several meanings: 'a' with '@b=@f', 'a=@b' with '@f'"):
        split("a=@b=@f", "--input", ["a", "a=@b"], lambda value: value.startswith("@"))


@pytest.mark.parametrize(
    "arguments",
    [
        ("compile", "FILE", "--target=cpu", "--bind=n=" + "9" * 5000, "-o", "OUT"),
        ("compile", "FILE", "--target=cpu", "--bind=n=" + "9" * 20, "-o", "OUT"),
        ("run", "FILE", "--input=x=" + "9" * 5000 + "xf32=1"),
        ("run", "FILE", "--input=x=2xi32=" + "9" * 5000),
    ],
)
def test_numbers_of_many_digits_are_refused(arguments: tuple[str, ...], tmp_path: Path) -> None:
    g: Any = rlx.Graph("digits")
    g.set_outputs(g.input("x", ("n",)) * 2.0)
    (tmp_path / "g.mlir").write_text(str(g))
    words = [{"FILE": str(tmp_path / "g.mlir"), "OUT": str(tmp_path / "out")}.get(a, a) for a in arguments]
    found = subprocess.run([sys.executable, "-m", "rlx.cli.main", *words], capture_output=True, text=True, timeout=120)
    assert found.returncode == 1 and "Traceback" not in found.stderr, found.stderr[-500:]
    assert "error: " in found.stderr and len(found.stderr) < 8000

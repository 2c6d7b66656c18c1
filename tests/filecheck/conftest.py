"""Collects `*.mlir` files here: their `RUN:` lines run in this process, `rlx-opt` and `filecheck` both.

    // RUN: rlx-opt %s --rlx-simplify | filecheck %s
    // RUN: not rlx-opt %s --no-such-pass 2>&1 | filecheck %s --check-prefix=ERROR

A line is a pipe of `rlx-opt` and `filecheck` commands, or several with `&&` between; `not` in front expects failure,
and `2>&1` joins standard error.
`%s` is the file, `%S` its folder, `%t` a path for temporary output. A file whose line `REQUIRES:` names a Python package is
skipped where that is not installed.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from filecheck.matcher import Matcher  # pyright: ignore[reportMissingImports]  (it sees this folder)
from filecheck.options import parse_argv_options  # pyright: ignore[reportMissingImports]

from rlx.cli import opt
from tests.cli.standard_streams import Output, called

_REQUIRES = re.compile(r"^// REQUIRES: (\w+)$", re.MULTILINE)
_RUN = re.compile(r"//\s*RUN:\s*(.*?)(\\?)\s*$")


class RunError(Exception):
    """A command of a RUN line failed; the text is what it printed."""


def run_lines(text: str) -> list[str]:
    """The RUN lines of a file; a backslash at the end joins the next."""
    lines: list[str] = []
    joining = False
    for found in filter(None, map(_RUN.search, text.split("\n"))):
        if joining:
            lines[-1] += " " + found[1]
        else:
            lines.append(found[1])
        joining = bool(found[2])
    return lines


def rlx_opt(arguments: list[str], given: bytes) -> Output:
    """`rlx-opt` with arguments and standard input."""
    return called(lambda: opt.main(arguments), given)


def filecheck(arguments: list[str], given: bytes) -> Output:
    """`filecheck` with arguments and standard input."""
    return called(lambda: Matcher.from_opts(parse_argv_options(["filecheck", *arguments])).run(), given)


_COMMANDS = {"rlx-opt": rlx_opt, "filecheck": filecheck}


def run(line: str, substitutions: dict[str, str]) -> None:
    """Run one RUN line.

    Raises:
        RunError: A command gave another exit code than expected.
    """
    for pipe in line.split(" && "):
        _run_pipe(pipe, substitutions)


def _run_pipe(pipe: str, substitutions: dict[str, str]) -> None:
    data = b""
    for part in pipe.split(" | "):
        words = [_substituted(word, substitutions) for word in shlex.split(part)]
        fails = words[0] == "not"
        joined = "2>&1" in words
        words = [w for w in words[fails:] if w != "2>&1"]
        if words[0] not in _COMMANDS:
            raise RunError(f"'{words[0]}' is no command of these tests: {', '.join(_COMMANDS)}")
        output = _COMMANDS[words[0]](words[1:], data)
        if (output.code != 0) != fails:
            expected = "1" if fails else "0"
            text = (output.errors + output.text).decode()
            raise RunError(f"{part}\nexit code {output.code}, expected {expected}\n{text}\ninput:\n{data.decode()}")
        data = output.errors + output.text if joined else output.text


def _substituted(word: str, substitutions: dict[str, str]) -> str:
    for name, value in substitutions.items():
        word = word.replace(name, value)
    return word


class File(pytest.File):
    """A `.mlir` file with RUN lines."""

    def collect(self) -> Iterable[pytest.Item]:
        text = self.path.read_text(encoding="utf-8")
        missing = [name for name in _REQUIRES.findall(text) if importlib.util.find_spec(name) is None]
        for number, line in enumerate(run_lines(text), 1):
            item = RunItem.from_parent(self, name=f"RUN {number}", line=line)
            if missing:
                item.add_marker(pytest.mark.skip(reason=f"{missing[0]} is not installed"))
            yield item


class RunItem(pytest.Item):
    """One RUN line."""

    def __init__(self, *, line: str, **kwargs: Any):
        super().__init__(**kwargs)
        self.line = line

    def runtest(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            run(self.line, {"%s": str(self.path), "%S": str(self.path.parent), "%t": f"{directory}/t"})

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        if isinstance(excinfo.value, RunError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"{self.path.name}: {self.line}"


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> File | None:
    return File.from_parent(parent, path=file_path) if file_path.suffix == ".mlir" else None

"""Reader of the tables of answers.

A table is a text file. A line `names : answer` has names separated by spaces, and the call that replaces them. In it
`g` is a graph or `rlx.ops`, and `x` is a tensor. An indented line continues the line before, and a line that begins
with `#` is a comment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent / "tables"


@cache
def table(*files: str) -> dict[str, str]:
    """Return the answer for each name of some files, as `table("tensors/shapes")`.

    Raises:
        ValueError: A name occurs twice, or a line has no answer.
    """
    return parsed(line for file in files for line in lines(_text(file)))


@cache
def groups(file: str) -> tuple[tuple[str, ...], ...]:
    """Return the lines of a file without answers, each as a group of names."""
    return tuple(tuple(line.split()) for line in lines(_text(file)))


def parsed(entries: Iterable[str]) -> dict[str, str]:
    """Return the answer for each name of lines `names : answer`.

    Raises:
        ValueError: A name occurs twice, or a line has no answer.
    """
    result: dict[str, str] = {}
    for entry in entries:
        names, colon, answer = entry.partition(" : ")
        if not colon:
            raise ValueError(f"a line in a table of names has no answer: {entry}")
        for name in names.split():
            if name in result:
                raise ValueError(f"{name} stands twice in a table of names")
            result[name] = answer
    return result


def lines(text: str) -> Iterator[str]:
    """Yield the lines of a table, without comments and with their continuations."""
    line = ""
    for part in text.splitlines():
        if part.startswith("#"):
            continue
        if part.startswith(" "):
            line += f" {part.strip()}"
            continue
        if line:
            yield line
        line = part
    if line:
        yield line


def _text(file: str) -> str:
    return (_FOLDER / f"{file}.txt").read_text(encoding="utf-8")

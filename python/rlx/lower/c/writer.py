"""Lines of C, indented."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

_WIDTH = 110


class Writer:
    """Lines, the last of which may be in blocks that are still open."""

    def __init__(self, depth: int = 0):
        self.lines: list[str] = []
        self.depth = depth

    def line(self, text: str = "") -> None:
        """Add a line."""
        self.lines.append("    " * self.depth + text if text else "")

    def text(self, text: str) -> None:
        """Add lines that are indented already."""
        for line in text.strip("\n").split("\n"):
            self.line(line)

    def comment(self, text: str) -> None:
        """Add a comment, broken into lines."""
        text = text.replace("*/", "* /").replace("/*", "/ *")
        lines = [
            part for line in text.split("\n") for part in textwrap.wrap(line, _WIDTH, break_long_words=False) or [""]
        ]
        if len(lines) == 1:
            self.line(f"/* {lines[0]} */")
            return
        self.line(f"/* {lines[0]}")
        for line in lines[1:]:
            self.line(f" * {line}".rstrip())
        self.line(" */")

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """What is added inside stands in braces behind a head."""
        self.line(f"{head} {{")
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")

    @contextmanager
    def loop(self, variable: str, count: int | str, start: int | str = 0, step: int = 1) -> Iterator[None]:
        """What is added inside is done for each value of a variable."""
        advance = f"{variable}++" if step == 1 else f"{variable} += {step}"
        with self.block(f"for (int32_t {variable} = {start}; {variable} < {count}; {advance})"):
            yield

    def __str__(self) -> str:
        return "\n".join(self.lines) + "\n"

"""Lines of C, indented, and the text of comments."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Generator
from contextlib import contextmanager

from rlx.support.printable import printable
from rlx.support.short import shorten_lines

_WIDTH = 110
_CONSTANT = re.compile(r"( *)const \w+ (\w+) = ")
_VARIABLE = re.compile(r"( *)(?!const )\w+ (\w+) = ")


def commented(text: str, keep: str = "") -> str:
    """Return text for the inside of a comment. It cannot end the comment or continue the line: names come from files.

    Args:
        text: The text. Very long lines are truncated.
        keep: Control characters to keep.
    """
    text = printable(shorten_lines(text), keep=keep).replace("*/", "* /").replace("/*", "/ *")
    return re.sub(r"\?(?=\?)", "? ", text)  # `??/` is a trigraph: a backslash


class Writer:
    """Lines of C. The last lines may be in blocks that are still open."""

    def __init__(self, depth: int = 0):
        self.lines: list[str] = []
        self.depth = depth

    def line(self, text: str = "", note: str = "") -> None:
        """Add a line, with a comment at its end."""
        comment = f" /* {commented(note)} */" if note else ""
        self.lines.append("    " * self.depth + text + comment if text else "")

    def text(self, text: str) -> None:
        """Add several lines, which keep their own indentation."""
        for line in text.strip("\n").split("\n"):
            self.line(line)

    def comment(self, text: str) -> None:
        """Add a comment, wrapped into lines. No line ends in a backslash."""
        lines = [
            f"{part} ." if part.endswith("\\") else part
            for line in commented(text, keep="\n").split("\n")
            for part in textwrap.wrap(line, _WIDTH, break_long_words=False) or [""]
        ]
        if len(lines) == 1:
            self.line(f"/* {lines[0]} */")
            return
        self.line(f"/* {lines[0]}")
        for line in lines[1:]:
            self.line(f" * {line}".rstrip())
        self.line(" */")

    @contextmanager
    def block(self, head: str) -> Generator[None]:
        """Open a block in braces after a head, for the lines that are added inside the context."""
        self.line(f"{head} {{".lstrip())
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")

    @contextmanager
    def loop(self, variable: str, count: int | str, start: int | str = 0, step: int = 1) -> Generator[None]:
        """Open a loop over a variable, for the lines that are added inside the context."""
        advance = f"{variable}++" if step == 1 else f"{variable} += {step}"
        with self.block(f"for (int32_t {variable} = {start}; {variable} < {count}; {advance})"):
            yield

    def drop_unused(self) -> None:
        """Remove variables that are never read. They can occur when known bounds select another expression.

        Variables that loops write to are kept, and marked as unused.
        """
        kept = len(self.lines) + 1
        while len(self.lines) < kept:
            kept = len(self.lines)
            self.lines = [line for i, line in enumerate(self.lines) if not self._is_unread(i, _CONSTANT)]
        for i in reversed(range(len(self.lines))):
            if self._is_unread(i, _VARIABLE) and (declared := _VARIABLE.match(self.lines[i])):
                self.lines.insert(i + 1, f"{declared[1]}(void){declared[2]};")

    def _is_unread(self, number: int, declaration: re.Pattern[str]) -> bool:
        """Whether a line declares a variable that no line of its block reads."""
        declared = declaration.match(self.lines[number])
        if declared is None:
            return False
        depth, name = len(declared[1]), declared[2]
        for line in self.lines[number + 1 :]:
            if len(line) - len(line.lstrip()) < depth:
                return True  # the end of its block
            if re.search(rf"\b{name}\b", re.sub(rf"^ *{name}( [+*]?= |\+\+)", "", line)):
                return False
        return True

    def __str__(self) -> str:
        return "\n".join(self.lines) + "\n"

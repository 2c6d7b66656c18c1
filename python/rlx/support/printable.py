"""Text of files as a terminal may show it."""

from __future__ import annotations

from collections.abc import Iterable


def printable(text: str, keep: str = "\n\t") -> str:
    r"""Text in which characters that do not print stand as escapes, such as `\x1b` or `\u202e`.

    A name in a file may hold what clears a terminal, moves its cursor or reverses the order of what follows.

    Args:
        text: Text that holds names of a file.
        keep: The control characters that stay; "" for a name that has to stand on one line.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def printable_lines(lines: Iterable[str]) -> str:
    """Lines as text that a terminal may show, each on one line whatever names it holds, with a line feed after each."""
    return "".join(f"{printable(line, keep='')}\n" for line in lines)

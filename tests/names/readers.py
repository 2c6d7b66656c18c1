"""Readers of the languages that RLX writes: the structure of a text without its names."""

from __future__ import annotations

import ast
import json
import re
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

from tests.report.pages import Page

_TRIGRAPHS = {"=": "#", "/": "\\", "'": "^", "(": "[", ")": "]", "!": "|", "<": "{", ">": "}", "-": "~"}
_C_TEXT = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)
_TOKEN = re.compile(r"\w+|[^\w\s]")


def c(text: str) -> list[str]:
    """Return the tokens of C99 outside of comments, with all identifiers equal, after trigraphs and line splices."""
    text = re.sub(r"\?\?([=/'()!<>-])", lambda m: _TRIGRAPHS[m[1]], text)
    return _tokens(re.sub(r"\\[ \t]*\n", "", text))


def verilog(text: str) -> list[str]:
    """Return the tokens of SystemVerilog, in the same way."""
    return _tokens(text)


def _tokens(text: str) -> list[str]:
    bare = _C_TEXT.sub(lambda m: '""' if m[0][0] in "\"'" else " ", text)
    assert "/*" not in bare and "*/" not in bare
    return [t if not re.match(r"\w", t) else "w" for t in _TOKEN.findall(bare)]


def python(text: str) -> list[str]:
    """Return the kinds of the nodes of a program in Python."""
    return [type(node).__name__ for node in ast.walk(ast.parse(text))]


def html(text: str) -> list[Any]:
    """Return the elements of a page, with the names of their attributes."""
    Page(text).check()
    found: list[Any] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.append((tag, sorted(name for name, _ in attrs)))

        def handle_comment(self, data: str) -> None:
            found.append("comment")

        def handle_decl(self, decl: str) -> None:
            found.append(decl)

        def unknown_decl(self, data: str) -> None:
            found.append("unknown")

        def handle_pi(self, data: str) -> None:
            found.append("instruction")

    Reader().feed(text)
    return found


def svg(text: str) -> list[Any]:
    """Return the elements of a drawing, with the names of their attributes."""
    return [(element.tag, sorted(element.keys())) for element in ElementTree.fromstring(text).iter()]


def as_json(text: str) -> Any:
    """Return the structure of JSON. Keys are names too."""

    def shape(value: Any) -> Any:
        if isinstance(value, dict):
            return [shape(v) for v in value.values()]
        return [shape(v) for v in value] if isinstance(value, list) else type(value).__name__

    return shape(json.loads(text))


def markdown(text: str) -> list[str]:
    """Return the syntax elements of Markdown with tables and links, without text."""
    from markdown_it import MarkdownIt

    found = []
    for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text):
        found += [token.type, *(child.type for child in token.children or () if not child.type.startswith("text"))]
    return found


def cells(text: str) -> list[str]:
    """Return the text of each cell and heading of Markdown, as a reader sees it."""
    from markdown_it import MarkdownIt

    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    return ["".join(child.content for child in token.children or ()) for token in tokens if token.type == "inline"]


def lines(text: str) -> list[str]:
    """Return the beginnings of lines."""
    return [re.match(r"\s*", line)[0] for line in text.split("\n")]  # type: ignore[index]


def plain(text: str) -> int:
    """Return the number of lines."""
    return text.count("\n")

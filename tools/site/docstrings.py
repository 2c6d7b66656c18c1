"""Conversion of docstrings and signatures to Markdown."""

from __future__ import annotations

import inspect
import re
from typing import Any

from griffe import Docstring, DocstringSectionKind, Parser

_CODE, _QUOTES = re.compile(r"(`+)(.+?)\1", re.S), str.maketrans({"<": "&lt;", "*": r"\*", "_": r"\_"})
_NAMED = {
    DocstringSectionKind.parameters: "Arguments",
    DocstringSectionKind.attributes: "Attributes",
    DocstringSectionKind.raises: "Raises",
    DocstringSectionKind.returns: "Returns",
    DocstringSectionKind.yields: "Yields",
}


def signature(name: str, thing: Any) -> str:
    """Return a call in Python's format, one line per parameter if it is long; only the name without a signature."""
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return name
    if next(iter(found.parameters), "") in ("self", "cls"):
        found = found.replace(parameters=list(found.parameters.values())[1:])
    # Annotations that are text only because of `from __future__ import annotations` are not strings.
    bare = [p.replace(annotation=_bare(p.annotation)) for p in found.parameters.values()]
    found = found.replace(parameters=bare, return_annotation=_bare(found.return_annotation))
    line = f"{name}{found}"
    return line if len(line) <= 80 else f"{name}(\n{_lines(found)}){_result(found)}"


def _result(found: inspect.Signature) -> str:
    return str(found.replace(parameters=[])).removeprefix("()")


def _lines(found: inspect.Signature) -> str:
    """Return one line per parameter, with the markers between their kinds."""
    result, before = [], None
    for parameter in found.parameters.values():
        if before == parameter.POSITIONAL_ONLY != parameter.kind:
            result.append("/")
        if parameter.kind == parameter.KEYWORD_ONLY and before not in (
            parameter.KEYWORD_ONLY,
            parameter.VAR_POSITIONAL,
        ):
            result.append("*")
        result.append(str(parameter))
        before = parameter.kind
    return "".join(f"    {text},\n" for text in result)


class _Bare(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _bare(annotation: Any) -> Any:
    return _Bare(annotation) if type(annotation) is str else annotation


def body(thing: Any) -> str:
    """Return the docstring of an object as Markdown. Its sections are lists."""
    parts = []
    for section in Docstring(inspect.getdoc(thing) or "", parser=Parser.google).parse(warnings=False):
        if section.kind in _NAMED:
            parts.append(f"**{_NAMED[section.kind]}**\n\n" + "\n".join(map(_item, section.value)))
        elif section.kind is DocstringSectionKind.text:
            parts.append(_text(section.value))
        else:  # an example, or an unknown section
            parts.append(_text(getattr(section.value, "contents", "") or str(section.value)))
    return "\n\n".join(parts)


def _item(entry: Any) -> str:
    name = getattr(entry, "name", "") or (str(entry.annotation) if getattr(entry, "annotation", None) else "")
    text = _text(entry.description).replace("\n", "\n    ")
    return f"*   `{name}`: {text}" if name else f"*   {text}"


def _text(text: str) -> str:
    """Return prose with everything but code escaped."""
    text = text.replace("``", "`")
    pieces, end = [], 0
    for match in _CODE.finditer(text):
        pieces += [_literal(text[end : match.start()]), match.group()]
        end = match.end()
    return "".join([*pieces, _literal(text[end:])])


def _literal(text: str) -> str:
    # A star that begins a list item stays unescaped.
    lines = (re.match(r"(\s*\* )?(.*)", line, re.S) for line in text.split("\n"))
    return "\n".join((m.group(1) or "") + m.group(2).translate(_QUOTES) for m in lines if m)


def summary(thing: Any) -> str:
    """Return the first sentence of a docstring, in one line, for a table cell."""
    first = (inspect.getdoc(thing) or "").split("\n\n")[0].replace("\n", " ")
    sentence = re.match(r".*?[.:](?= |$)", first)
    return _text(sentence.group().rstrip(".:") if sentence else first).replace("|", r"\|")

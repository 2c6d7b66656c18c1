"""Hooks of mkdocs (`hooks:` in mkdocs.yml): they add pages from outside `docs/`, and adapt links to them."""

from __future__ import annotations

import html
import json
import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from rlx.report import page_style
from tools.site import api_pages
from tools.site.op_examples import with_examples

ROOT = Path(__file__).resolve().parents[2]
# Files of the repository that have other names in the site. The address of a folder is its `index.md`.
_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "examples/notebook/first_model.ipynb": "first-model.md",
    "docs/reference/ops/README.md": "reference/ops/index.md",
    "docs/reference/ops/index.md": "reference/ops/indexing.md",
}
_PICTURE = re.compile(r"!\[([^]]*)\]\(([^)\s]+\.svg)\)")
_LINK = re.compile(r"\]\(([^)#:\s]+)(#[^)\s]*)?\)")
_SOURCES = "source"
# Lines of code have up to 120 columns: between two sidebars they need small letters. Pipelines, which are one line, are
# wrapped. If there is space, a name in the first column of a table is not wrapped. Headings without text are hidden.
_STYLE = """.md-grid { max-width: 76rem; }
@media screen and (min-width: 60em) {
  .md-typeset td:first-child code { word-break: normal; overflow-wrap: normal; }
}
@media screen and (min-width: 76.25em) and (max-width: 95em) {
  .md-typeset pre > code { font-size: .56rem; }
}
.md-typeset .pipeline pre > code { white-space: pre-wrap; overflow-wrap: anywhere; }
.md-typeset thead:not(:has(th:not(:empty))) { display: none; }
.md-typeset .rlx { overflow-x: auto; margin: 1em 0; } .md-typeset .rlx svg { max-width: 100%; height: auto; }
"""


def on_files(files: Files, config: Any) -> Files:
    """Add the Python API, the pages of the repository, and the source files that pages link to."""
    pages = dict(api_pages.pages())
    for file in [f for f in files if f"docs/{f.src_uri}" in _PAGES]:
        files.remove(file)
    pages |= {there: _text(here) for here, there in _PAGES.items()}
    for path in [*_PAGES, *(f"docs/{file.src_uri}" for file in files.documentation_pages())]:
        for target, _ in _LINK.findall(_text(path)):
            found = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
            if (ROOT / found).is_file() and not _is_page(found) and not found.endswith(".svg"):
                pages[f"{_SOURCES}/{found}.md"] = _source(found)
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    files.append(File.generated(config, "site.css", content=_STYLE + page_style.dark_site()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the text of a page with links converted to the site's locations of repository files."""
    here = page.file.src_uri
    if here == api_pages.INDEX:
        markdown += "\n" + api_pages.index()
    origins = {there: path for path, there in _PAGES.items()}
    if here.startswith((f"{api_pages.FOLDER}/", f"{_SOURCES}/")):
        return markdown
    origin = origins.get(here, f"docs/{here}")
    if origin.startswith("docs/reference/ops/"):
        markdown = with_examples(markdown)
    markdown = _PICTURE.sub(lambda match: _drawn(match, posixpath.dirname(origin)), markdown)

    def moved(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), match.group(1)))
        if not (ROOT / path).is_file():
            return match.group()
        there = _PAGES.get(path) or (path.removeprefix("docs/") if _is_page(path) else f"{_SOURCES}/{path}.md")
        return f"]({os.path.relpath(there, posixpath.dirname(here) or '.')}{match.group(2) or ''})"

    # Python's Markdown drops the name of a language that it does not know.
    return _LINK.sub(moved, _with_wide_lists(markdown).replace("```pipeline\n", "```{ .text .pipeline }\n"))


def _drawn(match: re.Match[str], folder: str) -> str:
    """Return a drawing as a part of the page, so that it has the colours of the reader's theme."""
    svg = (ROOT / folder / match[2]).read_text()
    svg = re.sub(r"<style>.*?</style>", "", svg, count=1)  # for files of their own
    return f'<div class="rlx" role="img" aria-label="{html.escape(match[1])}">{svg.strip()}</div>'


def _with_wide_lists(markdown: str) -> str:
    """Widen list indentation: Python's Markdown needs four columns for text in an item and after an empty line."""
    wide = re.sub(r"^   (?=\S)", "    ", markdown, flags=re.M)
    return re.sub(r"^(    .*\n)(?=\d+\. )", r"\1\n", wide, flags=re.M)


def _is_page(path: str) -> bool:
    return path in _PAGES or (path.startswith("docs/") and path.endswith(".md"))


def _text(path: str) -> str:
    """Return a page's Markdown. The code of a notebook becomes blocks."""
    text = (ROOT / path).read_text()
    if not path.endswith(".ipynb"):
        return text
    return "\n\n".join(map(_cell, json.loads(text)["cells"]))


def _cell(cell: Any) -> str:
    """Return a cell of a notebook as Markdown, with its outputs."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source
    return "\n\n".join([f"```python\n{source}\n```", *filter(None, map(_output, cell["outputs"]))])


def _output(output: Any) -> str:
    data = output.get("data", {})
    if "text/html" in data:  # without empty lines, which would end it in Markdown
        return re.sub(r"\n\s*\n", "\n", "".join(data["text/html"]))
    text = "".join(data.get("text/plain", output.get("text", "")))
    return f"```text\n{text.rstrip()}\n```" if text.strip() else ""


def _source(path: str) -> str:
    text = (ROOT / path).read_text()
    language = {".py": "python", ".mlir": "text", ".td": "text"}.get(posixpath.splitext(path)[1], "text")
    return f"# `{path}`\n\n~~~~{language}\n{text}\n~~~~\n"

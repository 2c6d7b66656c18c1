"""Building blocks of HTML pages and notebook output. A page needs no other file, and follows the reader's colour scheme.

Names in graphs come from files, so every text is escaped by `markup`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from rlx.report import page_style as style
from rlx.report.text import markup

# Drawings are this much larger on a page than in a file, if there is room.
_SCALE = 1.15
_SHORT = 18  # characters of a cell that is not broken into lines


def page(title: str, sections: Iterable[tuple[str, str]], facts: Iterable[str] = ()) -> str:
    """Return a complete page.

    Args:
        title: Its title.
        sections: The heading and the HTML of each part.
        facts: Lines under the title, such as the version and the date.
    """
    lines = "<br>".join(map(markup, facts))
    below = f'<p class="facts muted">{lines}</p>' if lines else ""
    parts = [(f"part{i}", markup(heading), body) for i, (heading, body) in enumerate(sections)]
    styles = f"{style.COLOURS}{style.PIECES}{style.LAYOUT}{style.dark_page()}"
    links = "".join(f'<li><a href="#{anchor}">{heading}</a></li>' for anchor, heading, _ in parts)
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{markup(title)}</title><style>{styles}</style></head><body>",
            f'<nav aria-label="Parts"><ul>{links}</ul></nav><main class="rlx"><h1>{markup(title)}</h1>{below}',
            *(f'<section><h2 id="{a}">{heading}</h2>{body}</section>' for a, heading, body in parts),
            f"</main><script>{style.SCRIPT}</script></body></html>",
            "",
        ]
    )


def fragment(summary: str, body: str, *, is_open: bool = True) -> str:
    """Return HTML for a notebook: a line that expands and collapses the rest, in the notebook's colours."""
    styles = f"{style.PIECES}{style.dark_notebook(body)}"
    return f'<div class="rlx"><style>{styles}</style>{details(summary, body, is_open=is_open)}</div>'


def figure(svg: str, what: str, narrow: str = "") -> str:
    """Return a drawing at the width of the page, which can be zoomed and moved there.

    Args:
        svg: The SVG document.
        what: Its description for readers who do not see it.
        narrow: The same for narrow screens, if it differs.
    """
    drawings = _fitted(svg)
    if narrow:
        drawings = f'<div class="wide">{drawings}</div><div class="narrow">{_fitted(narrow)}</div>'
    return f'<figure><div class="frame" tabindex="0" role="group" aria-label="{markup(what)}">{drawings}</div></figure>'


def _fitted(svg: str) -> str:
    """Return a drawing with its preferred width as a style, which the page limits to its own."""

    def styled(match: re.Match[str]) -> str:
        width = f"{_SCALE * float(match[2]):.0f}px"
        return f'{match[1]} data-width="{width}" style="width: {width}"'

    return re.sub(r'(<svg [^>]*?\bwidth="([\d.]+)")', styled, svg, count=1)


def standalone(svg: str) -> str:
    """Return a drawing for a file of its own, which follows the reader's colour scheme."""
    head, end, rest = svg.partition(">")
    return f"{head}{end}<style>{style.dark_file()}</style>{rest}"


def details(summary: str, body: str, *, is_open: bool = False, anchor: str = "") -> str:
    """Return a line that expands and collapses some HTML."""
    place = f' id="{anchor}"' if anchor else ""
    return f"<details{place}{' open' if is_open else ''}><summary>{markup(summary)}</summary>{body}</details>"


def table(
    rows: Sequence[Sequence[str]],
    header: Sequence[str],
    *,
    right: Collection[int] = (),
    most: int = 0,
    wrapped: bool = False,
) -> str:
    """Return a table.

    Args:
        rows: Cells, as plain text.
        header: The titles of the columns.
        right: Columns of numbers.
        most: The maximum number of rows shown, followed by the number of the others. 0 shows all.
        wrapped: Break long words, so that a narrow screen has all columns. Other tables are scrolled there.
    """
    shown = rows[:most] if most else rows

    def kind(i: int, cell: str) -> str:
        return "number" if i in right else "long" if len(cell) > _SHORT else "short"

    def line(cells: Sequence[str], tag: str) -> str:
        elements = (f'<{tag} class="{kind(i, cell)}">{markup(cell)}</{tag}>' for i, cell in enumerate(cells))
        return f"<tr>{''.join(elements)}</tr>"

    start = '<table class="wrapped">' if wrapped else "<table>"
    body = "".join(line(cells, "td") for cells in shown)
    whole = f"{start}<thead>{line(header, 'th')}</thead><tbody>{body}</tbody></table>"
    more = f'<p class="muted">and {len(rows) - len(shown)} more</p>' if len(rows) > len(shown) else ""
    return scroll(whole, "table", tall=False) + more


def scroll(body: str, what: str, *, tall: bool = True) -> str:
    """Return a scrollable element for HTML that is wider than the page or, with `tall`, longer. Arrow keys scroll it."""
    return f'<div class="scroll{" tall" if tall else ""}" tabindex="0" role="region" aria-label="{markup(what)}">{body}</div>'


def text_block(text: str, what: str, most: int = 0) -> str:
    """Return preformatted text, cut after `most` lines; 0 shows all."""
    lines = text.splitlines()
    more = f"\n… and {len(lines) - most} more lines" if most and len(lines) > most else ""
    return scroll(f"<pre>{markup(chr(10).join(lines[:most] if most else lines) + more)}</pre>", what)


def paragraph(text: str, kind: str = "") -> str:
    """Return a paragraph, with text between backticks as code."""
    return f"<p{f' class={chr(34)}{kind}{chr(34)}' if kind else ''}>{_prose(text)}</p>"


def items(texts: Iterable[str]) -> str:
    """Return a list, with text between backticks as code."""
    return f"<ul>{''.join(f'<li>{_prose(text)}</li>' for text in texts)}</ul>"


def _prose(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", markup(text))

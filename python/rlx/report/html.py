"""Building blocks of HTML pages and notebook output. A page needs no other file, and follows the reader's colour scheme.

Names in graphs come from files, so every text is escaped by `markup`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from rlx.report import palette
from rlx.report.text import markup

_COLOURS = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #212529; --muted: #566069; --line: #d5dade; --soft: #f3f5f7;
  --accent: #0b5cad; --plus: #e3f6e6; --minus: #fde7e9; --bar: #9ec5f4; --warn: #8a3c00; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181c; --ink: #e4e8eb; --muted: #a3adb5; --line: #39424a;
  --soft: #1d2329; --accent: #7db8f5; --plus: #12351a; --minus: #43191d; --bar: #2d5a8c; --warn: #ffb37a; } }
"""
_LAYOUT = """
* { box-sizing: border-box; }
html { scroll-padding-top: 3.5rem; }
body { margin: 0; color: var(--ink); background: var(--paper); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 1280px; margin: 0 auto; padding: 1rem; }
nav { position: sticky; top: 0; z-index: 1; background: var(--paper); border-bottom: 1px solid var(--line); }
nav ul { display: flex; gap: .25rem 1.1rem; overflow-x: auto; max-width: 1280px; margin: 0 auto; padding: .6rem 1rem;
  list-style: none; white-space: nowrap; }
h1 { font-size: 1.6rem; margin: .5rem 0; overflow-wrap: anywhere; } h2 { font-size: 1.25rem; margin: 2.2rem 0 .6rem; }
h3 { font-size: 1.05rem; margin: 1rem 0 .4rem; } p { margin: .5rem 0; max-width: 75ch; overflow-wrap: anywhere; }
a { color: var(--accent); } :focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
"""
# Style rules that notebooks also use, inside an element of the class `rlx`.
_PIECES = """
.rlx table { border-collapse: collapse; font-size: 14px; margin: .2rem 0; }
.rlx th, .rlx td { padding: .25rem .7rem; border-bottom: 1px solid var(--line, #8886); text-align: left; vertical-align: top; }
.rlx th { white-space: nowrap; } .rlx td { overflow-wrap: break-word; max-width: 34rem; }
.rlx .number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.rlx .scroll { overflow: auto; max-width: 100%; } .rlx .tall { max-height: 80vh; }
.rlx pre { margin: .3rem 0; padding: .5rem; font: 13px/1.45 ui-monospace, monospace; background: var(--soft, transparent); }
.rlx summary { cursor: pointer; padding: .2rem 0; } .rlx details { margin: .2rem 0; }
.rlx pre ins, .rlx pre del { text-decoration: none; display: inline-block; min-width: 100%; }
.rlx pre ins { background: var(--plus, #2da44e33); } .rlx pre del { background: var(--minus, #cf222e33); }
.rlx pre i { color: var(--muted, inherit); } .rlx .muted { color: var(--muted, inherit); } .rlx .warn { color: var(--warn); }
.rlx .columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); gap: 1rem 2rem; }
.rlx .columns > * { min-width: 0; }
.rlx .bar { display: block; height: .55rem; margin-top: .45rem; background: var(--bar, #6aa9e9); border-radius: 2px; }
.rlx svg { display: block; max-width: none; height: auto; zoom: 1.15; }
"""
# Script that expands the element that the page's address links to, and the elements around it.
_SCRIPT = """
function show() { let at = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let e = at; e; e = e.parentElement) if (e.tagName === "DETAILS") e.open = true; if (at) at.scrollIntoView(); }
addEventListener("hashchange", show); addEventListener("DOMContentLoaded", show);
"""


def page(title: str, sections: Iterable[tuple[str, str]]) -> str:
    """Return a complete page.

    Args:
        title: Its title.
        sections: The heading and the HTML of each part.
    """
    parts = [(f"part{i}", markup(heading), body) for i, (heading, body) in enumerate(sections)]
    links = "".join(f'<li><a href="#{anchor}">{heading}</a></li>' for anchor, heading, _ in parts)
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{markup(title)}</title><style>{_COLOURS}{_LAYOUT}{_PIECES}{dark_drawings()}</style></head><body>",
            f'<nav aria-label="Parts"><ul>{links}</ul></nav><main class="rlx"><h1>{markup(title)}</h1>',
            *(f'<section><h2 id="{a}">{heading}</h2>{body}</section>' for a, heading, body in parts),
            f"</main><script>{_SCRIPT}</script></body></html>",
            "",
        ]
    )


def dark_drawings() -> str:
    """Return the style rules for dark colours of drawings. Drawings in separate files do not have these rules."""
    rules = (
        f".rlx svg[{kind}='{light}'], .rlx svg [{kind}='{light}'] {{ {kind}: {dark}; }}"
        for light, dark in palette.DARK.items()
        for kind in ("fill", "stroke")
    )
    return f"@media (prefers-color-scheme: dark) {{ {' '.join(rules)} }}"


def fragment(summary: str, body: str, *, is_open: bool = True) -> str:
    """Return HTML for a notebook: a line that expands and collapses the rest, in the notebook's colours."""
    return f'<div class="rlx"><style>{_PIECES}</style>{details(summary, body, is_open=is_open)}</div>'


def details(summary: str, body: str, *, is_open: bool = False, anchor: str = "") -> str:
    """Return a line that expands and collapses some HTML."""
    place = f' id="{anchor}"' if anchor else ""
    return f"<details{place}{' open' if is_open else ''}><summary>{markup(summary)}</summary>{body}</details>"


def table(rows: Sequence[Sequence[str]], header: Sequence[str], *, right: Collection[int] = (), most: int = 0) -> str:
    """Return a table.

    Args:
        rows: Cells, as plain text.
        header: The titles of the columns.
        right: Columns of numbers.
        most: The maximum number of rows shown, followed by the number of the others. 0 shows all.
    """
    shown = rows[:most] if most else rows

    def line(cells: Sequence[str], tag: str) -> str:
        kinds = (' class="number"' if i in right else "" for i in range(len(cells)))
        return f"<tr>{''.join(f'<{tag}{k}>{markup(c)}</{tag}>' for k, c in zip(kinds, cells, strict=True))}</tr>"

    body = "".join(line(cells, "td") for cells in shown)
    more = f'<p class="muted">and {len(rows) - len(shown)} more</p>' if len(rows) > len(shown) else ""
    return (
        scroll(f"<table><thead>{line(header, 'th')}</thead><tbody>{body}</tbody></table>", "table", tall=False) + more
    )


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

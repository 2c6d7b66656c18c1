"""Style rules and the script of HTML pages and notebook output."""

from __future__ import annotations

from rlx.report import palette

COLOURS = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #212529; --muted: #566069; --line: #d5dade; --soft: #f3f5f7;
  --accent: #0b5cad; --plus: #e3f6e6; --minus: #fde7e9; --bar: #9ec5f4; --warn: #8a3c00; --shade: #21252940; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181c; --ink: #e4e8eb; --muted: #a3adb5; --line: #39424a;
  --soft: #1d2329; --accent: #7db8f5; --plus: #12351a; --minus: #43191d; --bar: #2d5a8c; --warn: #ffb37a;
  --shade: #000000b0; } }
"""
LAYOUT = """
* { box-sizing: border-box; }
html { scroll-padding-top: 3.5rem; }
body { margin: 0; color: var(--ink); background: var(--paper); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 1280px; margin: 0 auto; padding: 1rem; }
nav { position: sticky; top: 0; z-index: 1; background: var(--paper); border-bottom: 1px solid var(--line); }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1.1rem; max-width: 1280px; margin: 0 auto; padding: .6rem 1rem;
  list-style: none; white-space: nowrap; }
@media (max-width: 700px) { nav { position: static; } html { scroll-padding-top: 0; } }
h1 { font-size: 1.6rem; margin: .5rem 0; overflow-wrap: anywhere; } h2 { font-size: 1.25rem; margin: 2.2rem 0 .6rem; }
h3 { font-size: 1.05rem; margin: 1rem 0 .4rem; overflow-wrap: anywhere; }
p { margin: .5rem 0; max-width: 75ch; overflow-wrap: anywhere; } .facts { max-width: none; font-size: 14px; }
a { color: var(--accent); } :focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
.rlx svg rect.paper { fill: none; }
/* A shadow at an edge shows that a table goes on there. */
.scroll:not(.tall) { background: linear-gradient(to right, var(--paper) 1.2rem, transparent) left,
    linear-gradient(to left, var(--paper) 1.2rem, transparent) right,
    linear-gradient(to right, var(--shade), transparent) left, linear-gradient(to left, var(--shade), transparent) right;
  background-repeat: no-repeat; background-size: 2.4rem 100%, 2.4rem 100%, .6rem 100%, .6rem 100%;
  background-attachment: local, local, scroll, scroll; }
.tools { display: flex; gap: .3rem; justify-content: flex-end; margin-bottom: .2rem; }
.tools button { min-width: 2.2rem; padding: .15rem .5rem; font: inherit; color: var(--ink); background: var(--soft);
  border: 1px solid var(--line); border-radius: 4px; cursor: pointer; }
.frame.zoomed { cursor: grab; } .frame.dragged { cursor: grabbing; user-select: none; }
"""
# Rules that notebooks also use, inside an element of the class `rlx`.
PIECES = """
.rlx table { border-collapse: collapse; font-size: 14px; margin: .2rem 0; }
.rlx th, .rlx td { padding: .25rem .7rem; border-bottom: 1px solid var(--line, #8886); text-align: left; vertical-align: top; }
.rlx th { white-space: nowrap; } .rlx td { overflow-wrap: break-word; max-width: 34rem; }
.rlx td.long { min-width: 13rem; } .rlx .wrapped td.long { min-width: 8rem; overflow-wrap: anywhere; }
.rlx td.short { white-space: nowrap; }
@media (max-width: 700px) { .rlx .wrapped th, .rlx .wrapped td { padding: .25rem .35rem; }
  .rlx .wrapped td.short, .rlx .wrapped td.long { white-space: normal; overflow-wrap: anywhere; min-width: 6rem; } }
.rlx .number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.rlx .scroll { overflow: auto; max-width: 100%; } .rlx .tall { max-height: 80vh; }
.rlx pre { margin: .3rem 0; padding: .5rem; font: 13px/1.45 ui-monospace, monospace; background: var(--soft, transparent); }
.rlx summary { cursor: pointer; padding: .2rem 0; overflow-wrap: anywhere; } .rlx details { margin: .2rem 0; }
.rlx pre ins, .rlx pre del { text-decoration: none; display: inline-block; min-width: 100%; }
.rlx pre ins { background: var(--plus, #2da44e33); } .rlx pre del { background: var(--minus, #cf222e33); }
.rlx pre i { color: var(--muted, inherit); } .rlx .muted { color: var(--muted, inherit); } .rlx .warn { color: var(--warn); }
.rlx .columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); gap: 1rem 2rem; }
.rlx .columns > * { min-width: 0; } .rlx .halves { grid-template-columns: repeat(auto-fit, minmax(min(100%, 28rem), 1fr)); }
.rlx .bar { display: block; height: .55rem; margin-top: .45rem; background: var(--bar, #6aa9e9); border-radius: 2px; }
.rlx figure { margin: .4rem 0; } .rlx .frame { overflow: auto; border: 1px solid var(--line, #8886); border-radius: 4px; }
.rlx .frame svg { display: block; margin: 0 auto; max-width: 100%; height: auto; }
.rlx .frame .narrow { display: none; }
@media (max-width: 700px) { .rlx .frame .wide { display: none; } .rlx .frame .narrow { display: block; } }
"""
# The page's script: it expands the element that the address links to and the elements around it, and adds zoom and pan.
SCRIPT = """
function show() { const at = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let e = at; e; e = e.parentElement) if (e.tagName === "DETAILS") e.open = true; if (at) at.scrollIntoView(); }
addEventListener("hashchange", show);
function shown(frame) { return [...frame.querySelectorAll("svg")].find(svg => svg.getBoundingClientRect().width); }
function fit(frame) { frame.classList.remove("zoomed"); frame.style.height = "";
  for (const svg of frame.querySelectorAll("svg")) { svg.style.maxWidth = ""; svg.style.width = svg.dataset.width; } }
function zoom(frame, factor, x, y) { const svg = shown(frame); if (!svg) return;
  const before = svg.getBoundingClientRect(), outer = frame.getBoundingClientRect();
  if (!frame.classList.contains("zoomed")) frame.style.height = Math.min(outer.height, .8 * innerHeight) + "px";
  frame.classList.add("zoomed");
  const width = Math.min(Math.max(before.width * factor, 120), 6 * svg.viewBox.baseVal.width), k = width / before.width;
  svg.style.maxWidth = "none"; svg.style.width = width + "px";
  x = x ?? outer.left + outer.width / 2; y = y ?? outer.top + Math.min(outer.height, .8 * innerHeight) / 2;
  frame.scrollLeft = (x - before.left) * k - (x - outer.left); frame.scrollTop = (y - before.top) * k - (y - outer.top); }
function tools(frame) { const bar = document.createElement("div"); bar.className = "tools";
  for (const [text, label, act] of [["\\u2212", "zoom out", () => zoom(frame, 1 / 1.4)],
      ["+", "zoom in", () => zoom(frame, 1.4)], ["fit", "show the whole drawing", () => fit(frame)]]) {
    const button = document.createElement("button"); button.textContent = text; button.title = label;
    button.setAttribute("aria-label", label); button.addEventListener("click", act); bar.append(button); }
  frame.before(bar); let start = null, moved = false;
  frame.addEventListener("wheel", e => { if (!e.ctrlKey && !e.metaKey) return; e.preventDefault();
    zoom(frame, e.deltaY < 0 ? 1.2 : 1 / 1.2, e.clientX, e.clientY); }, { passive: false });
  frame.addEventListener("keydown", e => { const act = { "+": 1.4, "-": 1 / 1.4 }[e.key];
    if (act) zoom(frame, act); else if (e.key === "0") fit(frame); });
  frame.addEventListener("pointerdown", e => { moved = false; if (e.pointerType !== "mouse" || e.button) return;
    start = [e.clientX, e.clientY, frame.scrollLeft, frame.scrollTop]; });
  addEventListener("pointermove", e => { if (!start) return; const dx = e.clientX - start[0], dy = e.clientY - start[1];
    if (Math.abs(dx) + Math.abs(dy) < 4 && !moved) return; moved = true; frame.classList.add("dragged");
    frame.scrollLeft = start[2] - dx; frame.scrollTop = start[3] - dy; });
  addEventListener("pointerup", () => { start = null; frame.classList.remove("dragged"); });
  frame.addEventListener("dragstart", e => e.preventDefault());
  frame.addEventListener("click", e => { if (moved) e.preventDefault(); }, true); }
addEventListener("DOMContentLoaded", () => { document.querySelectorAll(".frame").forEach(tools); show(); });
"""

# Where a notebook is dark: JupyterLab, VS Code, Colab, the documentation site, and pages that mark their theme.
_DARK_SITE = 'body[data-md-color-scheme="slate"]'
_DARK_NOTEBOOKS = (
    _DARK_SITE,
    'body[data-jp-theme-light="false"]',
    "body.vscode-dark",
    'html[theme="dark"] body',
    'html[data-theme="dark"] body',
)
_LIGHT_NOTEBOOKS = (
    *('body[data-jp-theme-light="true"]', "body.vscode-light", 'html[theme="light"] body'),
    'body[data-md-color-scheme="default"]',
)


def dark_page() -> str:
    """Return the rules for dark colours of drawings on a page, which follows the reader's colour scheme."""
    return f"@media (prefers-color-scheme: dark) {{ {_dark('.rlx svg', set(palette.DARK))} }}"


def dark_notebook(body: str) -> str:
    """Return the rules for dark colours of drawings in a dark notebook.

    Where the notebook does not tell its theme, the reader's colour scheme applies.

    Args:
        body: The HTML. It gets rules for its colours only.
    """
    used = {light for light in palette.DARK if light in body}
    if not used:
        return ""
    unknown = f"body:not({', '.join((*_DARK_NOTEBOOKS, *_LIGHT_NOTEBOOKS))})"
    known = f":is({', '.join(_DARK_NOTEBOOKS)})"
    return f"{_dark(f'{known} .rlx svg', used)} @media (prefers-color-scheme: dark) {{ {_dark(f'{unknown} .rlx svg', used)} }}"


def dark_site() -> str:
    """Return the rules for drawings on the documentation site, which has a switch for its colours."""
    return _dark(f"{_DARK_SITE} .rlx svg", set(palette.DARK))


def dark_file() -> str:
    """Return the rules for a drawing in a file of its own."""
    return f"@media (prefers-color-scheme: dark) {{ {_dark('svg', set(palette.DARK), transparent=False)} }}"


def _dark(svg: str, colours: set[str], *, transparent: bool = True) -> str:
    rules = [
        f"{svg}[{kind}='{light}'], {svg} [{kind}='{light}'] {{ {kind}: {dark}; }}"
        for light, dark in palette.DARK.items()
        if light in colours
        for kind in ("fill", "stroke")
    ]
    return " ".join([*rules, f"{svg} rect.paper {{ fill: none; }}"] if transparent else rules)

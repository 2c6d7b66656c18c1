"""Colours of ops in drawings: one for each group of families of the dialect."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from rlx.ir.op import registry
from rlx.ops.backward.card import Backward

# Lines and text.
PAPER, INK, MUTED, FAINT, OUTLINE, ACCENT = "#ffffff", "#212529", "#495057", "#868e96", "#5c677d", "#b3202c"
GRID = "#dddddd"
SIZE, CHARACTER, ROW = 11, 6.7, 20  # text size, character width, height of a row of a legend, in pixels
FONT = f'font-family="ui-monospace, DejaVu Sans Mono, monospace" font-size="{SIZE}"'


@dataclass(frozen=True)
class ColourGroup:
    """Ops with the same colour.

    Attributes:
        name: The name in the legend.
        colour: The colour of their boxes.
        families: Families of the dialect, or kinds of arguments.
    """

    name: str
    colour: str
    families: tuple[str, ...]


GROUPS = (
    ColourGroup("inputs and outputs", "#cfe8ff", ("input", "param", "state", "output")),
    ColourGroup(
        "products",
        "#ffd9a8",
        (
            "contraction",
            "csr",
            "convolution",
            "convolution_transpose",
            "linear",
            "fused",
            "sequence",
            "quant_compute",
            "packed",
        ),
    ),
    ColourGroup("attention", "#e5d0ff", ("attention", "cached", "rope", "transformer", "fused_layers")),
    ColourGroup("reductions", "#cdeccd", ("reduce", "norm", "loss", "pool", "cumulative", "order")),
    ColourGroup(
        "elementwise", "#fff3b8", ("elementwise", "bits", "complex", "quant", "requantize", "fake_quant", "random")
    ),
    ColourGroup("data", "#e3e6ea", ("leaf", "shape", "sharding", "index", "padding", "scatter", "image")),
    ColourGroup(
        "recurrences and transforms",
        "#c4ebe6",
        ("recurrent", "mtp", "fft", "linear_algebra", "lu", "qr", "eigh", "eig", "svd", "triangular"),
    ),
    ColourGroup("control", "#f6cfd3", ("control", "function", "root", "checkpoint", "custom")),
)
# Boxes with a measured time: from this share of the total time on, the colour.
HEAT = ((0.4, "#f58549"), (0.2, "#faa66a"), (0.1, "#fdc68d"), (0.05, "#fedfb5"), (0.01, "#fff0d9"), (0.0, "#fdfaf5"))
# The corresponding colours on dark backgrounds, for pages that follow the reader's colour scheme.
DARK = {
    **{PAPER: "#14181c", INK: "#e4e8eb", MUTED: "#b4bdc5", FAINT: "#98a2ab", OUTLINE: "#8fa0b5", ACCENT: "#ff8b94"},
    **{GRID: "#39424a", "#cfe8ff": "#1d4566", "#ffd9a8": "#6b4516", "#e5d0ff": "#4a3175", "#cdeccd": "#235027"},
    **{"#fff3b8": "#5a4f14", "#e3e6ea": "#3a424a", "#c4ebe6": "#175049", "#f6cfd3": "#652a32"},
    **{"#f58549": "#a84a0c", "#faa66a": "#874017", "#fdc68d": "#673718", "#fedfb5": "#4c2f1b", "#fff0d9": "#33261d"},
    **{"#fdfaf5": "#201d1b"},
}
_OF_FAMILY = {family: group for group in GROUPS for family in group.families}


def group_of(op: str) -> ColourGroup | None:
    """Return the group of an op by its name without prefix, or of a kind of argument; None for ops of other dialects.

    A gradient has the group of its forward op.
    """
    if op not in registry.load():
        return _OF_FAMILY.get(op)
    card = registry.card(op)
    spec = card.forward.spec if isinstance(card, Backward) else card.spec
    return _OF_FAMILY["custom" if spec.custom else spec.family]


def colour_of(op: str) -> str:
    """Return the colour of an op's box."""
    group = group_of(op)
    return PAPER if group is None else group.colour


def heat_of(share: float) -> str:
    """Return the colour of a box with a share of the measured time."""
    return next(colour for least, colour in HEAT if share >= least)


def heat_rows(width: float) -> list[list[tuple[str, str]]]:
    """Return the legend of the colours of shares, like `legend_rows`."""
    names = [f"{100 * least:.0f} % of the time or more" if least else "less" for least, _ in HEAT]
    names = [names[0], *(f"{100 * least:.0f} %" for least, _ in HEAT[1:-1]), names[-1]]
    return _rows(zip(names, (colour for _, colour in HEAT), strict=True), width)


def legend_rows(ops: Collection[str], width: float, more: Collection[str] = ()) -> list[list[tuple[str, str]]]:
    """Return the legend of the colours of some ops in rows of at most some width in pixels: name and colour of each entry.

    Args:
        ops: The ops.
        width: The maximum width.
        more: The names of further entries, which have no colour.
    """
    groups = {group_of(op) for op in ops}
    entries = [(group.name, group.colour) for group in GROUPS if group in groups]
    return _rows([*entries, *((name, "none") for name in more)], width)


def _rows(entries: Iterable[tuple[str, str]], width: float) -> list[list[tuple[str, str]]]:
    rows: list[list[tuple[str, str]]] = [[]]
    for entry in entries:
        if rows[-1] and sum(entry_width(name) for name, _ in (*rows[-1], entry)) > width:
            rows.append([])
        rows[-1].append(entry)
    return rows


def legend(rows: Sequence[Sequence[tuple[str, str]]], x: float, y: float) -> Iterator[str]:
    """Yield rows of a legend that begin at `x`. The text of the last row is on the line `y`."""
    for number, row in enumerate(reversed(rows)):
        left, line = x, y - ROW * number
        for name, colour in row:
            dash = ' stroke-dasharray="3 2"' if colour == "none" else ""
            box = f'x="{left:.0f}" y="{line - 10:.0f}" width="12" height="12" fill="{colour}"'
            yield f'<rect {box} stroke="{OUTLINE}"{dash}/>'
            yield f'<text x="{left + 17:.0f}" y="{line:.0f}">{name}</text>'
            left += entry_width(name)


def entry_width(name: str) -> float:
    """Return the width in pixels of one entry."""
    return 34 + len(name) * CHARACTER

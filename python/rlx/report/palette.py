"""Colours of ops in drawings: one for each group of families of the dialect."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from rlx.ir.op import registry
from rlx.ops.backward.card import Backward

# Lines and text.
PAPER, INK, MUTED, FAINT, OUTLINE, ACCENT = "#ffffff", "#212529", "#495057", "#868e96", "#5c677d", "#b3202c"
GRID = "#dddddd"
SIZE, CHARACTER = 11, 6.7  # text size and character width, in pixels
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
        ("recurrent", "mtp", "fft", "linear_algebra", "lu", "qr", "eigh", "svd", "triangular"),
    ),
    ColourGroup("control", "#f6cfd3", ("control", "function", "checkpoint", "custom")),
)
# The corresponding colours on dark backgrounds, for pages that follow the reader's colour scheme.
DARK = {
    **{PAPER: "#14181c", INK: "#e4e8eb", MUTED: "#b4bdc5", FAINT: "#98a2ab", OUTLINE: "#8fa0b5", ACCENT: "#ff8b94"},
    **{GRID: "#39424a", "#cfe8ff": "#1d4566", "#ffd9a8": "#6b4516", "#e5d0ff": "#4a3175", "#cdeccd": "#235027"},
    **{"#fff3b8": "#5a4f14", "#e3e6ea": "#3a424a", "#c4ebe6": "#175049", "#f6cfd3": "#652a32"},
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


def legend(ops: Collection[str], x: float, y: float) -> Iterator[str]:
    """Yield the legend of the colours of some ops, in one row that begins at `x`, with its text on the line `y`."""
    groups = {group_of(op) for op in ops}
    for group in GROUPS:
        if group in groups:
            yield f'<rect x="{x:.0f}" y="{y - 10:.0f}" width="12" height="12" fill="{group.colour}" stroke="{OUTLINE}"/>'
            yield f'<text x="{x + 17:.0f}" y="{y:.0f}">{group.name}</text>'
            x += entry_width(group.name)


def legend_width(ops: Collection[str]) -> float:
    """Return the width in pixels of the legend of some ops."""
    groups = {group_of(op) for op in ops}
    return sum(entry_width(group.name) for group in GROUPS if group in groups)


def entry_width(name: str) -> float:
    """Return the width in pixels of one entry."""
    return 34 + len(name) * CHARACTER

"""A graph as one HTML page that needs no other file: its drawing, and the listing of its ops."""

from __future__ import annotations

from html import escape

from rlx.ir.listing import GraphReport
from rlx.report import graph_svg, palette

_STYLE = f"""
body {{ margin: 2em; color: {palette.INK}; background: {palette.PAPER}; font-family: system-ui, sans-serif; }}
pre, svg {{ display: block; max-width: 100%; overflow-x: auto; height: auto; }}
"""


def page(report: GraphReport) -> str:
    """The page. A pointer that rests on a box of the drawing shows the op."""
    title = escape(f"@{report.name} [{report.stage}]")
    return "\n".join(
        [
            "<!doctype html>",
            f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style></head><body>',
            f"<h1>{title}</h1>",
            graph_svg.drawing(report),
            f"<pre>{escape(str(report))}</pre>",
            "</body></html>",
            "",
        ]
    )

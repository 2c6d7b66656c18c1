"""A graph as HTML: its drawing, with a drawing of each group that is one box there, and its listing."""

from __future__ import annotations

from rlx.ir.graph import Graph
from rlx.ir.listing import GraphReport, inspect_graph
from rlx.report import graph_svg, html
from rlx.report.collapse import Overview, overview

_LISTED, _DRAWN = 300, 1_000


def graph_body(listing: GraphReport, name: str) -> str:
    """The drawing, and those of groups, to which its boxes lead.

    Args:
        listing: The graph.
        name: What the addresses on the page begin with.
    """
    view = overview(listing)
    groups = "".join(
        html.details(f"{group.name}: {group.count} ops", _drawn(group, name), anchor=f"{name}-{number}")
        for number, group in view.all()
    )
    return _drawn(view, name) + (html.details("Groups, one by one", groups) if groups else "")


def _drawn(view: Overview, name: str) -> str:
    addresses = {number: f"#{name}-{number}" for number in view.groups}
    return html.scroll(graph_svg.drawing(view.listing, addresses), f"graph of {view.name}")


def graph_html(graph: Graph) -> str:
    """What a notebook shows of a graph: its drawing if it is not large, and its listing."""
    listing = inspect_graph(graph)
    drawn = html.scroll(graph_svg.drawing(overview(listing).listing), "graph") if len(listing.ops) <= _DRAWN else ""
    text = html.details("Listing", html.text_block(str(listing), "listing", _LISTED))
    return html.fragment(f"@{listing.name} [{listing.stage}]: {len(listing.ops)} ops", drawn + text)

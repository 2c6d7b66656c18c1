"""A graph as HTML: its drawing, with a drawing of each group, and its listing."""

from __future__ import annotations

from rlx.ir.graph.graph import Graph
from rlx.ir.graph.listing import GraphReport, inspect_graph
from rlx.report import graph_svg as svg
from rlx.report import html
from rlx.report.collapse import Overview, overview

_LISTED, _DRAWN = 300, 1_000


def graph_body(listing: GraphReport, name: str, times: svg.GraphTimes | None = None) -> str:
    """Return the drawing, and the drawings of groups, to which its boxes link.

    Args:
        listing: The graph.
        name: The prefix of anchors on the page.
        times: Measured times, if any.
    """
    view = overview(listing, seconds=times.seconds if times else None)
    drawn = [
        (group.times > 1, html.details(_group_title(group), _drawn(group, name, times), anchor=f"{name}-{number}"))
        for number, group in view.all()
    ]
    layers, groups = ("".join(body for is_layer, body in drawn if is_layer == chosen) for chosen in (True, False))
    return _drawn(view, name, times) + layers + (html.details("Groups, one by one", groups) if groups else "")


def _group_title(group: Overview) -> str:
    return f"{group.name}: {group.count} ops" + (f", the first of {group.times} layers" if group.times > 1 else "")


def _drawn(view: Overview, name: str, times: svg.GraphTimes | None) -> str:
    addresses = {number: f"#{name}-{number}" for number in view.groups}
    return html.figure(svg.drawing(view.listing, addresses, times), f"graph of {view.name}")


def graph_svg(graph: Graph | GraphReport) -> str | None:
    """Return the drawing of a graph, with groups of ops as boxes; None if it is too large to be readable."""
    listing = graph if isinstance(graph, GraphReport) else inspect_graph(graph)
    return svg.drawing(overview(listing).listing) if len(listing.ops) <= _DRAWN else None


def graph_html(graph: Graph | GraphReport) -> str:
    """Return the HTML of a graph for a notebook: its drawing if it is not too large, and its listing."""
    listing = graph if isinstance(graph, GraphReport) else inspect_graph(graph)
    drawing = graph_svg(listing)
    drawn = "" if drawing is None else html.figure(drawing, "graph")
    text = html.details("Listing", html.text_block(str(listing), "listing", _LISTED))
    return html.fragment(f"@{listing.name} [{listing.stage}]: {len(listing.ops)} ops", drawn + text)

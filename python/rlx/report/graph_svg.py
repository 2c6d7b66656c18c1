"""Drawings of graphs as SVG: each op is below its operands, and the layout reduces edge crossings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rlx.ir.graph.listing import GraphReport, OpReport
from rlx.report import palette
from rlx.report.collapse import GROUP
from rlx.report.text import markup, middle_cut, seconds_text

# Sizes in pixels.
_LINE, _PADDING = 15, 8
_COLUMN_GAP, _LAYER_GAP, _MARGIN = 18, 34, 24
_HEAD = 7.0  # length and width of an arrow head
_SWEEPS = 8
_LONGEST = 44
_NARROWEST = 270  # width of the longest entry of a legend


@dataclass(eq=False)
class _DrawnBox:
    """A box, or (without lines) a point that an edge over several layers passes through."""

    lines: tuple[str, ...] = ()
    op: str = ""
    title: str = ""
    address: str = ""
    above: list[_DrawnBox] = field(default_factory=list)
    below: list[_DrawnBox] = field(default_factory=list)
    layer: int = 0
    x: float = 0.0  # of the centre
    y: float = 0.0  # of the upper edge
    band: tuple[float, float] = (0.0, 0.0)  # top and bottom of the layer's highest box
    share: float | None = None  # of the measured time

    @property
    def width(self) -> float:
        return max(map(len, self.lines)) * palette.CHARACTER + 2 * _PADDING if self.lines else 6.0

    @property
    def outline(self) -> float:
        return 2.5 if self.op == GROUP else 1.0

    @property
    def height(self) -> float:
        return len(self.lines) * _LINE + _PADDING if self.lines else 0.0


@dataclass(frozen=True)
class GraphTimes:
    """Measured times for a drawing.

    Attributes:
        seconds: The time of each op, by its first result.
        total: The time of the whole program.
    """

    seconds: Mapping[str, float]
    total: float


def drawing(report: GraphReport, addresses: Mapping[int, str] | None = None, times: GraphTimes | None = None) -> str:
    """Return a graph as an SVG document. Values that do not depend on inputs are written in the boxes of their readers.

    Args:
        report: A listing, or that of an `Overview`.
        addresses: The link target of each group's box, by the group's number.
        times: Measured times: boxes have their time and share, and a colour by their share.
    """
    nodes = _nodes(report, addresses or {}, times)
    layers = _layers(nodes)
    _order(layers)
    _place(layers)
    return _document(report, [node for layer in layers for node in layer])


# --- nodes and layers -----------------------------------------------------------------------------


def _nodes(report: GraphReport, addresses: Mapping[int, str], times: GraphTimes | None) -> list[_DrawnBox]:
    nodes: list[_DrawnBox] = []
    made_by: dict[str, _DrawnBox] = {}
    expressions: dict[str, str] = {}
    for argument in report.arguments:
        if argument.kind == "param":
            expressions[argument.name] = argument.name
            continue
        node = _DrawnBox(
            (_shortened(argument.name), _shortened(str(argument.shape))), "input", f"{argument.kind} {argument.name}"
        )
        nodes.append(node)
        made_by[argument.name] = node
    has_inputs = bool(nodes)
    for op, inside in _with_regions(report.ops):
        captured = dict.fromkeys(n for inner in inside for n in inner.operands if n in expressions or n in made_by)
        names_read = (*op.operands, *(name for name in captured if name not in op.operands))
        inline = [expressions[name] for name in names_read if name in expressions]
        if len(inline) == len(names_read) and (has_inputs or not inline):
            expressions.update(dict.fromkeys(op.results, _expression(op, inline)))
            continue
        node = _DrawnBox(_op_lines(op, inline), op.name, str(op).strip())
        if op.name == GROUP:
            node = _DrawnBox(_group_lines(op), GROUP, f"{op.label}: {op.attributes['ops']} ops")
            node.address = addresses.get(op.attributes["number"], "")
        if times is not None:
            _add_time(node, op, times)
        for name in dict.fromkeys(names_read):
            if name in made_by:
                _connect(made_by[name], node)
        nodes.append(node)
        made_by.update(dict.fromkeys(op.results, node))
    for output, value in zip(report.outputs, report.returned, strict=True):
        lines = (
            _shortened(output.name),
            _shortened(str(output.shape)),
            *([] if value in made_by else [_shortened(expressions[value])]),
        )
        node = _DrawnBox(lines, "output", f"output {output.name}")
        if value in made_by:
            _connect(made_by[value], node)
        nodes.append(node)
    return nodes


def _with_regions(ops: Iterable[OpReport]) -> Iterable[tuple[OpReport, list[OpReport]]]:
    """Return each op of the function with the ops in its regions, which share its box."""
    outer: list[tuple[OpReport, list[OpReport]]] = []
    for op in ops:
        if op.depth:
            outer[-1][1].append(op)
        else:
            outer.append((op, []))
    return outer


def _expression(op: OpReport, operands: Sequence[str]) -> str:
    """Return the text of a value that does not depend on inputs."""
    value = op.attributes.get("value")
    if op.name == "constant" and value is not None:
        return str(value.reshape(-1)[0]) if value.size == 1 else f"constant {op.shapes[0]}"
    return f"{op.label}({', '.join(operands)})"


def _add_time(node: _DrawnBox, op: OpReport, times: GraphTimes) -> None:
    seconds = (
        op.attributes.get("seconds") if op.name == GROUP else times.seconds.get(op.results[0] if op.results else "")
    )
    if seconds is not None:
        share = node.share = seconds / times.total if times.total else 0.0
        text = f"{seconds_text(seconds)}, {100 * share:.1f} %"
        node.lines = (node.lines[0], text, *node.lines[1:])
        node.title += f"\n{text} of the measured time"


def _shortened(text: str) -> str:
    return middle_cut(text, _LONGEST)


def _op_lines(op: OpReport, inline: Sequence[str]) -> tuple[str, ...]:
    lines = [op.label, ", ".join(map(str, op.shapes))]
    lines += inline[:3] if len(inline) <= 3 else [*inline[:2], f"and {len(inline) - 2} more"]
    return tuple(_shortened(line) for line in lines if line)


def _group_lines(op: OpReport) -> tuple[str, ...]:
    flops = op.cost.flops if op.cost is not None else 0
    work = f", {flops:,} flops" if type(flops) is int else ""
    ops, times = op.attributes["ops"], op.attributes["times"]
    count = f"{times} × {ops // times} ops" if times > 1 else f"{ops} ops"
    return _shortened(op.label), f"{count}{work}", _shortened(", ".join(map(str, op.shapes)))


def _connect(above: _DrawnBox, below: _DrawnBox) -> None:
    above.below.append(below)
    below.above.append(above)


def _layers(nodes: Sequence[_DrawnBox]) -> list[list[_DrawnBox]]:
    """Return the layers. Each node is one layer below its lowest operand; inputs are directly above their first reader."""
    for node in nodes:  # in program order, so the layers of operands are known
        node.layer = max((n.layer + 1 for n in node.above), default=0)
    for node in nodes:
        if not node.above and node.below:
            node.layer = min(n.layer for n in node.below) - 1
    last = max((n.layer for n in nodes), default=0)
    layers: list[list[_DrawnBox]] = [[] for _ in range(last + 1)]
    for node in nodes:
        layers[node.layer].append(node)
    for node in nodes:
        node.below = [_lengthened(node, below, layers) for below in node.below]
    return layers


def _lengthened(above: _DrawnBox, below: _DrawnBox, layers: list[list[_DrawnBox]]) -> _DrawnBox:
    """Split an edge into segments of one layer each. Returns the first node below."""
    points = [_DrawnBox(layer=layer) for layer in range(above.layer + 1, below.layer)]
    for point in points:
        layers[point.layer].append(point)
    chain = [above, *points, below]
    below.above[below.above.index(above)] = chain[-2]
    for point, before, after in zip(points, chain, chain[2:], strict=False):
        point.above, point.below = [before], [after]
    return chain[1]


def _order(layers: list[list[_DrawnBox]]) -> None:
    """Sort each layer by the positions of the neighbours, downwards and upwards alternately, to reduce edge crossings."""
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        position = {node: i for layer in layers for i, node in enumerate(layer)}
        for layer in layers if downwards else reversed(layers):

            def middle(node: _DrawnBox, position: dict[_DrawnBox, int] = position, down: bool = downwards) -> float:
                near = node.above if down else node.below
                return sum(position[n] for n in near) / len(near) if near else position[node]

            layer.sort(key=middle)
            position.update({node: i for i, node in enumerate(layer)})


# --- coordinates ----------------------------------------------------------------------------------


def _place(layers: list[list[_DrawnBox]]) -> None:
    y = 2.0 * _MARGIN
    for layer in layers:
        x, tallest = 0.0, max((n.height for n in layer), default=0.0)
        for node in layer:
            node.x, node.y, node.band = x + node.width / 2, y + (tallest - node.height) / 2, (y, y + tallest)
            x += node.width + _COLUMN_GAP
        y += tallest + _LAYER_GAP
    for sweep in range(4 * _SWEEPS):
        downwards = sweep % 2 == 0
        for layer in layers if downwards else reversed(layers):
            _align(layer, downwards)
    least = min((n.x - n.width / 2 for layer in layers for n in layer), default=0.0)
    for layer in layers:
        for node in layer:
            node.x += _MARGIN - least


def _align(layer: Sequence[_DrawnBox], downwards: bool) -> None:
    """Move each node towards the mean of its neighbours, as far as adjacent nodes allow."""
    wishes = []
    for node in layer:
        near = (node.above if downwards else node.below) or node.below or node.above
        wishes.append(sum(n.x for n in near) / len(near) if near else node.x)
    # Groups of touching nodes, each as (offsets from the first node, desired position of the first node). Overlapping
    # groups are merged and moved to the mean of the desired positions.
    groups: list[tuple[list[_DrawnBox], list[float], float]] = []
    for node, wish in zip(layer, wishes, strict=True):
        members, offsets, first = [node], [0.0], wish
        while groups:
            before, their_offsets, their_first = groups[-1]
            gap = (before[-1].width + members[0].width) / 2 + _COLUMN_GAP
            start = their_offsets[-1] + gap
            if their_first + start <= first:
                break
            groups.pop()
            first = (their_first * len(before) + (first - start) * len(members)) / (len(before) + len(members))
            members, offsets = before + members, their_offsets + [start + o for o in offsets]
        groups.append((members, offsets, first))
    for members, offsets, first in groups:
        for node, offset in zip(members, offsets, strict=True):
            node.x = first + offset


# --- text -----------------------------------------------------------------------------------------


def _document(report: GraphReport, nodes: Sequence[_DrawnBox]) -> str:
    """Return the heading, the drawing, and the legend of the colours."""
    heading = f"@{_shortened(report.name)} [{report.stage}]"
    measured = any(node.share is not None for node in nodes)
    ops = {node.op for node in nodes if node.lines and node.share is None}
    least = max(len(heading) * palette.CHARACTER, _NARROWEST) + 2 * _MARGIN
    right_edge = max((n.x + n.width / 2 + _MARGIN for n in nodes), default=least)
    width = max(right_edge, least)
    for node in nodes:
        node.x += (width - right_edge) / 2
    rows = palette.legend_rows(ops, width - 2 * _MARGIN)
    rows = [*(palette.heat_rows(width - 2 * _MARGIN) if measured else ()), *rows]
    height = max([n.y + n.height for n in nodes], default=2.0 * _MARGIN) + 2 * _MARGIN + palette.ROW * (len(rows) - 1)
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} {palette.FONT} fill="{palette.INK}">']
    lines.append(f'<rect width="{width:.0f}" height="{height:.0f}" class="paper" fill="{palette.PAPER}"/>')
    lines.append(f'<text x="{_MARGIN}" y="{_MARGIN}" font-weight="bold">{markup(heading)}</text>')
    lines += _edges(nodes)
    lines += [text for node in nodes if node.lines for text in _box(node)]
    lines += palette.legend(rows, _MARGIN, height - _MARGIN / 2)
    return "\n".join([*lines, "</svg>", ""])


def _edges(nodes: Iterable[_DrawnBox]) -> list[str]:
    """Return arrows that bend between layers and are straight inside them, so that they cross no box."""
    arrows: list[str] = []
    for node in nodes:
        for below in node.below if node.lines else ():
            path = f"M{node.x:.1f},{node.y + node.height:.1f}"
            above = node
            while True:
                (_, start), (end, _) = above.band, below.band
                bend = (start + end) / 2
                x = _arrival(above, below)
                path += f" V{start:.1f} C{above.x:.1f},{bend:.1f} {x:.1f},{bend:.1f} {x:.1f},{end:.1f}"
                if below.lines:
                    break
                above, below = below, below.below[0]
            tip = below.y - below.outline / 2
            base = tip - _HEAD
            arrows.append(f'<path d="{path} V{base:.1f}" fill="none" stroke="{palette.FAINT}"/>')
            corners = f"{x - _HEAD / 2:.1f},{base:.1f} {x + _HEAD / 2:.1f},{base:.1f} {x:.1f},{tip:.1f}"
            arrows.append(f'<polygon points="{corners}" fill="{palette.FAINT}"/>')
    return arrows


def _arrival(above: _DrawnBox, below: _DrawnBox) -> float:
    """Return where an edge reaches a box. The edges of a box are side by side, so that each arrow head is visible."""
    sources = sorted(dict.fromkeys(below.above), key=lambda source: source.x)
    gap = min(2.0 * _HEAD, below.width / (len(sources) + 1))
    return below.x + (sources.index(above) - (len(sources) - 1) / 2) * gap


def _box(node: _DrawnBox) -> list[str]:
    left_edge, rounding = node.x - node.width / 2, 10 if node.op in ("input", "output") else 3
    place = f'x="{left_edge:.1f}" y="{node.y:.1f}" width="{node.width:.1f}" height="{node.height:.1f}"'
    lines = [f"<g><title>{markup(node.title)}</title>"]
    stroke = f'stroke="{palette.OUTLINE}" stroke-width="{node.outline}"'
    colour = palette.colour_of(node.op) if node.share is None else palette.heat_of(node.share)
    lines.append(f'<rect {place} rx="{rounding}" fill="{colour}" {stroke}/>')
    for i, line in enumerate(node.lines):
        style = 'font-weight="bold"' if i == 0 else f'fill="{palette.MUTED if node.share is None else palette.INK}"'
        y = node.y + (i + 1) * _LINE - 1
        lines.append(f'<text x="{node.x:.1f}" y="{y:.1f}" text-anchor="middle" {style}>{markup(line)}</text>')
    box = [*lines, "</g>"]
    return [f'<a href="{markup(node.address)}">', *box, "</a>"] if node.address else box

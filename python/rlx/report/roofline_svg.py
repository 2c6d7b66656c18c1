"""The roofline plot: the rate of ops or kernels against their operations per byte, on logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rlx.report import html, palette
from rlx.report.roofline import MachineLimits, OpWork
from rlx.report.text import markup

# Sizes in pixels.
_LEFT, _TOP, _RIGHT, _BOTTOM, _WIDTH, _HEIGHT = 70, 78, 24, 52, 980, 340
_NARROW, _EDGE = 290, 12
_SMALLEST, _LARGEST = 3.5, 15.0


@dataclass(frozen=True)
class Point:
    """One kernel, or one op.

    Attributes:
        title: The tooltip.
        op: The op that determines its colour.
        work: Its work.
        seconds: Its time, measured or the minimum.
    """

    title: str
    op: str
    work: OpWork
    seconds: float


def figure(machine: MachineLimits, points: Sequence[Point], *, measured: bool) -> str:
    """Return the plot as HTML: see `drawing`."""
    wide, narrow = (drawing(machine, points, measured=measured, width=width) for width in (_WIDTH, _NARROW))
    return html.figure(wide, "roofline", narrow)


def drawing(machine: MachineLimits, points: Sequence[Point], *, measured: bool, width: int = _WIDTH) -> str:
    """Return the plot as an SVG document. Points without operations are omitted.

    Args:
        machine: The machine, which determines the roof.
        points: The points; the area of a point is proportional to its time.
        measured: Whether their times are measured; otherwise they are on the roof.
        width: The width of the plot itself in pixels.
    """
    shown = [p for p in points if p.work.flops and p.work.bytes and p.seconds]
    return "\n".join(_Plot(machine, shown, measured, width).lines())


class _Plot:
    def __init__(self, machine: MachineLimits, points: Sequence[Point], measured: bool, width: int):
        self.machine, self.measured, self.width = machine, measured, width
        self.points = sorted(points, key=lambda p: -p.seconds)
        xs = [p.work.intensity for p in points] + [
            machine.ridge,
            machine.flops / max(machine.bytes, machine.cached_bytes),
        ]
        ys = [p.work.flops / p.seconds for p in points] + [machine.flops]
        self.x_range = math.floor(math.log10(min(xs)) - 0.2), math.ceil(math.log10(max(xs)) + 0.2)
        self.y_range = math.floor(math.log10(min(ys)) - 0.2), math.ceil(math.log10(max(ys)) + 0.1)

    def x(self, intensity: float) -> float:
        low, high = self.x_range
        return _LEFT + self.width * (math.log10(intensity) - low) / (high - low)

    def y(self, rate: float) -> float:
        low, high = self.y_range
        return _TOP + _HEIGHT * (1 - (math.log10(rate) - low) / (high - low))

    def lines(self) -> Iterator[str]:
        width = _LEFT + self.width + _RIGHT
        legend = palette.legend_rows({p.op for p in self.points}, width - 2 * _EDGE)
        height = _TOP + _HEIGHT + _BOTTOM + 2 + palette.ROW * len(legend)
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'role="img" {palette.FONT} fill="{palette.INK}">'
        )
        what = "measured" if self.measured else "each op at the roof"
        yield f"<title>Roofline, {what}: {markup(str(self.machine))}</title>"
        yield f'<rect width="{width}" height="{height}" class="paper" fill="{palette.PAPER}"/>'
        yield f'<text x="{_EDGE}" y="20" font-weight="bold">Roofline, {what}</text>'
        rates, _, caches = str(self.machine).partition(", ")
        for number, line in enumerate((rates, caches)):
            yield f'<text x="{_EDGE}" y="{36 + 15 * number}" fill="{palette.MUTED}">{markup(line)}</text>'
        yield from self._grid()
        yield from self._roof()
        for point in self.points:
            yield from self._circle(point)
        yield from palette.legend(legend, _EDGE, height - 12)
        yield "</svg>"

    def _grid(self) -> Iterator[str]:
        bottom, right = _TOP + _HEIGHT, _LEFT + self.width
        for power in range(self.x_range[0], self.x_range[1] + 1):
            x = self.x(10.0**power)
            yield f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{bottom}" stroke="{palette.GRID}"/>'
            yield f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{10.0**power:g}</text>'
        for power in range(self.y_range[0], self.y_range[1] + 1):
            y = self.y(10.0**power)
            yield f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="{palette.GRID}"/>'
            yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{10.0 ** (power - 9):g}</text>'
        yield f'<text x="{_LEFT}" y="{_TOP - 6}" fill="{palette.MUTED}">Gflop/s</text>'
        yield f'<text x="{right}" y="{bottom + 34}" text-anchor="end" fill="{palette.MUTED}">operations for each byte</text>'

    def _roof(self) -> Iterator[str]:
        machine = self.machine
        bandwidths = {machine.bytes: "", machine.cached_bytes: ' stroke-dasharray="6 3"'}
        for bandwidth, dash in bandwidths.items() if machine.cached_bytes > machine.bytes else [(machine.bytes, "")]:
            ridge, low, high = machine.flops / bandwidth, 10.0 ** self.x_range[0], 10.0 ** self.x_range[1]
            start = min(max(low, 10.0 ** self.y_range[0] / bandwidth), ridge)
            corners = [(start, start * bandwidth), (ridge, machine.flops), (high, machine.flops)]
            path = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in corners)
            yield f'<polyline points="{path}" fill="none" stroke="{palette.ACCENT}" stroke-width="2"{dash}/>'

    def _circle(self, point: Point) -> Iterator[str]:
        share = point.seconds / self.points[0].seconds
        radius = max(_SMALLEST, _LARGEST * math.sqrt(share))
        x, y = self.x(point.work.intensity), self.y(point.work.flops / point.seconds)
        colours = f'fill="{palette.colour_of(point.op)}" stroke="{palette.OUTLINE}"'
        yield f'<g><title>{markup(point.title)}</title><circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" {colours}/></g>'

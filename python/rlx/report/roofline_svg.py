"""The roofline plot: the rate of ops or kernels against their operations per byte, on logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rlx.report import palette
from rlx.report.roofline import MachineLimits, OpWork
from rlx.report.text import markup

# Sizes in pixels.
_LEFT, _TOP, _RIGHT, _BOTTOM, _WIDTH, _HEIGHT = 70, 46, 24, 52, 760, 340
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


def drawing(machine: MachineLimits, points: Sequence[Point], *, measured: bool) -> str:
    """Return the plot as an SVG document. Points without operations are omitted.

    Args:
        machine: The machine, which determines the roof.
        points: The points; the area of a point is proportional to its time.
        measured: Whether their times are measured; otherwise they are on the roof.
    """
    return "\n".join(
        _Plot(machine, [p for p in points if p.work.flops and p.work.bytes and p.seconds], measured).lines()
    )


class _Plot:
    def __init__(self, machine: MachineLimits, points: Sequence[Point], measured: bool):
        self.machine, self.measured = machine, measured
        self.points = sorted(points, key=lambda p: -p.seconds)
        xs = [p.work.intensity for p in points] + [machine.ridge]
        ys = [p.work.flops / p.seconds for p in points] + [machine.flops]
        self.x_range = math.floor(math.log10(min(xs)) - 0.2), math.ceil(math.log10(max(xs)) + 0.2)
        self.y_range = math.floor(math.log10(min(ys)) - 0.2), math.ceil(math.log10(max(ys)) + 0.1)

    def x(self, intensity: float) -> float:
        low, high = self.x_range
        return _LEFT + _WIDTH * (math.log10(intensity) - low) / (high - low)

    def y(self, rate: float) -> float:
        low, high = self.y_range
        return _TOP + _HEIGHT * (1 - (math.log10(rate) - low) / (high - low))

    def lines(self) -> Iterator[str]:
        width, height = _LEFT + _WIDTH + _RIGHT, _TOP + _HEIGHT + _BOTTOM + 22
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'role="img" {palette.FONT} fill="{palette.INK}">'
        )
        what = "measured" if self.measured else "each op at the roof"
        yield f"<title>Roofline, {what}: {markup(str(self.machine))}</title>"
        yield f'<rect width="{width}" height="{height}" fill="{palette.PAPER}"/>'
        yield f'<text x="{_LEFT}" y="22" font-weight="bold">Roofline, {what}</text>'
        yield f'<text x="{_LEFT + 230}" y="22" fill="{palette.MUTED}">{markup(str(self.machine))}</text>'
        yield from self._grid()
        yield from self._roof()
        for point in self.points:
            yield from self._circle(point)
        yield from palette.legend({p.op for p in self.points}, _LEFT, height - 12)
        yield "</svg>"

    def _grid(self) -> Iterator[str]:
        bottom, right = _TOP + _HEIGHT, _LEFT + _WIDTH
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
        machine, low, high = self.machine, 10.0 ** self.x_range[0], 10.0 ** self.x_range[1]
        start = max(low, 10.0 ** self.y_range[0] / machine.bytes)
        corners = [(start, start * machine.bytes), (machine.ridge, machine.flops), (high, machine.flops)]
        path = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in corners)
        yield f'<polyline points="{path}" fill="none" stroke="{palette.ACCENT}" stroke-width="2"/>'

    def _circle(self, point: Point) -> Iterator[str]:
        share = point.seconds / self.points[0].seconds
        radius = max(_SMALLEST, _LARGEST * math.sqrt(share))
        x, y = self.x(point.work.intensity), self.y(point.work.flops / point.seconds)
        colours = f'fill="{palette.colour_of(point.op)}" stroke="{palette.OUTLINE}"'
        yield f'<g><title>{markup(point.title)}</title><circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" {colours}/></g>'

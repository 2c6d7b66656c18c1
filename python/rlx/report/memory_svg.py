"""Drawings of memory plans as SVG: a rectangle for each value, whose width is its lifetime and whose height is its size."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from rlx.plan import MemoryPlan, PlannedValue
from rlx.report import palette
from rlx.report.text import bytes_text, short_place

# Sizes in pixels.
_LEFT, _TOP, _RIGHT = 84, 62, 72
_HEIGHT = 360
_WIDEST, _NARROWEST = 1400, 560
_LABEL_STEP = 13  # the least distance of two slanted labels
_IN_USE = "bytes in use"


def drawing(plan: MemoryPlan) -> str:
    """A plan as an SVG document. Every rectangle has a title that a browser shows."""
    return "\n".join(_Drawing(plan).lines())


class _Drawing:
    def __init__(self, plan: MemoryPlan):
        self.plan = plan
        self.count = len(plan.steps)
        self.top_bytes = max(plan.arena_size, 1)
        self.shown = [v for v in plan.values if v.offset is not None and v.relation != "view"]
        self.ops = {v.op for v in self.shown}
        # The legend is one row below the drawing.
        least = max(_NARROWEST, palette.legend_width(self.ops) + 2 * palette.entry_width(_IN_USE) - _LEFT)
        self.width = max(least, min(26 * self.count, _WIDEST))
        self.cell = self.width / self.count
        views = {v.name: v.base for v in plan.values if v.relation == "view"}
        self.views_of: dict[str | None, list[str]] = {}
        for name, base in views.items():
            self.views_of.setdefault(base, []).append(name)
        self.written_over: dict[str, int] = {}
        for v in self.shown:
            base = v.base
            while base in views:
                base = views[base]
            if base is not None:
                self.written_over[base] = v.start
        self.every = max(1, -(-_LABEL_STEP // max(1, int(self.cell))))
        longest = max(map(len, plan.steps))
        self.bottom = int(0.75 * longest * palette.CHARACTER) + 70

    def x(self, step: float) -> float:
        return _LEFT + step * self.cell

    def y(self, offset: float) -> float:
        return _TOP + _HEIGHT * (1 - offset / self.top_bytes)

    def lines(self) -> Iterator[str]:
        width, height = _LEFT + self.width + _RIGHT, _TOP + _HEIGHT + self.bottom
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" '
            f'height="{height}" {palette.FONT} fill="{palette.INK}">'
        )
        yield f"<title>Memory of @{escape(self.plan.name)}: {escape(self._figures())}</title>"
        yield f'<rect width="{width:.0f}" height="{height}" fill="{palette.PAPER}"/>'
        yield f'<text x="{_LEFT}" y="22" font-size="14" font-weight="bold">Memory of @{escape(self.plan.name)}</text>'
        yield f'<text x="{_LEFT}" y="40" fill="{palette.MUTED}">{escape(self._figures())}</text>'
        yield from self._grid()
        for value in self.shown:
            yield from self._rectangle(value)
        yield self._live_curve()
        yield from self._step_labels()
        yield from self._legend(height - 14)
        yield "</svg>"

    def _figures(self) -> str:
        plan = self.plan
        sizes = "".join(f" · {name} = {size}" for name, size in plan.sizes.items())
        return (
            f"arena {bytes_text(plan.arena_size)} · at one step at most {bytes_text(plan.peak_live_bytes)} · "
            f"without sharing {bytes_text(plan.total_bytes)}{sizes}"
        )

    def _grid(self) -> Iterator[str]:
        unit = _tick(self.top_bytes)
        for offset in range(0, self.top_bytes + 1, unit):
            y = self.y(offset)
            yield f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_LEFT + self.width:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
            yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{bytes_text(offset)}</text>'

    def _rectangle(self, value: PlannedValue) -> Iterator[str]:
        assert value.offset is not None
        x, y = self.x(value.start), self.y(value.offset + value.size)
        until = self.written_over.get(value.name, value.end + 1)
        width, height = (until - value.start) * self.cell, self.y(value.offset) - y
        dash = ' stroke-dasharray="3 2"' if value.relation == "in place" else ""
        place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{max(height, 0.5):.1f}"'
        colours = f'fill="{palette.colour_of(value.op)}" fill-opacity="0.9" stroke="{palette.OUTLINE}"'
        yield f"<g><title>{escape(self._title(value))}</title><rect {place} {colours}{dash}/>"
        label = f"{value.name} {value.label}"
        for text in (label, value.name):
            if len(text) * palette.CHARACTER + 6 < width and height > 13:
                yield f'<text x="{x + 4:.1f}" y="{y + height / 2 + 4:.1f}">{escape(text)}</text>'
                break
        yield "</g>"

    def _title(self, value: PlannedValue) -> str:
        assert value.offset is not None
        lines = [f"{value.name} = {value.label}: {value.shape}"]
        lines.append(f"bytes {value.offset} to {value.offset + value.size} ({bytes_text(value.size)})")
        lines.append(f"steps {value.start} to {value.end}")
        if value.base is not None:
            lines.append(f"written over {value.base}")
        if value.name in self.views_of:
            lines.append(f"views: {', '.join(self.views_of[value.name])}")
        if value.outputs:
            lines.append(f"output {', '.join(value.outputs)}")
        if value.location:
            lines.append(short_place(value.location))
        return "\n".join(lines)

    def _live_curve(self) -> str:
        points = []
        for step, num_bytes in enumerate(self.plan.live_bytes()):
            points += [f"{self.x(step):.1f},{self.y(num_bytes):.1f}", f"{self.x(step + 1):.1f},{self.y(num_bytes):.1f}"]
        return (
            f'<polyline points="{" ".join(points)}" fill="none" stroke="{palette.ACCENT}" stroke-width="1.5">'
            f"<title>{_IN_USE}</title></polyline>"
        )

    def _step_labels(self) -> Iterator[str]:
        y = _TOP + _HEIGHT + 14
        for step in range(0, self.count, self.every):
            x = self.x(step + 0.5)
            name = escape(f"{step} {self.plan.steps[step]}")
            yield f'<text transform="translate({x:.1f} {y}) rotate(48)" font-size="10">{name}</text>'

    def _legend(self, y: int) -> Iterator[str]:
        x = float(_LEFT)
        yield from palette.legend(self.ops, x, y)
        x += palette.legend_width(self.ops)
        line = f'x1="{x:.0f}" y1="{y - 4}" x2="{x + 14:.0f}" y2="{y - 4}"'
        yield f'<line {line} stroke="{palette.ACCENT}" stroke-width="1.5"/>'
        yield f'<text x="{x + 17:.0f}" y="{y}">{_IN_USE}</text>'
        if any(v.relation == "in place" for v in self.shown):
            x += palette.entry_width(_IN_USE)
            box = f'x="{x:.0f}" y="{y - 10}" width="12" height="12"'
            yield f'<rect {box} fill="none" stroke="{palette.OUTLINE}" stroke-dasharray="3 2"/>'
            yield f'<text x="{x + 17:.0f}" y="{y}">in place</text>'


def _tick(total: int) -> int:
    """The distance of grid lines: a power of two, such that there are four to eight."""
    unit = 1
    while total // unit > 8:
        unit *= 2
    return unit

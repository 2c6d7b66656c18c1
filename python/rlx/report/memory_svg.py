"""Drawings of memory plans as SVG: the bytes in use at each step at the top, the places of values in the arena below."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np

from rlx.plan import MemoryPlan, PlannedValue
from rlx.report import palette
from rlx.report.text import bytes_text, markup, middle_cut, short_place

# Sizes in pixels.
_LEFT, _TOP, _RIGHT, _BETWEEN = 84, 70, 72, 46
_CURVE, _HEIGHT = 150, 360
_EDGE, _LINE, _HEADING = 12, 15, 8.6  # distance of texts from the edge, height of a line, character width of the title
_IN_USE = "bytes in use"
_WIDEST, _NARROWEST = 1400, 560
PAGE_WIDTH, HALF_PAGE_WIDTH, NARROW_PAGE_WIDTH = 1080, 540, 370  # the whole drawing on pages
_LABEL_STEP = 13  # minimum distance of two slanted labels
_LABEL_SIZE, _ANGLE = 10, 48  # in degrees
_LABEL = palette.CHARACTER * _LABEL_SIZE / palette.SIZE  # the character width of these labels
_SLANT = math.cos(math.radians(_ANGLE)), math.sin(math.radians(_ANGLE))
_LONGEST = 34  # characters of a label; half of them on narrow pages
_SHARED = "in the bytes of another"
_THIN = 3  # thinner rectangles have no outline, which would cover them
_ARENA = "arena"


def drawing(plan: MemoryPlan, width: int | None = None) -> str:
    """Return a plan as an SVG document. Every rectangle has a title that a browser shows.

    Args:
        plan: The plan.
        width: The width of the drawing in pixels. By default it depends on the number of steps.
    """
    return "\n".join(_Drawing(plan, width).lines())


class _Drawing:
    def __init__(self, plan: MemoryPlan, whole: int | None):
        self.plan = plan
        self.count = len(plan.steps)
        self.top_bytes = max(plan.arena_size, 1)
        self.shown = [v for v in plan.values if v.offset is not None and v.relation not in ("view", "row")]
        self.ops = {v.op for v in self.shown}
        longest = _LONGEST if whole is None or whole > _NARROWEST else _LONGEST // 2
        steps = [middle_cut(f"{step} {name}", longest) for step, name in enumerate(plan.steps)]
        right = max(_RIGHT, _SLANT[0] * max(map(len, steps), default=0) * _LABEL)
        self.width = min(max(_NARROWEST, 26 * self.count), _WIDEST) if whole is None else whole - _LEFT - right
        self.cell = self.width / self.count
        self.until = _until(self.shown)
        self.views_of: dict[str | None, list[str]] = {}
        for v in plan.values:
            if v.relation == "view":
                self.views_of.setdefault(v.base, []).append(v.name)
        self.names_all = self.cell >= _LABEL_STEP  # otherwise only the steps with the most bytes in use have labels
        self.labels = {step: steps[step] for step in self._named_steps()}
        reach = {step: self.x(step + 0.5) + _SLANT[0] * len(text) * _LABEL for step, text in self.labels.items()}
        self.right = max(_RIGHT, max(reach.values(), default=0) - _LEFT - self.width)
        self.whole = _LEFT + self.width + self.right
        more = [_SHARED] if any(v.relation in ("in place", "within") for v in self.shown) else []
        self.legend = palette.legend_rows(self.ops, self.whole - 2 * _EDGE, more)
        self.head = [middle_cut(f"Memory of @{plan.name}", int((self.whole - 2 * _EDGE) / _HEADING)), *self._figures()]
        self.top = _TOP + _LINE * (len(self.head) - 2)
        self.map_top = self.top + _CURVE + _BETWEEN
        self.bottom = int(_SLANT[1] * max(map(len, self.labels.values()), default=0) * _LABEL) + 44
        self.bottom += palette.ROW * len(self.legend) + 20

    def x(self, step: float) -> float:
        return _LEFT + step * self.cell

    def y(self, offset: float) -> float:
        """Return the y coordinate of a byte of the arena."""
        return self.map_top + _HEIGHT * (1 - offset / self.top_bytes)

    def y_used(self, used: float) -> float:
        """Return the y coordinate of a number of bytes in use."""
        return self.top + _CURVE * (1 - used / self.top_bytes)

    def lines(self) -> Iterator[str]:
        width, height = self.whole, self.map_top + _HEIGHT + self.bottom
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" '
            f'height="{height}" {palette.FONT} fill="{palette.INK}">'
        )
        title, *figures = self.head
        yield f"<title>{markup(title)}: {markup(' · '.join(figures))}</title>"
        yield f'<rect width="{width:.0f}" height="{height}" class="paper" fill="{palette.PAPER}"/>'
        yield f'<text x="{_EDGE}" y="22" font-size="14" font-weight="bold">{markup(title)}</text>'
        for number, line in enumerate(figures):
            yield f'<text x="{_EDGE}" y="{40 + _LINE * number}" fill="{palette.MUTED}">{markup(line)}</text>'
        yield from self._grid(self.y_used, _IN_USE, 4)
        yield from self._areas()
        yield from self._peak()
        yield from self._grid(self.y, "places in the arena", 8)
        for value in self.shown:
            yield from self._rectangle(value)
        yield from self._step_labels()
        yield from palette.legend(self.legend, _EDGE, height - 14)
        yield "</svg>"

    def _figures(self) -> list[str]:
        """Return the sizes of the plan, in lines that fit."""
        plan = self.plan
        figures = [
            f"arena {bytes_text(plan.arena_size)}",
            f"at one step at most {bytes_text(plan.peak_live_bytes)}",
            f"gap {100 * plan.gap:.1f} %",
            f"without sharing {bytes_text(plan.total_bytes)}",
            *(middle_cut(f"{name} = {size}", 40) for name, size in plan.sizes.items()),
        ]
        lines = [""]
        for figure in figures:
            longer = f"{lines[-1]} · {figure}" if lines[-1] else figure
            if lines[-1] and len(longer) * palette.CHARACTER > self.whole - 2 * _EDGE:
                lines.append(figure)
            else:
                lines[-1] = longer
        return lines

    def _grid(self, y_of: Callable[[float], float], title: str, most: int) -> Iterator[str]:
        unit = _tick(self.top_bytes, most)
        yield f'<text x="{_LEFT}" y="{y_of(self.top_bytes) - 6:.1f}" fill="{palette.MUTED}">{title}</text>'
        for offset in range(0, self.top_bytes + 1, unit):
            y = y_of(offset)
            yield f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_LEFT + self.width:.1f}" y2="{y:.1f}" stroke="{palette.GRID}"/>'
            yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{bytes_text(offset)}</text>'

    # --- bytes in use ---------------------------------------------------------------------------------

    def _areas(self) -> Iterator[str]:
        """Yield the bytes in use as stacked bands, one for each group of ops."""
        below = np.zeros(self.count, np.int64)
        for colour, used in self._used_by_colour().items():
            above = below + used
            points = [*self._outline(above), *reversed(list(self._outline(below)))]
            yield f'<polygon points="{" ".join(points)}" fill="{colour}"/>'
            below = above
        yield (
            f'<polyline points="{" ".join(self._outline(below))}" fill="none" stroke="{palette.OUTLINE}">'
            "<title>bytes in use</title></polyline>"
        )

    def _used_by_colour(self) -> dict[str, np.ndarray]:
        """Return the bytes in use at each step, by the colour of the slots' values."""
        by_slot: dict[int, list[PlannedValue]] = {}
        for v in self.shown:
            assert v.slot is not None
            by_slot.setdefault(v.slot, []).append(v)
        by_colour = {group.colour: np.zeros(self.count, np.int64) for group in palette.GROUPS}
        by_colour[palette.PAPER] = np.zeros(self.count, np.int64)
        for number, slot in enumerate(self.plan.slots):
            values = sorted(by_slot.get(number, ()), key=lambda v: v.start)
            starts = [slot.start, *(v.start for v in values[1:]), slot.end + 1]
            for v, first, end in zip(values, starts, starts[1:], strict=False):
                by_colour[palette.colour_of(v.op)][first:end] += slot.size
            if not values:  # scratch storage for copies
                by_colour[palette.PAPER][slot.start : slot.end + 1] += slot.size
        return {colour: used for colour, used in by_colour.items() if used.any()}

    def _outline(self, used: np.ndarray) -> Iterator[str]:
        changes = [0, *(np.flatnonzero(np.diff(used)) + 1), self.count]
        for first, end in pairwise(changes):
            y = self.y_used(float(used[first]))
            yield f"{self.x(first):.1f},{y:.1f}"
            yield f"{self.x(end):.1f},{y:.1f}"

    def _peak(self) -> Iterator[str]:
        """Yield the arena's size, and the fullest step."""
        y, right = self.y_used(self.plan.arena_size), _LEFT + self.width
        line = f'x1="{_LEFT}" y1="{y:.1f}" x2="{right:.1f}" y2="{y:.1f}"'
        yield f'<line {line} stroke="{palette.ACCENT}" stroke-dasharray="6 3"/>'
        yield f'<text x="{right + 6:.1f}" y="{y + 4:.1f}" fill="{palette.ACCENT}">{_ARENA}</text>'
        used = self.plan.live_bytes()
        step = used.index(max(used))
        yield f'<circle cx="{self.x(step + 0.5):.1f}" cy="{self.y_used(used[step]):.1f}" r="3.5" fill="{palette.ACCENT}"/>'
        # The label is as near to the step as the title of the axis and the edge of the drawing allow.
        first = _LEFT + (len(_IN_USE) + 2) * palette.CHARACTER
        room = int((_LEFT + self.width - first) / palette.CHARACTER)
        labels = [f"most at step {step}: {self.plan.steps[step]}", f"most at step {step}", f"step {step}"]
        label = next((text for text in labels if len(text) <= room), labels[-1])
        x = min(max(self.x(step + 0.5) + 8, first), _LEFT + self.width - len(label) * palette.CHARACTER)
        yield f'<text x="{x:.1f}" y="{self.top - 6}" fill="{palette.ACCENT}">{markup(label)}</text>'

    # --- places of values -----------------------------------------------------------------------------

    def _rectangle(self, value: PlannedValue) -> Iterator[str]:
        assert value.offset is not None
        x, y = self.x(value.start), self.y(value.offset + value.size)
        width = (self.until[value.name] - value.start) * self.cell
        height = max(self.y(value.offset) - y, 0.5)
        shares = value.relation in ("in place", "within")
        stroke = f'stroke="{palette.OUTLINE}"' if min(width, height) >= _THIN else 'stroke="none"'
        dash = ' stroke-dasharray="3 2"' if shares else ""
        place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
        colours = f'fill="{palette.colour_of(value.op)}" {stroke}'
        yield f"<g><title>{markup(self._title(value))}</title><rect {place} {colours}{dash}/>"
        for text in (f"{value.name} {value.label}", value.name):
            if len(text) * palette.CHARACTER + 6 < width and height > 13:
                yield f'<text x="{x + 4:.1f}" y="{y + height / 2 + 4:.1f}">{markup(text)}</text>'
                break
        yield "</g>"

    def _title(self, value: PlannedValue) -> str:
        assert value.offset is not None
        lines = [f"{value.name} = {value.label}: {value.shape}"]
        lines.append(f"bytes {value.offset} to {value.offset + value.size} ({bytes_text(value.size)})")
        lines.append(f"steps {value.start} to {value.end}")
        if value.base is not None:
            lines.append(f"{'written over' if value.relation == 'in place' else 'computed within'} {value.base}")
        if value.name in self.views_of:
            lines.append(f"views: {', '.join(self.views_of[value.name])}")
        if value.outputs:
            lines.append(f"output {', '.join(value.outputs)}")
        if value.location:
            lines.append(short_place(value.location))
        return "\n".join(lines)

    # --- labels ----------------------------------------------------------------------------

    def _step_labels(self) -> Iterator[str]:
        y = self.map_top + _HEIGHT + 14
        for step, label in self.labels.items():
            x, name = self.x(step + 0.5), markup(label)
            yield f'<line x1="{x:.1f}" y1="{y - 14}" x2="{x:.1f}" y2="{y - 9}" stroke="{palette.OUTLINE}"/>'
            yield f'<text transform="translate({x:.1f} {y}) rotate({_ANGLE})" font-size="{_LABEL_SIZE}">{name}</text>'

    def _named_steps(self) -> list[int]:
        """Return all steps if there is room; otherwise those with the most bytes in use, at a sufficient distance."""
        if self.names_all:
            return list(range(self.count))
        used = self.plan.live_bytes()
        chosen: list[int] = [0, self.count - 1]
        for step in sorted(range(self.count), key=lambda s: (-used[s], s)):
            if all(abs(step - other) * self.cell >= 3 * _LABEL_STEP for other in chosen):
                chosen.append(step)
        return sorted(chosen)


def _until(values: list[PlannedValue]) -> dict[str, int]:
    """Return for each value the step from which its bytes are reused or free."""
    by_slot: dict[int | None, list[PlannedValue]] = {}
    for v in sorted(values, key=lambda v: v.start, reverse=True):
        by_slot.setdefault(v.slot, []).append(v)
    until: dict[str, int] = {}
    for shared in by_slot.values():
        after: list[tuple[int, int, int]] = []  # bytes of later values, and the step from which they are used
        for v in shared:
            assert v.offset is not None
            end = v.offset + v.size
            over = [start for low, high, start in after if low < end and v.offset < high and start > v.start]
            until[v.name] = min([v.end + 1, *over])
            after = [entry for entry in after if not (v.offset <= entry[0] and entry[1] <= end)]
            after.append((v.offset, end, v.start))
    return until


def _tick(total: int, most: int) -> int:
    """Return the distance of grid lines, a power of two, such that there are at most `most` of them."""
    unit = 1
    while total // unit > most:
        unit *= 2
    return unit

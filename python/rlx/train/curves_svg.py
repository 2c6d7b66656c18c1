"""Pictures of trainings, as SVG: learning curves and confusion matrices.

Text and lines have the colour of the surrounding text, so that pictures fit light and dark notebooks. Documents of their own
have a background, and follow the reader's colour scheme.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rlx.report import palette
from rlx.report.text import markup

if TYPE_CHECKING:
    from rlx.train.confusion import ConfusionMatrix
    from rlx.train.training_history import TrainingHistory

# Sizes in pixels.
_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 300, 170, 62, 34, 18, 40
_COLUMNS, _MARKED = 3, 30
_TRAINING, _VALIDATION, _CELL = "#2b83c6", "#e0741b", "#1763b8"
_GRID, _MUTED = 'stroke="currentColor" stroke-opacity="0.18"', 'fill-opacity="0.75"'
_LONGEST_NAME, _LONGEST_TITLE = 14, 20
# The width of a matrix, if its numbers fit: on narrow screens, a wider picture would be reduced with its text.
_NARROW, _LARGEST_CELL, _SMALLEST_CELL, _NUMBERED, _LABELLED = 360, 46, 16, 25, 40


def curves_drawing(history: TrainingHistory) -> str:
    """Return the curves of a history as one document: a panel for each number, with its validation."""
    panels = list(history.panels().items())
    columns = min(len(panels), _COLUMNS)
    rows = -(-len(panels) // columns)
    width, height = _LEFT + _WIDTH + _RIGHT, _TOP + _HEIGHT + _BOTTOM
    lines = list(_opening(columns * width, rows * height + 4, "Learning curves", alone=True))
    for i, (title, names) in enumerate(panels):
        x, y = i % columns * width, i // columns * height
        lines.append(f'<g transform="translate({x},{y})">')
        lines += _panel(history, title, names)
        lines.append("</g>")
    return "\n".join([*lines, "</svg>"])


def curves_html(history: TrainingHistory) -> str:
    """Return the curves of a history as HTML: a drawing for each panel, in as many columns as the page has space for."""
    size = _LEFT + _WIDTH + _RIGHT, _TOP + _HEIGHT + _BOTTOM
    parts = []
    for title, names in history.panels().items():
        parts += [*_opening(*size, title, alone=False), *_panel(history, title, names), "</svg>"]
    return "\n".join(['<div style="display:flex;flex-wrap:wrap">', *parts, "</div>"])


def _opening(width: float, height: float, title: str, *, alone: bool, shrinks: bool = True) -> Iterator[str]:
    """Yield the beginning of a drawing.

    Args:
        width: Its width in pixels.
        height: Its height in pixels.
        title: The title for readers who do not see it.
        alone: Whether it is a document of its own, with a background.
        shrinks: Whether it is reduced to the width of the page.
    """
    colour = f' class="rlx-picture" color="{palette.INK}"' if alone else ""
    style = "max-width:100%;height:auto" if shrinks else "max-width:none"
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'style="{style}" role="img" {palette.FONT} fill="currentColor"{colour}>'
    )
    yield f"<title>{markup(title)}</title>"
    if alone:
        ink, paper = palette.DARK[palette.INK], palette.DARK[palette.PAPER]
        yield (
            f"<style>@media (prefers-color-scheme: dark) {{ .rlx-picture {{ color: {ink}; }} "
            f".rlx-picture .paper {{ fill: {paper}; }} }}</style>"
        )
        yield f'<rect class="paper" width="{width:g}" height="{height:g}" fill="{palette.PAPER}"/>'


def _panel(history: TrainingHistory, title: str, names: Sequence[str]) -> Iterator[str]:
    """Yield one panel: axes, and a line for each name."""
    curves = {name: history.curve(name) for name in names}
    xs = [x for points, _ in curves.values() for x in points]
    ys = [y for _, points in curves.values() for y in points if math.isfinite(y)]
    low_x, high_x = min(xs), max(xs)
    y_ticks = ticks(min(ys, default=0.0), max(ys, default=1.0), 4)
    low_y, high_y = y_ticks[0], y_ticks[-1]

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - low_x) / (high_x - low_x) if high_x > low_x else 0.5
        return _LEFT + _WIDTH * across, _TOP + _HEIGHT * (1 - (y - low_y) / (high_y - low_y))

    yield f'<text x="{_LEFT}" y="20" font-weight="bold">{markup(title[:_LONGEST_TITLE])}</text>'
    yield from _legend(names)
    for tick in y_ticks:
        y = place(low_x, tick)[1]
        yield f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_LEFT + _WIDTH}" y2="{y:.1f}" {_GRID}/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:.6g}</text>'
    for tick in _whole_ticks(low_x, high_x):
        x = place(tick, low_y)[0]
        yield f'<text x="{x:.1f}" y="{_TOP + _HEIGHT + 16}" text-anchor="middle">{tick:g}</text>'
    middle = _LEFT + _WIDTH / 2
    yield (f'<text x="{middle:.1f}" y="{_TOP + _HEIGHT + 32}" text-anchor="middle" {_MUTED}>{history.axis()}</text>')
    for name, (points, values) in curves.items():
        yield from _line(name, [place(x, y) if math.isfinite(y) else None for x, y in zip(points, values, strict=True)])


def _legend(names: Sequence[str]) -> Iterator[str]:
    right = _LEFT + _WIDTH
    if len(names) < 2:
        return
    for name, x, label in zip(
        sorted(names, key=_is_validation), (right - 164, right - 82), ("training", "validation"), strict=False
    ):
        yield f'<line x1="{x}" y1="16" x2="{x + 12}" y2="16" stroke="{_colour(name)}" stroke-width="2"/>'
        yield f'<text x="{x + 15}" y="20" {_MUTED}>{label}</text>'


def _is_validation(name: str) -> bool:
    return name.startswith("val_")


def _colour(name: str) -> str:
    return _VALIDATION if _is_validation(name) else _TRAINING


def _line(name: str, points: Sequence[tuple[float, float] | None]) -> Iterator[str]:
    """Yield a line with gaps where a value is not finite."""
    colour = _colour(name)
    runs: list[list[tuple[float, float]]] = [[]]
    for point in points:
        if point is not None:
            runs[-1].append(point)
        elif runs[-1]:
            runs.append([])
    for run in runs:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in run)
        if len(run) > 1:
            yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6" stroke-linejoin="round"/>'
        if len(points) < _MARKED:
            yield from (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.2" fill="{colour}"/>' for x, y in run)


def ticks(low: float, high: float, count: int) -> list[float]:
    """Return round numbers at equal distances that enclose a range."""
    if not high > low:
        pad = abs(low) * 0.1 or 1.0
        low, high = low - pad, high + pad
    raw = (high - low) / count
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * m for m in (1, 2, 2.5, 5, 10) if unit * m >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def _whole_ticks(low: float, high: float) -> list[float]:
    """Return integers in a range, at most seven."""
    step = max(round(ticks(low, high, 6)[1] - ticks(low, high, 6)[0]), 1) if high > low else 1
    first = math.ceil(low / step) * step
    inner = [float(x) for x in range(int(first), int(high) + 1, step)]
    return inner if low in inner or not inner or inner[0] - low < step * 0.6 else [low, *inner]


# --- confusion matrices ---------------------------------------------------------------------------


def matrix_html(matrix: ConfusionMatrix) -> str:
    """Return a confusion matrix as HTML. One whose numbers need more space than the page has is scrolled."""
    return f'<div style="overflow-x:auto;max-width:100%">{matrix_drawing(matrix, alone=False)}</div>'


def _cell_size(count: int, digits: int, left: float) -> float:
    """Return the size of a cell: the largest with which the matrix is narrow, but its numbers fit."""
    if count > _NUMBERED:
        return max(520 / count, 4)
    least = max(digits * palette.CHARACTER + 8, _SMALLEST_CELL)
    return max(min((_NARROW - left - 16) / count, _LARGEST_CELL), least)


def matrix_drawing(matrix: ConfusionMatrix, *, alone: bool) -> str:
    """Return a confusion matrix: a cell for each pair of classes, in a stronger colour for a larger share of the actual class.

    Args:
        matrix: The matrix.
        alone: Whether it is a document of its own.
    """
    counts, shares = matrix.counts, matrix.shares()
    count = len(counts)
    names = [name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…" for name in matrix.names]
    longest = max(map(len, names))
    is_labelled = count <= _LABELLED
    left = 34 + (longest * palette.CHARACTER if is_labelled else 0)
    cell = _cell_size(count, len(str(int(counts.max()))), left)
    turned = is_labelled and longest * palette.CHARACTER > cell - 4
    bottom = 30 + ((longest * palette.CHARACTER if turned else 16) if is_labelled else 0)
    size = cell * count
    width, top = max(left + size + 16, 300), 34 if matrix.pooled is None else 50
    shrinks = alone or count > _NUMBERED
    lines = list(_opening(width, top + size + bottom, "Confusion matrix", alone=alone, shrinks=shrinks))
    total = int(counts.sum())
    lines.append(
        f'<text x="12" y="20" font-weight="bold">accuracy {matrix.accuracy:.1%}'
        f'<tspan font-weight="normal" {_MUTED}>  of {total} {matrix.unit}</tspan></text>'
    )
    if matrix.pooled is not None:
        lines.append(f'<text x="12" y="37" {_MUTED}>{matrix.pooling}</text>')
    for i, j in np.ndindex(count, count):
        lines += _cell(
            left + j * cell,
            top + i * cell,
            cell,
            int(counts[i, j]),
            float(shares[i, j]),
            (matrix.names[i], matrix.names[j]),
            count,
        )
    lines.append(
        f'<rect x="{left:.1f}" y="{top}" width="{size:.1f}" height="{size:.1f}" '
        'fill="none" stroke="currentColor" stroke-opacity="0.6"/>'
    )
    if is_labelled:
        lines += _names(names, left, top, cell, turned=turned)
    middle = top + size / 2
    lines.append(
        f'<text x="{left + size / 2:.1f}" y="{top + size + bottom - 8:.1f}" text-anchor="middle" '
        f"{_MUTED}>predicted</text>"
    )
    lines.append(
        f'<text transform="translate(18,{middle:.1f}) rotate(-90)" text-anchor="middle" {_MUTED}>actual</text>'
    )
    return "\n".join([*lines, "</svg>"])


def _cell(
    x: float, y: float, cell: float, count: int, share: float, names: tuple[str, str], classes: int
) -> Iterator[str]:
    actual, predicted = (markup(name) for name in names)
    yield (
        f"<g><title>{actual} predicted as {predicted}: {count}, {share:.1%} of {actual}</title>"
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{cell:.1f}" height="{cell:.1f}" fill="{_CELL}" fill-opacity="{share:.3f}"/>'
    )
    if classes <= 25:
        # On weaker colours, dark text on light backgrounds has more contrast; in dark schemes all of the text is light.
        ink = 'fill="white"' if share > 0.8 else "" if count else 'fill-opacity="0.5"'
        yield f'<text x="{x + cell / 2:.1f}" y="{y + cell / 2 + 4:.1f}" text-anchor="middle" {ink}>{count}</text>'
    yield "</g>"


def _names(names: Sequence[str], left: float, top: float, cell: float, *, turned: bool) -> Iterator[str]:
    below = top + cell * len(names)
    for i, name in enumerate(names):
        centre = (i + 0.5) * cell
        yield f'<text x="{left - 6:.1f}" y="{top + centre + 4:.1f}" text-anchor="end">{markup(name)}</text>'
        if turned:
            yield (
                f'<text transform="translate({left + centre + 4:.1f},{below + 8:.1f}) rotate(-90)" '
                f'text-anchor="end">{markup(name)}</text>'
            )
        else:
            yield f'<text x="{left + centre:.1f}" y="{below + 16:.1f}" text-anchor="middle">{markup(name)}</text>'

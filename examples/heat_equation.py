"""Heat in a plate with a wall: implicit steps by conjugate gradients, and the gradient through them, as a drawing.

    python examples/heat_equation.py [heat.svg]

A step solves `(1 - dt·div(k·grad))·new = old`, which is stable for any `dt` (the backward Euler method). The gradient of
the last temperature at a sensor with respect to the first temperatures is the share of each place's heat that reaches it.
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

import rlx

SIZE, STEPS, STEP = 32, 8, 8.0
SENSOR = (16, 26)
_CELL, _GAP = 6, 24  # pixels
_SHADES = 24


def conductivity() -> np.ndarray:
    """Return the conductivity of each cell: a wall with a gap divides the plate."""
    k = np.ones((SIZE, SIZE), np.float32)
    k[:, 15:17] = 0.002
    k[4:9, 15:17] = 1.0
    return k


def flow(u: Any, k: Any) -> Any:
    """Return the heat that flows into each cell. Nothing flows through the rim."""
    total = rlx.ops.zeros_like(u)
    for axis in (0, 1):
        first, second = [(slice(None),) * axis + (part,) for part in (slice(None, -1), slice(1, None))]
        through = (u[second] - u[first]) * (2.0 * k[first] * k[second] / (k[first] + k[second]))
        before, after = (
            [(1, 0) if a == axis else (0, 0) for a in (0, 1)],
            [(0, 1) if a == axis else (0, 0) for a in (0, 1)],
        )
        total = total + rlx.ops.pad(through, after) - rlx.ops.pad(through, before)
    return total


@rlx.jit
def temperatures(start: Any, k: Any) -> Any:
    """Return the temperatures after each step, `[STEPS, SIZE, SIZE]`."""

    def step(u: Any, _: None) -> tuple[Any, Any]:
        def implicit(v: Any) -> Any:
            plate = v.reshape(SIZE, SIZE)
            return (plate - STEP * flow(plate, k)).reshape(-1)

        new = rlx.sparse.linalg.cg(implicit, u.reshape(-1), rtol=1e-6).x.reshape(SIZE, SIZE)
        return new, new

    return rlx.ops.scan(step, start, None, length=STEPS)[1]


@rlx.jit
def at_sensor(start: Any, k: Any) -> Any:
    """Return the last temperature at the sensor."""
    return temperatures(start, k)[-1, SENSOR[0], SENSOR[1]]


def _colour(share: float) -> str:
    """Return a colour between pale and red."""
    return f"rgb({255 - 30 * share:.0f},{240 - 190 * share:.0f},{215 - 175 * share:.0f})"


def drawing(plates: dict[str, np.ndarray], k: np.ndarray) -> str:
    """Return an SVG of plates side by side. Each has colours of its own; the wall is grey, and the sensor has a ring."""
    side = SIZE * _CELL
    width, height = len(plates) * (side + _GAP) + _GAP, side + 2 * _GAP
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
        "<style>text { font: 13px sans-serif; fill: #333 }"
        "@media (prefers-color-scheme: dark) { text { fill: #ddd } }</style>"
    ]
    for i, (title, plate) in enumerate(plates.items()):
        left = _GAP + i * (side + _GAP)
        lines.append(f'<text x="{left}" y="{_GAP - 8}">{title}</text>')
        shares = np.round(np.clip(plate / plate.max(), 0, 1) ** 0.5 * _SHADES) / _SHADES
        for row in range(SIZE):
            colours = ["#888" if k[row, c] < 1 else _colour(float(shares[row, c])) for c in range(SIZE)]
            column = 0
            for colour, cells in groupby(colours):
                count = len(list(cells))
                place = f'x="{left + column * _CELL}" y="{_GAP + row * _CELL}"'
                lines.append(f'<rect {place} width="{count * _CELL}" height="{_CELL}" fill="{colour}"/>')
                column += count
        x, y = left + (SENSOR[1] + 0.5) * _CELL, _GAP + (SENSOR[0] + 0.5) * _CELL
        lines.append(f'<circle cx="{x}" cy="{y}" r="5" fill="#fff" stroke="#2a78d6" stroke-width="3"/>')
    return "\n".join([*lines, "</svg>", ""])


def main(path: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Compute, draw, and return the temperatures after each step and the gradient of the last one at the sensor."""
    start, k = np.zeros((SIZE, SIZE), np.float32), conductivity()
    start[20:24, 4:8] = 100.0
    steps = np.asarray(temperatures(start, k))
    gradient = np.asarray(at_sensor.grad()(start, k))
    last = float(steps[-1][SENSOR])
    print(
        f"heat {steps[-1].sum():.1f} of {start.sum():.1f}; sensor {last:.4f}, by the gradient {(gradient * start).sum():.4f}"
    )
    if path is not None:
        plates = {"after one step": steps[0], f"after {STEPS} steps": steps[-1], "what reaches the sensor": gradient}
        Path(path).write_text(drawing(plates, k), encoding="utf-8")
    return steps, gradient


if __name__ == "__main__":
    main(*sys.argv[1:2])

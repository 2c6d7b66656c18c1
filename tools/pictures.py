"""The drawings of the documentation, `docs/pictures/`.

`make docs` draws them, and the tests compare. Those with measured times are drawn on request, because times differ between
runs: `python -m tools.pictures`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import rlx
from rlx.ir.graph.listing import GraphReport
from rlx.report import roofline_svg
from rlx.report.collapse import overview
from rlx.report.compile_report import CompileReport
from rlx.report.graph_svg import drawing
from rlx.report.html import standalone
from rlx.report.memory_svg import drawing as memory_drawing
from rlx.runtime.profiling import compile_report
from rlx.targets.compilation import Compilation
from rlx.targets.registry import target_of

ROOT = Path(__file__).resolve().parents[1]
FOLDER = "docs/pictures"
MEASURED = ("times", "roofline")
# The drawings of the LIR depend on the level of the CPU, so it is fixed.
_ARCH = "x86-64-v3"
_MEMORY_WIDTH, _PLOT_WIDTH = 640, 500  # pixels: the text of the site is not much wider


def scorer() -> rlx.Graph:
    """Return the graph of docs/inspection.md: two layers and a softmax."""
    g = rlx.Graph("scorer")
    h = g.input("x", (16, 64))
    for i in range(2):
        with g.named(f"layer{i}"):
            h = g.gelu(h @ g.param(f"w{i}", (64, 64)) + g.param(f"b{i}", (64,)))
    g.set_outputs({"y": g.softmax(h)})
    return g


def encoder(layers: int = 12) -> rlx.Graph:
    """Return an encoder of transformer layers with one head each."""
    g = rlx.Graph("encoder")
    width = 64
    h = g.input("x", (32, width))
    for i in range(layers):

        def weight(name: str, *shape: int, i: int = i) -> Any:
            return g.param(f"layers.{i}.{name}.weight", shape)

        with g.named(f"layers.{i}"):
            q, k, v = (h @ weight(name, width, width) for name in ("query", "key", "value"))
            h = h + g.softmax(q @ g.transpose(k, (1, 0)) * width**-0.5) @ v
            h = g.rms_norm(h, weight("norm1", width))
            inner = g.gelu(h @ weight("up", width, 4 * width))
            h = g.rms_norm(h + inner @ weight("down", 4 * width, width), weight("norm2", width))
    g.set_outputs({"y": h})
    return g


def classifier() -> rlx.Graph:
    """Return a small convolutional network for images."""
    g = rlx.Graph("classifier")
    h, channels = g.input("image", (1, 3, 32, 32)), 3
    for i, width in enumerate((16, 32)):
        with g.named(f"block{i}"):
            h = g.relu(g.conv2d(h, g.param(f"conv{i}", (width, channels, 3, 3)), padding=1))
            h, channels = g.max_pool2d(h, 2), width
    g.set_outputs({"scores": g.softmax(g.reshape(h, (1, 2048)) @ g.param("head", (2048, 10)))})
    return g


def outputs() -> dict[str, str]:
    """Return the drawings that are the same on every machine: path below the repository's root, and text."""
    graph = overview(_listing(_compilation(scorer()).mir))
    layers = overview(_listing(encoder()))
    (layer,) = layers.groups.values()
    memory = CompileReport(_compilation(rlx.parse(str(classifier())))).memory
    assert memory is not None
    drawings = {
        "graph": drawing(graph.listing),
        "layers": drawing(layers.listing),
        "layer": drawing(layer.listing),
        "memory": memory_drawing(memory, _MEMORY_WIDTH),
    }
    return {f"{FOLDER}/{name}.svg": standalone(svg) for name, svg in drawings.items()}


def measured() -> dict[str, str]:
    """Return the drawings with times, measured on this machine."""
    compilation = Compilation(rlx.parse(str(classifier())), target_of("cpu"))
    image = np.random.default_rng(0).random((1, 3, 32, 32), np.float32)
    report = compile_report(compilation, {"image": image}, threads=1)
    profile, times = report.profile, report.times
    assert profile is not None and times is not None
    view = overview(report.last, seconds=times.seconds)
    drawings = {
        "times": drawing(view.listing, times=times),
        "roofline": roofline_svg.drawing(profile.limits, profile.points(), measured=True, width=_PLOT_WIDTH),
    }
    return {f"{FOLDER}/{name}.svg": standalone(svg) for name, svg in drawings.items()}


def _listing(graph: rlx.Graph) -> GraphReport:
    """Return a listing without the lines of this file."""
    listing = rlx.inspect_graph(graph)
    return replace(listing, ops=tuple(replace(op, location=None) for op in listing.ops))


def _compilation(graph: rlx.Graph) -> Compilation:
    return Compilation(graph, target_of("cpu", _ARCH))


def main() -> None:
    for path, text in measured().items():
        (ROOT / path).write_text(text)
        print(path)


if __name__ == "__main__":
    main()

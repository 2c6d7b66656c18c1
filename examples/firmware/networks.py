"""Write two networks of integers as C for the firmware in this folder.

    python examples/firmware/networks.py --output build/firmware

`motion` classifies 32 samples of an accelerometer with 3 axes, and `sound` a spectrogram of 16 x 16. Their weights are random:
the example shows how files, scales and self-tests fit together, not how to train.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

import rlx
from rlx.targets.compilation import Compilation
from rlx.targets.options import CompileOptions
from rlx.targets.registry import target_of


def motion() -> rlx.Graph:
    """A convolution along time and two classes."""
    g = rlx.Graph("motion")
    samples = g.input("samples", (1, 3, 1, 32))
    with g.named("features"):
        h = g.relu(g.conv(samples, g.param("features.weight", (8, 3, 1, 5))) + g.param("features.bias", (8, 1, 1)))
    with g.named("classes"):
        scores = g.reshape(h, (1, -1)) @ g.param("classes.weight", (224, 2)) + g.param("classes.bias", (2,))
    g.set_outputs({"scores": scores, "best": g.argmax(scores, -1)})
    return g


def sound() -> rlx.Graph:
    """Two convolutions and four classes."""
    g = rlx.Graph("sound")
    h = g.input("spectrogram", (1, 1, 16, 16))
    for name, inputs, outputs in (("first", 1, 8), ("second", 8, 8)):
        with g.named(name):
            h = g.relu(g.conv(h, g.param(f"{name}.weight", (outputs, inputs, 3, 3)), padding=1))
            h = g.max_pool(h, 2)
    with g.named("classes"):
        scores = g.reshape(h, (1, -1)) @ g.param("classes.weight", (128, 4))
    g.set_outputs({"scores": scores, "best": g.argmax(scores, -1)})
    return g


def integers(graph: rlx.Graph, seed: int) -> rlx.Graph:
    """Return a network as a graph of integers, with random weights and ranges of random inputs."""
    random = np.random.default_rng(seed)
    params = {a.name: (0.3 * random.standard_normal(a.shape.static)).astype(np.float32) for a in graph.params}
    (entry,) = graph.inputs
    batches = [{entry.name: random.uniform(-1, 1, entry.shape.static).astype(np.float32)} for _ in range(16)]
    ranges = rlx.observe_ranges(graph, batches, params=params, device=None, progress=False)
    return rlx.integer_only(graph, ranges, params=params)


def write(output: Path) -> dict[str, rlx.Graph]:
    """Write the files of both networks into one folder, and return their graphs."""
    output.mkdir(parents=True, exist_ok=True)
    graphs = {"motion": integers(motion(), 0), "sound": integers(sound(), 1)}
    for name, graph in graphs.items():
        compilation = Compilation(graph, target_of("cortexm", "m4"), CompileOptions(name=name))
        for file, data in compilation.compiler.files(compilation.artifact()).items():  # type: ignore[attr-defined]
            (output / file).write_bytes(data)
    return graphs


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description="Write two networks as C for the firmware in this folder.")
    parser.add_argument("--output", type=Path, default=Path("build/firmware"), metavar="DIR", help="output folder")
    try:
        write(parser.parse_args().output)
    except rlx.Error as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()

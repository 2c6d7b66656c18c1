"""Graphs of integers with the shapes of MLPerf Tiny: keyword spotting, anomaly detection, image classification.

    python examples/mlperf_tiny.py
    python examples/mlperf_tiny.py --networks keywords --scale 0.25 --devices cpu xla

Weights are random, so the outputs are meaningless. The example shows sizes and speed, and compares the bits of all devices.
`--scale` reduces the number of channels. The shapes are those of Banbury et al., MLPerf Tiny benchmark, 2021.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import rlx

Arrays = dict[str, np.ndarray]
IMAGES = 8  # for observing ranges, and for comparing


class Layers:
    """A builder of a graph of layers with batch norms.

    Attributes:
        graph: The graph.
        count: The number of weights so far.
    """

    def __init__(self, name: str):
        self.graph, self.count = rlx.Graph(name), 0

    def param(self, *shape: int) -> rlx.Tensor:
        self.count += 1
        return self.graph.param(f"w{self.count}", shape)

    def normalised(self, x: rlx.Tensor) -> rlx.Tensor:
        """Add a batch norm, as in a trained network."""
        self.count += 1
        g, names = self.graph, (f"{part}{self.count}" for part in ("scale", "bias", "mean", "variance"))
        scale, bias, mean, variance = (g.param(name, (x.shape.dims[1],)) for name in names)
        return g.batch_norm_inference(x, scale, bias, mean, variance)

    def conv(
        self, x: rlx.Tensor, width: int, kernel: tuple[int, int], stride: int = 1, *, alone: bool = False
    ) -> rlx.Tensor:
        """Add a convolution with `same` padding and a batch norm; `alone` makes it depthwise."""
        channels, *sizes = x.shape.static[1:]
        inner, groups = (1, channels) if alone else (channels, 1)
        edges = [_edges(n, k, stride) for n, k in zip(sizes, kernel, strict=True)]
        w = self.param(width, inner, *kernel)
        return self.normalised(self.graph.conv(x, w, stride=stride, padding=edges, groups=groups))

    def dense(self, x: rlx.Tensor, width: int) -> rlx.Tensor:
        return x @ self.param(x.shape.static[1], width) + self.param(width)


def _edges(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Return the padding before and after an axis for `same`: there are `ceil(size / stride)` results."""
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


def keywords(scale: float) -> rlx.Graph:
    """DS-CNN: 49 x 10 coefficients for a second of sound, 12 keywords."""
    layers, width = Layers("keywords"), max(round(64 * scale), 1)
    g = layers.graph
    h = g.relu(layers.conv(g.input("x", (1, 1, 49, 10)), width, (10, 4), 2))
    for _ in range(4):
        h = g.relu(layers.conv(h, width, (3, 3), alone=True))
        h = g.relu(layers.conv(h, width, (1, 1)))
    g.set_outputs({"words": g.softmax(layers.dense(g.mean(h, [2, 3]), 12), 1)})
    return g


def anomalies(scale: float) -> rlx.Graph:
    """An autoencoder of 640 numbers from 5 spectra."""
    layers, width = Layers("anomalies"), max(round(128 * scale), 1)
    g = layers.graph
    h = g.input("x", (1, 640))
    for size in (width, width, width, width, 8, width, width, width, width):
        h = g.relu(layers.normalised(layers.dense(h, size)))
    g.set_outputs({"spectra": layers.dense(h, 640)})
    return g


def images(scale: float) -> rlx.Graph:
    """A residual network for 32 x 32 pixels and 10 classes."""
    layers, width = Layers("images"), max(round(16 * scale), 1)
    g = layers.graph
    h = g.relu(layers.conv(g.input("x", (1, 3, 32, 32)), width, (3, 3)))
    for factor, stride in ((1, 1), (2, 2), (4, 2)):
        inner = g.relu(layers.conv(h, factor * width, (3, 3), stride))
        inner = layers.conv(inner, factor * width, (3, 3))
        h = g.relu(inner + (h if stride == 1 else layers.conv(h, factor * width, (1, 1), stride)))
    g.set_outputs({"classes": g.softmax(layers.dense(g.mean(h, [2, 3]), 10), 1)})
    return g


NETWORKS: dict[str, Callable[[float], rlx.Graph]] = {
    "keywords": keywords,
    "anomalies": anomalies,
    "images": images,
}


def weights(graph: rlx.Graph, random: np.random.Generator) -> Arrays:
    """Return random weights scaled so that activations keep their size (He et al., 2015); variances are positive."""
    params = {}
    for a in graph.params:
        shape = a.shape.static
        fan_in = np.prod(shape[1:]) if len(shape) == 4 else shape[0] if len(shape) == 2 else 100
        params[a.name] = (np.sqrt(2 / fan_in) * random.standard_normal(shape)).astype(np.float32)
        if a.name.startswith(("scale", "variance")):
            params[a.name] = 1 + np.abs(params[a.name])
    return params


def integers(name: str, scale: float, bits: int) -> tuple[rlx.Graph, list[Arrays]]:
    """Return a network as a graph of integers, with some inputs."""
    graph, random = NETWORKS[name](scale), np.random.default_rng(0)
    params = weights(graph, random)
    (x,) = graph.inputs
    batches = [{"x": random.standard_normal(x.shape.static, np.float32)} for _ in range(IMAGES)]
    result = rlx.integer_only(
        graph, rlx.observe_ranges(graph, batches, params=params, device=None), params=params, bits=bits
    )
    quantization = rlx.quantizations(result)["x"]
    return result, [{"x": quantization.quantize(batch["x"])} for batch in batches]


def run(networks: list[str], scale: float, bits: int, devices: list[str], part: str, output: Path) -> None:
    """Run the example."""
    output.mkdir(parents=True, exist_ok=True)
    for name in networks:
        graph, inputs = integers(name, scale, bits)
        path = output / f"{name}.mlir"
        path.write_text(f"{graph}\n")
        expected = [rlx.evaluate(graph, given)[0] for given in inputs]
        for device in devices:
            flags = (f"--part={part}",) if device == "fpga-sim" else ()
            program = rlx.Session(device, flags=flags).compile(graph)
            if not all(np.array_equal(program.run(x)[0], y) for x, y in zip(inputs, expected, strict=True)):
                sys.exit(f"{device} gives other integers than the evaluator for {path}")
        print(f"{path}: the same {len(expected)} results by {', '.join(['the evaluator', *devices])}")


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description="Networks in the shapes of MLPerf Tiny as graphs of integers.")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS), help="networks to run (all)")
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the number of channels (1)")
    parser.add_argument("--bits", type=int, choices=(8, 4, 2), default=8, help="bits of weights (8)")
    parser.add_argument("--devices", nargs="*", default=["cpu"], metavar="NAME", help="devices to compare (cpu)")
    parser.add_argument("--part", default="ecp5-85k", metavar="NAME", help="part for hardware (ecp5-85k)")
    parser.add_argument("--output", type=Path, default=Path("build/examples"), metavar="DIR", help="output folder")
    try:
        run(**vars(parser.parse_args()))
    except rlx.Error as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()

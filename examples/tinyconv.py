"""Train a small convolutional network on digits, and convert it to integers for a microcontroller or an FPGA.

    python examples/tinyconv.py
    python examples/tinyconv.py --bits 4 2 --devices cpu xla c m4 fpga-sim --images 50

The images of scikit-learn, 8 x 8 pixels, are scaled to 28 x 28, the size of MNIST. The network is trained in f32, and
again for each number of bits with weights rounded to it. The example prints the accuracy on the test images, of the floats
and of the graphs of integers, which give the same bits on every device. `m4` is an emulated Cortex-M4, `fpga-sim` a simulated
FPGA. Needs `pip install 'rlx[examples]'`, and for these two devices `'rlx[cortexm,fpga]'`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import rlx
from rlx.targets.c import emulate
from rlx.targets.c.lower.program import CSource as Source

BATCH = 32
CLASSES = 10
TEST_SHARE = 0.2

Arrays = dict[str, np.ndarray]


def model(bits: int | None = None, *, training: bool = False) -> rlx.Graph:
    """TinyConv: two convolutions of 3 x 3 with 8 and 16 channels, each with a relu and a pooling, and one linear layer.

    Args:
        bits: The number of bits of weights for training; None does not round.
        training: Return the graph of the loss; otherwise that of the class of each image.
    """
    g = rlx.Graph("tinyconv")
    images = g.input("images", ("batch", 1, 28, 28))

    def weight(name: str, shape: tuple[int, ...], axis: int) -> rlx.Tensor:
        w = g.param(name, shape)
        return w if bits is None else g.fake_quantize(w, bits=bits, axis=axis)

    h = g.max_pool(g.relu(g.conv(images, weight("conv1", (8, 1, 3, 3), 0)) + g.param("bias1", (8, 1, 1))), 2)
    h = g.max_pool(g.relu(g.conv(h, weight("conv2", (16, 8, 3, 3), 0)) + g.param("bias2", (16, 1, 1))), 2)
    logits = g.reshape(h, ("batch", 400)) @ weight("dense", (400, CLASSES), 1) + g.param("bias3", (CLASSES,))
    if training:
        labels = g.input("labels", ("batch",), "i32")
        g.set_outputs({"loss": g.mean(g.softmax_cross_entropy_with_logits(logits, labels))})
    else:
        g.set_outputs({"class": g.argmax(logits, 1)})
    return g


def initial(graph: rlx.Graph, random: np.random.Generator) -> Arrays:
    """Return the initial weights (He et al., Delving deep into rectifiers, 2015), and biases of 0."""
    params = {}
    for a in graph.params:
        shape = a.shape.static
        fan_in = np.prod(shape[1:]) if len(shape) == 4 else shape[0]
        scale = 0 if a.name.startswith("bias") else np.sqrt(2 / fan_in)
        params[a.name] = (scale * random.standard_normal(shape)).astype(np.float32)
    return params


@dataclass
class Data:
    """Images `[N, 1, 28, 28]` in [0, 1] with their labels."""

    images: np.ndarray
    labels: np.ndarray

    def batches(self, random: np.random.Generator) -> Iterator[Arrays]:
        """Yield one epoch in random order, without an incomplete last batch."""
        order = random.permutation(len(self.labels))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH]
            yield {"images": self.images[chosen], "labels": self.labels[chosen]}


def digits(random: np.random.Generator) -> tuple[Data, Data]:
    """Return the data for training and for testing."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        sys.exit("this example needs scikit-learn: pip install 'rlx[examples]'")
    data: Any = load_digits()
    g = rlx.Graph("scale")
    g.set_outputs([g.resize(g.input("x", ("n", 1, 8, 8)), size=(28, 28), mode="bilinear")])
    (images,) = rlx.evaluate(g, {"x": (data.images[:, None] / 16).astype(np.float32)})
    labels, order = data.target.astype(np.int32), random.permutation(len(data.target))
    test, train = np.split(order, [round(TEST_SHARE * len(order))])
    return Data(images[train], labels[train]), Data(images[test], labels[test])


def trained(data: Data, params: Arrays, bits: int | None, steps: int, random: np.random.Generator) -> Arrays:
    """Return the parameters after some steps of training, with rounded weights if `bits` is set."""
    optimizer = rlx.train.AdamW(rlx.train.cosine(3e-3 if bits is None else 1e-3, steps, warmup_steps=steps // 20))
    step = rlx.train.TrainStep(model(bits, training=True), optimizer, params=params, bind={"batch": BATCH})
    rlx.train.fit(step, lambda: data.batches(random), steps=steps)
    return step.params()


def integers(bits: int, params: Arrays, data: Data) -> rlx.Graph:
    """Return a graph of integers that computes the class of one image; ranges come from some images."""
    graph = rlx.passes.run(model(bits), "rlx-bind{batch=1}")
    some = [{"images": image[None]} for image in data.images[:64]]
    ranges = rlx.observe_ranges(graph, some, params=params)
    return rlx.integer_only(graph, ranges, params=params, bits=bits)


def classes(graph: rlx.Graph, images: np.ndarray, device: str | None) -> np.ndarray:
    """Return the classes of images, run one at a time; without a device, by the NumPy evaluator."""
    given = [{"images": image[None]} for image in rlx.quantizations(graph)["images"].quantize(images)]
    if device is None:
        return np.array([rlx.evaluate(graph, one)[0][0] for one in given])
    if device == "m4":
        source = Source(rlx.Pipeline(target="cortexm").compile(graph).lir)
        machine = emulate.EmulatedMachine(emulate.build(source, "m4"), source)
        runs = [machine.run([one["images"]]) for one in given]
        print(
            f"Cortex-M4: {runs[0].instructions} instructions, {source.arena_size} bytes of arena, {runs[0].stack} of stack"
        )
        return np.array([run.results[0][0] for run in runs])
    program = rlx.Session(device).compile(graph)
    return np.array([program.run(one)[0][0] for one in given])


def run(bits: list[int], devices: list[str], steps: int, output: Path, images: int | None = None) -> dict[str, float]:
    """Run the example.

    Args:
        bits: The bits of the weights of each graph of integers.
        devices: Additional devices to run them on.
        steps: The training steps.
        output: The output folder.
        images: The number of test images; None takes all.

    Returns:
        The accuracy on the test images: in `f32`, and for `8 bits` and so on, which is the same on all devices.
    """
    output.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    train, test = digits(random)
    test = Data(test.images[:images], test.labels[:images])
    params = trained(train, initial(model(), random), None, steps, random)
    (found,) = rlx.evaluate(model(), {"images": test.images} | params)
    result = {"f32": float(np.mean(found == test.labels))}
    for count in bits:
        rounded = params if count == 8 else trained(train, params, count, steps // 2, random)
        graph = integers(count, rounded, train)
        path = output / f"tinyconv{count}.mlir"
        path.write_text(f"{graph}\n")
        expected = classes(graph, test.images, None)
        result[f"{count} bits"] = float(np.mean(expected == test.labels))
        for device in devices:
            if not np.array_equal(classes(graph, test.images, device), expected):
                sys.exit(f"{device} gives other classes than the evaluator for {path}")
    return result


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description="Train TinyConv on digits, and convert it to integers.")
    parser.add_argument("--steps", type=int, default=600, help="training steps (600)")
    parser.add_argument("--bits", type=int, nargs="+", choices=(8, 4, 2), default=[8, 4, 2], help="weight bits (8 4 2)")
    parser.add_argument("--devices", nargs="*", default=["cpu"], metavar="NAME", help="devices to compare (cpu)")
    parser.add_argument("--images", type=int, metavar="N", help="number of test images (all, 359)")
    parser.add_argument("--output", type=Path, default=Path("build/examples"), metavar="DIR", help="output folder")
    options = parser.parse_args()
    try:
        result = run(**vars(options))
    except rlx.Error as error:
        sys.exit(f"error: {error}")
    print("\nof the test images are right:")
    for name, accuracy in result.items():
        print(f"  {name:10} {accuracy:7.2%}")
    print(f"the graphs of integers are in {options.output}: rlx compile --target=cortexm or --target=fpga")


if __name__ == "__main__":
    main()

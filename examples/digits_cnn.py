"""Train a convolutional network on scikit-learn's handwritten digits, optionally with weights and activations of few bits.

    python examples/digits_cnn.py
    python examples/digits_cnn.py --quantise lsq --bits 4

The example writes the weights and a plot of the loss to --output. Needs `pip install 'rlx[examples]'`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import rlx
from rlx.cli.display import Steps

BATCH = 64
WIDTHS = (16, 32, 64)
CLASSES = 10
TEST_SHARE = 0.2
EVALUATIONS = 20

Arrays = dict[str, np.ndarray]
History = list[dict[str, Any]]


# --- the model ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rounding:
    """Rounding of the weights and the inputs of a layer. This base class does not round.

    Attributes:
        bits: The bits of a number, including the sign.
        scales: The initial scale of each layer's input, by the layer's name.
    """

    bits: int = 8
    scales: dict[str, float] = field(default_factory=dict)

    def weight(self, g: rlx.Graph, w: rlx.Tensor, name: str, axis: int) -> rlx.Tensor:
        """Declare a weight with one scale for each position of `axis`, the layer's outputs."""
        return w

    def activation(self, g: rlx.Graph, x: rlx.Tensor, name: str) -> rlx.Tensor:
        """Round the input of a layer, with one scale."""
        return x


class StraightThrough(Rounding):
    """Straight-through rounding. Scales are the maximum of weights, and a running mean of the maximum of activations."""

    def weight(self, g: rlx.Graph, w: rlx.Tensor, name: str, axis: int) -> rlx.Tensor:
        return g.fake_quantize(w, bits=self.bits, axis=axis)

    def activation(self, g: rlx.Graph, x: rlx.Tensor, name: str) -> rlx.Tensor:
        scale = g.state(f"{name}_scale", (), init=self.scales[name])
        rounded, following = g.fake_quantize(x, scale, bits=self.bits, scale_mode="ema", ste="clipped_identity")
        g.update(scale, following)
        return rounded


class FixedScales(StraightThrough):
    """`StraightThrough` for inference: the learned running means are weights."""

    def activation(self, g: rlx.Graph, x: rlx.Tensor, name: str) -> rlx.Tensor:
        return g.fake_quantize(x, g.param(f"{name}_scale", ()), bits=self.bits, scale_mode="fixed")


class LearnedScales(Rounding):
    """Rounding with scales that are trained by their gradients (Esser et al., Learned step size quantization)."""

    def weight(self, g: rlx.Graph, w: rlx.Tensor, name: str, axis: int) -> rlx.Tensor:
        return g.fake_quantize_lsq(w, g.param(f"{name}_w_scale", (w.shape.dims[axis],)), bits=self.bits, axis=axis)

    def activation(self, g: rlx.Graph, x: rlx.Tensor, name: str) -> rlx.Tensor:
        return g.fake_quantize_lsq(x, g.param(f"{name}_scale", ()), bits=self.bits)


def model(rounding: Rounding | None = None, *, calibrate: bool = False) -> rlx.Graph:
    """Return the graph of the loss and the accuracy of a batch, or with `calibrate` of the largest input of each layer."""
    rounding = rounding or Rounding()
    g = rlx.Graph("digits", stage="hir")
    images, labels = g.input("images", ("batch", 1, 8, 8)), g.input("labels", ("batch",), "i32")
    largest = {}

    def rounded(x: rlx.Tensor, name: str, shape: tuple[int, ...], axis: int) -> tuple[rlx.Tensor, rlx.Tensor]:
        w = rounding.weight(g, g.param(f"{name}_w", shape), name, axis)
        if x is images:  # the raw images are integers from 0 to 16
            return x, w
        largest[name] = g.max(g.abs(x))
        return rounding.activation(g, x, name), w

    def convolution(x: rlx.Tensor, name: str, channels: int, width: int) -> rlx.Tensor:
        x, w = rounded(x, name, (width, channels, 3, 3), 0)
        return g.relu(g.conv(x, w, padding=1) + g.param(f"{name}_b", (width, 1, 1)))

    h = convolution(images, "conv1", 1, WIDTHS[0])
    h = g.max_pool(convolution(h, "conv2", WIDTHS[0], WIDTHS[1]), 2)
    h = g.max_pool(convolution(h, "conv3", WIDTHS[1], WIDTHS[2]), 2)
    features = 2 * 2 * WIDTHS[2]
    h, w = rounded(g.reshape(h, ("batch", features)), "out", (features, CLASSES), 1)
    logits = g.linear(h, w, g.param("out_b", (CLASSES,)))

    loss = g.mean(g.softmax_cross_entropy_with_logits(logits, labels))
    hits = g.eq(g.argmax(logits, -1), labels)
    g.set_outputs(largest if calibrate else {"cross_entropy": loss, "accuracy": g.mean(g.cast(hits, "f32"))})
    return g


def initial(graph: rlx.Graph, random: np.random.Generator) -> Arrays:
    """Return the initial weights (He et al., Delving deep into rectifiers, 2015), and biases of 0."""
    params = {}
    for a in graph.params:
        shape = a.shape.static
        fan_in = np.prod(shape[1:]) if len(shape) == 4 else shape[0]
        scale = np.sqrt(2 / fan_in) if a.name.endswith("_w") else 0
        params[a.name] = (scale * random.standard_normal(shape)).astype(np.float32)
    return params


# --- training -------------------------------------------------------------------------------------


def digits(random: np.random.Generator) -> tuple[Arrays, Arrays]:
    """Return images in [0, 1] with their labels, for training and for testing."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        sys.exit("this example needs scikit-learn: pip install 'rlx[examples]'")
    data: Any = load_digits()
    images, labels = (data.images[:, None] / 16).astype(np.float32), data.target.astype(np.int32)
    order = random.permutation(len(labels))
    test, train = np.split(order, [round(TEST_SHARE * len(order))])
    return {"images": images[train], "labels": labels[train]}, {"images": images[test], "labels": labels[test]}


def batches(data: Arrays, random: np.random.Generator) -> Iterator[Arrays]:
    """Yield one epoch in random order, without an incomplete last batch."""
    order = random.permutation(len(data["labels"]))
    for start in range(0, len(order) - BATCH + 1, BATCH):
        chosen = order[start : start + BATCH]
        yield {name: array[chosen] for name, array in data.items()}


@dataclass
class Trainer:
    """Data and settings shared by all runs."""

    device: str
    train: Arrays
    test: Arrays
    random: np.random.Generator
    show: Steps = field(default_factory=Steps)

    def evaluator(self, graph: rlx.Graph, known: Arrays) -> rlx.Program:
        """Return a program for all test images at once, with its parameters selected from the known ones."""
        with self.show("compile the test"):
            params = {a.name: known[a.name] for a in graph.params}
            return rlx.Session(self.device).compile(graph, params=params, bind={"batch": len(self.test["labels"])})

    def fit(
        self, graph: rlx.Graph, inference: rlx.Graph, params: Arrays, rate: float, steps: int, checkpoint: Path
    ) -> tuple[Arrays, History]:
        """Train a graph, and test it with `inference` at intervals. Return the parameters and the history."""
        optimizer = rlx.train.AdamW(rlx.train.cosine(rate, steps, warmup_steps=steps // 20), weight_decay=0.01)
        with self.show(f"compile the training step for {self.device}"):
            step = rlx.train.TrainStep(graph, optimizer, params=params, device=self.device, bind={"batch": BATCH})
        tester = self.evaluator(inference, step.params() | step.state())
        every = max(steps // EVALUATIONS, 1)

        def test(entry: dict[str, Any]) -> None:
            if entry["step"] % every == 0 or entry["step"] == steps:
                known = step.params() | step.state()
                tester.set_params({a.name: known[a.name] for a in inference.params})
                loss, accuracy = tester.run(self.test)
                entry |= {"test_loss": float(loss), "test_accuracy": float(accuracy)}

        history = rlx.train.fit(
            step, lambda: batches(self.train, self.random), steps=steps, checkpoint=checkpoint, on_step=test
        )
        return step.params(), history


def quantised(
    trainer: Trainer, method: str, bits: int, params: Arrays, steps: int, checkpoint: Path
) -> tuple[float, History]:
    """Continue training with rounding. Return the test accuracy of rounding without training, and the history."""
    most = 2 ** (bits - 1) - 1
    scales = {name: largest / most for name, largest in largest_inputs(trainer.train, params).items()}
    known = params | {f"{name}_scale": np.array(scale, np.float32) for name, scale in scales.items()}
    if method == "lsq":
        graph = inference = model(LearnedScales(bits))
        for name, w in params.items():
            if w.ndim > 1:
                known[f"{name}_scale"] = np.abs(w).max(axis=(1, 2, 3) if w.ndim == 4 else 0) / most
    else:
        graph, inference = model(StraightThrough(bits, scales)), model(FixedScales(bits))
    tester = trainer.evaluator(inference, known)
    before = float(tester.run(trainer.test)[1])
    begin = {a.name: known[a.name] for a in graph.params}
    return before, trainer.fit(graph, inference, begin, 1e-3, steps, checkpoint)[1]


def largest_inputs(data: Arrays, params: Arrays) -> dict[str, float]:
    """Return the largest input over some batches of each layer with rounded inputs, by the layer's name."""
    gauge = model(calibrate=True)
    some = {name: array[: 8 * BATCH] for name, array in data.items()}
    results = rlx.evaluate(gauge, some | params)
    return {output.name: float(value) for output, value in zip(gauge.outputs, results, strict=True)}


# --- results --------------------------------------------------------------------------------------


def new_figure() -> Any:
    """Return an empty figure. It is made before the training, so that a missing package fails early."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        sys.exit("the picture needs matplotlib: pip install 'rlx[examples]'")
    return Figure(figsize=(9, 3.6), layout="constrained")


def plot(figure: Any, history: History, boundary: int | None, title: str, path: Path) -> None:
    """Plot loss and accuracy over the steps, with a line at `boundary`, where rounding begins."""
    panels = figure.subplots(1, 2)
    steps = np.arange(1, len(history) + 1)
    tested = [i for i, entry in enumerate(history) if "test_loss" in entry]
    for panel, key, test_key, label in zip(
        panels, ("loss", "accuracy"), ("test_loss", "test_accuracy"), ("cross entropy", "accuracy"), strict=True
    ):
        values = np.array([entry[key] for entry in history])
        window = min(20, len(values))
        smooth = np.convolve(values, np.ones(window) / window, "valid")
        panel.plot(steps, values, color="tab:blue", alpha=0.25, linewidth=0.8)
        panel.plot(steps[window - 1 :], smooth, color="tab:blue", label=f"training, mean of {window} steps")
        panel.plot(steps[tested], [history[i][test_key] for i in tested], "o-", color="tab:orange", ms=3, label="test")
        panel.set(xlabel="step", ylabel=label)
        panel.grid(alpha=0.3)
        if boundary is not None:
            panel.axvline(boundary, color="black", linestyle="--", linewidth=1, label="rounding begins")
        panel.legend()
    panels[0].set_yscale("log")
    panels[1].set_ylim(0.8, 1.005)
    figure.suptitle(title)
    figure.savefig(path, dpi=150)


def train(device: str, steps: int, output: Path, quantise: str | None = None, bits: int = 4) -> dict[str, float]:
    """Run the example.

    Returns:
        Test accuracies: `f32`, and with `quantise` also `rounded` and, after further training, `trained`.
    """
    figure = new_figure()
    output.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    trainer = Trainer(device, *digits(random), random)
    graph = model()
    begin = initial(graph, random)
    params, history = trainer.fit(graph, graph, begin, 3e-3, steps, output / "digits_cnn.safetensors")
    result = {"f32": history[-1]["test_accuracy"]}
    title, boundary = f"Digits, f32: {result['f32']:.1%} of the test images", None
    if quantise:
        checkpoint = output / f"digits_cnn_{quantise}{bits}.safetensors"
        result["rounded"], more = quantised(trainer, quantise, bits, params, steps, checkpoint)
        result["trained"] = more[-1]["test_accuracy"]
        title += f"; {bits} bits: {result['rounded']:.1%}, trained further {result['trained']:.1%}"
        history, boundary = history + more, len(history)
    plot(figure, history, boundary, title, output / "digits_cnn.png")
    return result


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description="Train a convolutional network on handwritten digits.")
    parser.add_argument("--steps", type=int, default=600, help="training steps, for each of the runs (600)")
    parser.add_argument("--device", default="cpu", help="cpu, xla, cuda, … (cpu)")
    parser.add_argument("--output", type=Path, default=Path("build/examples"), metavar="DIR", help="output folder")
    parser.add_argument(
        "--quantise",
        choices=("ste", "lsq"),
        help="train again with rounded weights and activations: straight-through gradients, or also learned scales",
    )
    parser.add_argument(
        "--bits", type=int, default=4, choices=range(2, 9), help="bits of rounded weights and activations (4)"
    )
    options = parser.parse_args()
    try:
        result = train(**vars(options))
    except rlx.Error as error:
        sys.exit(f"error: {error}")
    print("\nof the test images are right:")
    for name, accuracy in result.items():
        print(f"  {name:10} {accuracy:7.2%}")
    print(f"the weights and a picture of the loss are in {options.output}")


if __name__ == "__main__":
    main()

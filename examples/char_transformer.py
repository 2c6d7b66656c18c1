"""Train a small transformer to continue English text, character by character, and generate text with it.

    python examples/char_transformer.py

The text is the language reference that comes with Python. The example writes the weights and a plot of the loss to --output.
Needs `pip install 'rlx[examples]'`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import rlx
from rlx.cli.display import Steps

LAYERS, HEADS, HEAD_DIM, HIDDEN = 2, 4, 32, 256
EMBED = HEADS * HEAD_DIM
# Characters are ASCII codes; all others become a question mark.
CODES = 128
# The context length in characters, and the number of sequences in a batch.
SPAN, BATCH = 64, 16
VALIDATION_SHARE = 0.1
EVALUATIONS = 10
PROMPT = "The "
TEMPERATURE = 0.7

Arrays = dict[str, np.ndarray]
History = list[dict[str, Any]]


# --- the model ------------------------------------------------------------------------------------


def layers(g: rlx.Graph, characters: rlx.Tensor) -> rlx.Tensor:
    """Apply the decoder layers to `[batch, SPAN]` characters; returns `[batch, SPAN, EMBED]`."""
    positions = np.arange(SPAN)[:, None] / 10000 ** (np.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    cos, sin = (g.constant(f(positions).astype(np.float32)) for f in (np.cos, np.sin))
    square, wide = (EMBED, EMBED), (EMBED, HIDDEN)
    shapes = {"ln1_scale": (EMBED,), "ln1_bias": (EMBED,), "wq": square, "wk": square, "wv": square, "wo": square}
    shapes |= {"ln2_scale": (EMBED,), "ln2_bias": (EMBED,), "gate": wide, "up": wide, "down": (HIDDEN, EMBED)}
    h = g.embedding(g.param("embedding", (CODES, EMBED)), characters)
    for i in range(LAYERS):
        weights = [g.param(f"layer{i}_{name}", shape) for name, shape in shapes.items()]
        h = g.llama_decoder_block(
            h, *weights, cos=cos, sin=sin, num_heads=HEADS, num_kv_heads=HEADS, head_dim=HEAD_DIM, mask_kind="causal"
        )
    return g.rms_norm(h, g.param("norm_scale", (EMBED,)), g.param("norm_bias", (EMBED,)))


def model() -> rlx.Graph:
    """Return the graph of the loss of a batch, in bits per character."""
    g = rlx.Graph("characters", stage="hir")
    characters, following = (g.input(name, ("batch", SPAN), "i32") for name in ("characters", "following"))
    logits = layers(g, characters) @ g.param("head", (EMBED, CODES))
    nats = g.mean(g.softmax_cross_entropy_with_logits(logits, following))
    g.set_outputs({"bits": nats / float(np.log(2))})
    return g


def generator() -> rlx.Graph:
    """Return the graph that predicts the character after `position`; later characters are ignored."""
    g = rlx.Graph("generator", stage="hir")
    characters = g.input("characters", (1, SPAN), "i32")
    position, seed = g.input("position", (1,), "i32"), g.input("seed", (), "i32")
    logits = g.gather(layers(g, characters), position, axis=1) @ g.param("head", (EMBED, CODES))
    g.set_outputs({"next": g.sample(logits, seed, temperature=TEMPERATURE)})
    return g


def initial(graph: rlx.Graph, random: np.random.Generator) -> Arrays:
    """Return the initial weights: at first the layers add little to their inputs."""
    params = {}
    for a in graph.params:
        shape = a.shape.static
        if len(shape) == 1:
            value = np.full(shape, a.name.endswith("scale"))
        else:
            scale = 1.0 if a.name == "embedding" else shape[0] ** -0.5
            if a.name.endswith(("wo", "down")):
                scale /= np.sqrt(2 * LAYERS)
            value = scale * random.standard_normal(shape)
        params[a.name] = value.astype(np.float32)
    return params


# --- the text -------------------------------------------------------------------------------------


def codes(text: str) -> np.ndarray:
    """Return the characters of a text as integers."""
    return np.frombuffer(text.encode("ascii", "replace"), np.uint8).astype(np.int32)


def reference() -> tuple[np.ndarray, np.ndarray]:
    """Return Python's language reference, split into training and validation text."""
    from pydoc_data.topics import topics

    # Some topics are sections of others. Each paragraph is used once, so that none is in both parts.
    paragraphs = {p.strip(): p for name in sorted(topics) for p in topics[name].split("\n\n")}
    text = codes("\n\n".join(paragraphs.values()))
    training, validation = np.split(text, [round((1 - VALIDATION_SHARE) * len(text))])
    return training, validation


def pieces(text: np.ndarray, starts: np.ndarray) -> Arrays:
    """Return sequences of a text, and for each of their characters the next one."""
    indices = starts[:, None] + np.arange(SPAN)
    return {"characters": text[indices], "following": text[indices + 1]}


def batches(text: np.ndarray, random: np.random.Generator) -> Iterator[Arrays]:
    """Yield batches of random sequences, endlessly."""
    while True:
        yield pieces(text, random.integers(0, len(text) - SPAN, BATCH))


# --- training -------------------------------------------------------------------------------------


def write(program: rlx.Program, prompt: str, length: int) -> str:
    """Continue a text, sampling one character at a time."""
    text = list(codes(prompt))
    for seed in range(length):
        seen = text[-SPAN:]
        characters = np.array([seen + [0] * (SPAN - len(seen))], np.int32)
        (following,) = program.run(
            {"characters": characters, "position": np.array([len(seen) - 1], np.int32), "seed": np.int32(seed)}
        )
        text.append(following.item())
    return bytes(text).decode("ascii")


def new_figure() -> Any:
    """Return an empty figure. It is made before the training, so that a missing package fails early."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        sys.exit("the picture needs matplotlib: pip install 'rlx[examples]'")
    return Figure(figsize=(6.5, 4), layout="constrained")


def plot(figure: Any, history: History, title: str, path: Path) -> None:
    """Plot the loss over the steps."""
    panel = figure.subplots()
    tested = [entry for entry in history if "validation_bits" in entry]
    panel.plot(*curve(history, "loss"), color="tab:blue", alpha=0.5, linewidth=0.8, label="training, each batch")
    panel.plot(*curve(tested, "validation_bits"), "o-", color="tab:orange", ms=4, label="validation")
    panel.set(xlabel="step", ylabel="loss in bits per character", title=title)
    panel.grid(alpha=0.3)
    panel.legend()
    figure.savefig(path, dpi=150)


def curve(entries: History, name: str) -> tuple[list[int], list[float]]:
    """Return the steps and their values."""
    return [entry["step"] for entry in entries], [entry[name] for entry in entries]


def train(device: str, steps: int, output: Path, length: int) -> tuple[History, str]:
    """Run the example.

    Returns:
        The history, whose last step has `validation_bits`, and a text with this number of characters after the prompt.
    """
    figure = new_figure()
    output.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    training, validation = reference()
    tests = pieces(validation, np.arange(0, len(validation) - SPAN, SPAN))
    checkpoint = output / "char_transformer.safetensors"
    graph, show, session = model(), Steps(), rlx.Session(device)
    params = initial(graph, random)
    optimizer = rlx.train.AdamW(rlx.train.cosine(4e-3, steps, warmup_steps=steps // 15), b2=0.99, weight_decay=0.01)
    with show(f"compile the training step for {device}"):
        step = rlx.train.TrainStep(graph, optimizer, params=params, device=device, clip_norm=1.0, bind={"batch": BATCH})
    with show("compile the validation"):
        tester = session.compile(graph, params=params, bind={"batch": len(tests["characters"])})
    every = max(steps // EVALUATIONS, 1)

    def validate(entry: dict[str, Any]) -> None:
        if entry["step"] % every == 0 or entry["step"] == steps:
            tester.set_params(step.params())
            entry["validation_bits"] = float(tester.run(tests)[0])

    history = rlx.train.fit(step, batches(training, random), steps=steps, checkpoint=checkpoint, on_step=validate)
    title = f"A character of the validation text takes {history[-1]['validation_bits']:.2f} bits"
    plot(figure, history, title, output / "char_transformer.png")
    with show("compile the generator"):
        program = session.compile(generator(), params=checkpoint)
    return history, write(program, PROMPT, length)


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description="Train a small transformer to continue English text.")
    parser.add_argument("--steps", type=int, default=1000, help="training steps (1000)")
    parser.add_argument("--device", default="cpu", help="cpu, xla, cuda, … (cpu)")
    parser.add_argument("--output", type=Path, default=Path("build/examples"), metavar="DIR", help="output folder")
    parser.add_argument("--length", type=int, default=500, help="characters to write (500)")
    options = parser.parse_args()
    try:
        history, text = train(**vars(options))
    except rlx.Error as error:
        sys.exit(f"error: {error}")
    print(f"\n{history[-1]['validation_bits']:.3f} bits per character of text that it has not seen\n\n{text}\n")
    print(f"the weights and a picture of the loss are in {options.output}")


if __name__ == "__main__":
    main()

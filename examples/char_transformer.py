"""Train a small transformer to continue English text, character by character, and generate text with it.

    python examples/char_transformer.py

The text is the language reference that comes with Python. The layers are those of Llama, so that the trained model is also
written as GGUF files, with weights in f32, Q8_0 and Q4_K. The example generates text from them, with llama.cpp too if
llama-cpp-python is installed, and measures the loss of the weights that it reads back from them. It writes the weights, the
GGUF files and a plot of the loss to --output. Needs `pip install 'rlx[examples,llm]'`.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import rlx
from rlx.cli.display import Steps

# Q4_K packs blocks of 256 weights, so EMBED and HIDDEN are multiples of 256.
LAYERS, HEADS, HEAD_DIM, HIDDEN = 2, 4, 64, 256
EMBED = HEADS * HEAD_DIM
EPSILON, THETA = 1e-5, 10000.0
# Tokens are bytes, and one that ends a text. The text is ASCII; other characters become a question mark.
END_OF_TEXT = 256
CODES = 257
# The context length in characters, and the number of sequences in a batch.
SPAN, BATCH = 64, 16
VALIDATION_SHARE = 0.1
EVALUATIONS = 10
PROMPT = "The "
TEMPERATURE = 0.7
CHECKPOINT = "char_transformer.safetensors"
FORMATS = ("F32", "Q8_0", "Q4_K")

Arrays = dict[str, np.ndarray]
History = list[dict[str, Any]]


# --- the model ------------------------------------------------------------------------------------


def layers(g: rlx.Graph, characters: rlx.Tensor) -> rlx.Tensor:
    """Apply the decoder layers to `[batch, SPAN]` characters; returns `[batch, SPAN, EMBED]`."""
    positions = np.arange(SPAN)[:, None] / THETA ** (np.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    cos, sin = (g.constant(f(positions).astype(np.float32)) for f in (np.cos, np.sin))
    square, wide = (EMBED, EMBED), (EMBED, HIDDEN)
    shapes = {"ln1_scale": (EMBED,), "wq": square, "wk": square, "wv": square, "wo": square}
    shapes |= {"ln2_scale": (EMBED,), "gate": wide, "up": wide, "down": (HIDDEN, EMBED)}
    no_bias = g.constant(np.zeros(EMBED, np.float32))
    sizes = {"num_heads": HEADS, "num_kv_heads": HEADS, "head_dim": HEAD_DIM}
    h = g.embedding(g.param("embedding", (CODES, EMBED)), characters)
    for i in range(LAYERS):
        weights = {name: g.param(f"layer{i}_{name}", shape) for name, shape in shapes.items()}
        weights |= {"ln1_bias": no_bias, "ln2_bias": no_bias, "cos": cos, "sin": sin}
        h = g.llama_decoder_block(h, **weights, **sizes, mask_kind="causal", eps=EPSILON)
    return g.rms_norm(h, g.param("norm_scale", (EMBED,)), no_bias, eps=EPSILON)


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
    return bytes(c for c in text if c != END_OF_TEXT).decode("ascii", "replace")


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
    checkpoint = output / CHECKPOINT
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


# --- GGUF files -----------------------------------------------------------------------------------


def metadata() -> dict[str, Any]:
    """Return the metadata of the model for GGUF files."""
    from tokenizers.pre_tokenizers import ByteLevel

    # Byte-level tokenizers write each byte as a printable character: printable bytes as themselves, others from U+0100.
    printable = {ord(c) for c in ByteLevel.alphabet() if ord(c) < 256}
    others = iter(range(256, 512))
    return {
        "general.architecture": "llama",
        "general.name": "Characters of Python's language reference",
        "llama.block_count": LAYERS,
        "llama.context_length": SPAN,
        "llama.embedding_length": EMBED,
        "llama.feed_forward_length": HIDDEN,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": HEADS,
        "llama.attention.layer_norm_rms_epsilon": EPSILON,
        "llama.rope.dimension_count": HEAD_DIM,
        "llama.rope.freq_base": THETA,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [chr(b if b in printable else next(others)) for b in range(256)] + ["<|endoftext|>"],
        "tokenizer.ggml.token_type": [1] * 256 + [3],  # normal tokens, and a control token
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.bos_token_id": END_OF_TEXT,
        "tokenizer.ggml.eos_token_id": END_OF_TEXT,
        "tokenizer.ggml.add_bos_token": False,
    }


def file_names() -> dict[str, str]:
    """Return the names of the weights in GGUF files, by those in the graph."""
    parts = {"ln1_scale": "attn_norm", "wq": "attn_q", "wk": "attn_k", "wv": "attn_v", "wo": "attn_output"}
    parts |= {"ln2_scale": "ffn_norm", "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down"}
    names = {f"layer{i}_{name}": f"blk.{i}.{part}.weight" for i in range(LAYERS) for name, part in parts.items()}
    return names | {"embedding": "token_embd.weight", "norm_scale": "output_norm.weight", "head": "output.weight"}


def to_file(name: str, value: np.ndarray) -> np.ndarray:
    """Return a weight of the graph as GGUF files have it: `[out, in]`, with the lanes of a rotation next to each other."""
    if name == "embedding" or value.ndim < 2:
        return value
    if name.endswith(("wq", "wk")):
        value = value.reshape(EMBED, HEADS, 2, HEAD_DIM // 2).swapaxes(2, 3).reshape(EMBED, EMBED)
    return np.ascontiguousarray(value.T)


def from_file(name: str, value: np.ndarray) -> np.ndarray:
    """Return a weight of a GGUF file as the graph has it. It is the inverse of `to_file`."""
    if name == "embedding" or value.ndim < 2:
        return value
    value = value.T
    if name.endswith(("wq", "wk")):
        value = value.reshape(EMBED, HEADS, HEAD_DIM // 2, 2).swapaxes(2, 3).reshape(EMBED, EMBED)
    return np.ascontiguousarray(value)


def export(checkpoint: Path, output: Path) -> dict[str, Path]:
    """Write the weights of a checkpoint as GGUF files; returns their paths by format."""
    stored = rlx.weights.open(checkpoint)
    files = {name: output / f"char_transformer.{name}.gguf" for name in FORMATS}
    tensors = {gguf: to_file(name, stored[name].numpy()) for name, gguf in file_names().items()}
    rlx.weights.save_gguf(files["F32"], tensors, metadata())
    for name in FORMATS[1:]:
        rlx.llm.quantize(files["F32"], files[name], name)
    return files


def read_back(file: Path) -> Arrays:
    """Return the weights in a GGUF file, unpacked, as the graph has them."""
    stored = rlx.weights.open(file)
    return {name: from_file(name, stored[gguf].numpy()) for name, gguf in file_names().items()}


def losses(files: dict[str, Path], device: str) -> dict[str, float]:
    """Return the bits per character of the validation text, for the weights of each file."""
    _, validation = reference()
    tests = pieces(validation, np.arange(0, len(validation) - SPAN, SPAN))
    tester = rlx.Session(device).compile(model(), bind={"batch": len(tests["characters"])})
    result = {}
    for name, file in files.items():
        tester.set_params(read_back(file))
        result[name] = float(tester.run(tests)[0])
    return result


def continued(file: Path, length: int) -> str:
    """Return the likeliest text after the prompt, by the model in a GGUF file."""
    with rlx.llm.load(file) as loaded:
        return str(loaded.generate(PROMPT, max_tokens=length))


def continued_by_llama_cpp(file: Path, length: int) -> str | None:
    """Return the same by llama.cpp; None if llama-cpp-python is not installed."""
    if importlib.util.find_spec("llama_cpp") is None:
        return None
    loaded = importlib.import_module("llama_cpp").Llama(str(file), n_ctx=SPAN, verbose=False)
    completion = loaded.create_completion(PROMPT, max_tokens=length, temperature=0)
    return completion["choices"][0]["text"]


def compared(file: Path, text: str, other: str) -> str:
    """Return whether two texts are equal, or where they part and how close the two likeliest characters are there.

    Both programs round the factors of packed weights to 8 bits, in different ways. Where two characters are almost equally
    likely, either can be the likelier one.
    """
    if text == other:
        return "the same text"
    same = next((i for i, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), min(len(text), len(other)))
    with rlx.llm.load(file) as loaded:
        second, first = np.sort(loaded.logits(PROMPT + text[:same])[-1])[-2:]
    place = f"after {same} characters, where the two largest logits differ by {first - second:.2f}"
    return f"another text {place}: {other!r}"


def show_files(files: dict[str, Path], device: str) -> None:
    """Print the size of each file, the loss of its weights, and the text that RLX and llama.cpp continue with it."""
    length = SPAN - len(PROMPT)
    for name, bits in losses(files, device).items():
        text, other = continued(files[name], length), continued_by_llama_cpp(files[name], length)
        print(f"{name}: {files[name].stat().st_size} bytes, {bits:.3f} bits per character")
        print(f"  rlx        {PROMPT + text!r}")
        print(f"  llama.cpp  {'is not installed' if other is None else compared(files[name], text, other)}")


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description="Train a small transformer to continue English text.")
    parser.add_argument("--steps", type=int, default=600, help="training steps (600)")
    parser.add_argument("--device", default="cpu", help="cpu, xla, cuda, … (cpu)")
    parser.add_argument("--output", type=Path, default=Path("build/examples"), metavar="DIR", help="output folder")
    parser.add_argument("--length", type=int, default=500, help="characters to write (500)")
    options = parser.parse_args()
    try:
        history, text = train(**vars(options))
        print(f"\n{history[-1]['validation_bits']:.3f} bits per character of text that it has not seen\n\n{text}\n")
        show_files(export(options.output / CHECKPOINT, options.output), options.device)
    except rlx.Error as error:
        sys.exit(f"error: {error}")
    print(f"\nthe weights, the GGUF files and a picture of the loss are in {options.output}")


if __name__ == "__main__":
    main()

"""The loss of accuracy and gain of time from quantisation and lower precision, on all-MiniLM-L6-v2 and the digits CNN.

    python -m tools.bench_quantisation [--only minilm|digits] [--model DIR] [--rounds N]

Times are processor times of one thread. The programs alternate on one core, and a ratio is the median over the rounds.
The sentences are those of this repository's documentation: 32 for calibration, 32 others for comparison.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import rlx
from rlx.report.text import table
from tools.bench_common import cpu_seconds

ROOT = Path(__file__).resolve().parents[1]
BATCH, LENGTH = 8, 128
# MiniLM's products with the largest loss, by `quantization_sensitivity` with `dynamic`. The first three dominate.
KEPT = (
    *(f"encoder.layer.{i}.output.dense.weight" for i in range(4)),
    "encoder.layer.0.intermediate.dense.weight",
)
SCHEMES: dict[str, dict[str, Any]] = {
    "weights int8": {"activations": "none"},
    "weights int4": {"activations": "none", "weights": "int4"},
    "int8, smooth=0": {"smooth": 0.0},
    "int8": {},
    "int8 dynamic": {"activations": "dynamic"},
}
PRECISIONS = {
    f"{dtype} {policy}": f"rlx-lower-blocks,rlx-precision{{to={dtype} policy={policy}}}"
    for dtype, policy in (("f16", "mixed_conservative"), ("f16", "mixed"), ("bf16", "mixed"), ("f16", "always"))
}
METHODS = ("percentile", "mse", "entropy")
Arrays = dict[str, Any]
Row = tuple[str, ...]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("minilm", "digits"))
    parser.add_argument("--model", type=Path, help="directory of all-MiniLM-L6-v2 (default: fetch it)")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if options.only != "digits":
        header = ("MiniLM", "least cosine", "mean cosine", "time")
        print("\n".join(table(list(minilm(options.model, options.rounds)), header, right=(1, 2, 3))), flush=True)
    if options.only != "minilm":
        print("\n".join(table(list(digits()), ("digits", "right of the test images"), right=(1,))))


# --- MiniLM -------------------------------------------------------------------------------------------


def minilm(model: Path | None, rounds: int) -> Iterator[Row]:
    """Yield cosines to f32 and the ratio of times, by scheme."""
    from rlx.models.embedder import SentenceEmbedder
    from rlx.models.sentence import sentence_encoder
    from tools.fetch_minilm import fetch

    embedder = SentenceEmbedder(model or fetch())
    graph = sentence_encoder(embedder.config, BATCH, LENGTH)
    params = {a.name: embedder.weights[a.name] for a in graph.params}
    ids = embedder.tokenize(sentences(64))
    batches = [padded(ids[i : i + BATCH]) for i in range(0, len(ids), BATCH)]
    calibration, test = batches[:4], batches[4:]
    exact = compiled(graph, params)
    wanted = np.concatenate([exact.run(batch)[0] for batch in test])
    record = rlx.calibrate(graph, calibration, params=params)
    programs: dict[str, Callable[[], rlx.Program]] = {
        name: lambda o=o: compiled(rlx.quantize(graph, record, params=params, **o), params)
        for name, o in SCHEMES.items()
    }
    some: dict[str, dict[str, Any]] = {"int8": {}, "int8 dynamic": {"activations": "dynamic"}}
    for count in (3, len(KEPT)):
        for name, options in some.items():
            programs[f"{name}, {count} products in f32"] = lambda o=options, n=count: compiled(
                rlx.quantize(graph, record, params=params, keep=KEPT[:n], **o), params
            )
    for method in METHODS:
        other = rlx.calibrate(graph, calibration, params=params, method=method)
        programs[f"int8, {method}"] = lambda r=other: compiled(rlx.quantize(graph, r, params=params), params)
    for name, passes in PRECISIONS.items():
        programs[name] = lambda p=passes: compiled(graph, params, passes=p)
    yield "f32", "1", "1", "1"
    for name, make in programs.items():
        program = make()
        got = np.concatenate([program.run(batch)[0] for batch in test])
        cosines = np.sum(got * wanted, axis=1) / np.linalg.norm(got, axis=1) / np.linalg.norm(wanted, axis=1)
        ratio = compared(lambda p=program: p.run(test[0]), lambda: exact.run(test[0]), rounds)
        yield name, f"{cosines.min():.5f}", f"{cosines.mean():.5f}", f"{ratio:.2f}"


def sentences(count: int) -> list[str]:
    """Return sentences of the documentation, in a fixed random order."""
    text = "\n".join(path.read_text() for path in (*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"))
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    parts = [part.strip().replace("\n", " ") for part in re.split(r"(?<=[.!?])\s+", text)]
    chosen = [part for part in parts if 30 < len(part) < 400 and "|" not in part]
    random.Random(0).shuffle(chosen)
    return chosen[:count]


def padded(ids: list[list[int]]) -> Arrays:
    """Return token ids and mask of a batch."""
    result = {name: np.zeros((BATCH, LENGTH), np.int32) for name in ("input_ids", "attention_mask")}
    for row, tokens in enumerate(ids):
        count = min(len(tokens), LENGTH)
        result["input_ids"][row, :count], result["attention_mask"][row, :count] = tokens[:count], 1
    return result


def compiled(graph: rlx.Graph, params: Arrays, **options: Any) -> rlx.Program:
    """Return a program for one thread, with its weights."""
    rest = {a.name: params[a.name] for a in graph.params if a.name not in graph.weights}
    return rlx.Session(threads=1).compile(graph, params=rest, **options)


def compared(ours: Callable[[], Any], theirs: Callable[[], Any], rounds: int) -> float:
    """Return the median ratio of times of alternating calls."""
    for warm_up in (ours, theirs):
        warm_up()
    return statistics.median(cpu_seconds(ours, 1) / cpu_seconds(theirs, 1) for _ in range(rounds))


# --- the digits CNN -----------------------------------------------------------------------------------


def digits() -> Iterator[Row]:
    """Yield the accuracy on the test images, by scheme."""
    import tempfile

    from examples import digits_cnn as example

    rng = np.random.default_rng(0)
    trainer = example.Trainer("cpu", *example.digits(rng), rng)
    graph = example.model()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "digits.safetensors"
        params, _ = trainer.fit(graph, graph, example.initial(graph, rng), 3e-3, 600, path)
    batch = {name: array[:512] for name, array in trainer.train.items()}
    record = rlx.calibrate(graph, [batch], params=params)

    def accuracy(chosen: rlx.Graph, **options: Any) -> str:
        return f"{float(compiled(chosen, params, **options).run(trainer.test)[1]):.2%}"

    yield "f32", accuracy(graph)
    for name, options in SCHEMES.items():
        yield name, accuracy(rlx.quantize(graph, record, params=params, **options))
    for method in METHODS:
        other = rlx.calibrate(graph, [batch], params=params, method=method)
        yield f"int8, {method}", accuracy(rlx.quantize(graph, other, params=params))
    for name, passes in PRECISIONS.items():
        yield name, accuracy(graph, passes=passes)


if __name__ == "__main__":
    main()

"""Embed sentences with all-MiniLM-L6-v2, and print their similarities.

    python examples/minilm.py --model DIR

DIR contains config.json, tokenizer.json and model.safetensors; `python tools/fetch_minilm.py` fetches them.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from rlx.cli.display import Steps
from rlx.models.embedder import SentenceEmbedder

SENTENCES = [
    "A man is eating food.",
    "Someone is having a meal.",
    "The cat sleeps on the warm windowsill.",
    "A kitten naps in the sun.",
    "Stocks fell sharply after the announcement.",
    "The market lost four percent on the news.",
]


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description="Embed sentences with all-MiniLM-L6-v2.")
    parser.add_argument("--model", required=True, metavar="DIR")
    directory = parser.parse_args().model

    # The first batch of each size compiles a program, which is cached for later runs.
    steps = Steps()
    embedder = SentenceEmbedder(directory, progress=steps)
    vectors = embedder.embed(SENTENCES)

    started = time.perf_counter()
    runs = 10
    for _ in range(runs):
        embedder.embed(SENTENCES)
    seconds = (time.perf_counter() - started) / (runs * len(SENTENCES))

    print(f"\n{len(SENTENCES)} vectors of {vectors.shape[1]} numbers, {seconds * 1e3:.2f} ms a sentence\n")
    # These are unit vectors: their inner product is the cosine of the angle between them.
    print_table(vectors @ vectors.T)


def print_table(similarity: np.ndarray) -> None:
    """Print a row for each sentence; identical sentences have the similarity 1."""
    print("  " + "".join(f"{i + 1:6}" for i in range(len(SENTENCES))))
    for i, (sentence, row) in enumerate(zip(SENTENCES, similarity, strict=True)):
        print(f"{i + 1} " + "".join(f"{x:6.2f}" for x in row) + f"  {sentence}")


if __name__ == "__main__":
    main()

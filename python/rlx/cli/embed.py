"""Convert sentences to unit vectors with a BERT sentence encoder such as all-MiniLM-L6-v2.

The model's directory contains config.json, tokenizer.json and model.safetensors. Programs are compiled for the lengths
that occur and cached, so the first call takes some seconds and later ones do not.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from rlx.cli.display import Steps
from rlx.cli.streams import say

_NUMBERS_SHOWN = 6
_TEXT_SHOWN = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "texts", nargs="*", metavar="TEXT", help="sentences; without any, or with -, lines are read from standard input"
    )
    parser.add_argument("--model", required=True, metavar="DIR", help="directory of the model")
    parser.add_argument("--json", action="store_true", help='print {"embeddings": [[…], …]}, in the order of the texts')
    parser.add_argument(
        "--batch",
        type=int,
        default=32,
        metavar="N",
        help="the largest number of sentences per run (default: %(default)s)",
    )
    parser.add_argument("--device", default="cpu", help="cpu, cuda, rocm, vulkan or metal (default: %(default)s)")
    parser.add_argument("--threads", type=int, metavar="N", help="threads to use (default: one for each core)")
    parser.add_argument("--no-cache", action="store_true", help="compile even if the program is in the cache")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    texts = _texts(arguments.texts)
    from rlx.models.embedder import SentenceEmbedder
    from rlx.runtime.session import Session

    embedder = SentenceEmbedder(
        arguments.model,
        Session(arguments.device, threads=arguments.threads),
        progress=Steps(only_terminal=True),
        cache=not arguments.no_cache,
    )
    vectors = embedder.embed(texts, batch=arguments.batch)
    if arguments.json:
        say(json.dumps({"embeddings": vectors.tolist()}))
    else:
        for text, vector in zip(texts, vectors, strict=True):
            say(_line(text, vector))
    return 0


def _texts(words: Sequence[str]) -> list[str]:
    from rlx.cli.streams import standard_input
    from rlx.support.errors import Error

    texts: list[str] = []
    for word in words or ["-"]:
        if word != "-":
            texts.append(word)
            continue
        try:
            texts += [line.rstrip("\r\n") for line in standard_input()]
        except UnicodeDecodeError as problem:
            raise Error(f"standard input is not {problem.encoding} text: {problem.reason}") from None
    return texts


def _line(text: str, vector: Any) -> str:
    shortened = text if len(text) <= _TEXT_SHOWN else text[: _TEXT_SHOWN - 1] + "…"
    numbers = " ".join(f"{x:+.4f}" for x in vector[:_NUMBERS_SHOWN])
    num_hidden = len(vector) - _NUMBERS_SHOWN
    return f"[{numbers}{f' … {num_hidden} more' if num_hidden > 0 else ''}]  {shortened}"

"""Continue a text with a language model: a GGUF file, or a folder of the Hugging Face hub.

Only the text goes to standard output. Programs are compiled for the model when it is first used on this machine, and cached.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlx.cli.generation import (
    add_generation_options,
    add_model_options,
    checked_text,
    generation_options,
    load_model,
    read_text,
    write_generated,
)
from rlx.cli.streams import say, write

if TYPE_CHECKING:
    from rlx.llm import Chunk


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_model_options(parser)
    source = parser.add_mutually_exclusive_group()
    source.add_argument("-p", "--prompt", metavar="TEXT", help="the text to continue")
    source.add_argument("-f", "--file", metavar="FILE", help="a file with the text (default: -, standard input)")
    parser.add_argument("input", nargs="?", choices=("-",), metavar="-", help="read the text from standard input")
    add_generation_options(parser)
    parser.add_argument(
        "--json", action="store_true", help="print a JSON object with the text, its tokens and the reason of the end"
    )
    parser.add_argument(
        "--logprobs",
        type=int,
        metavar="N",
        help="with --json, print the log-probabilities of the N likeliest tokens, and of the one taken",
    )
    parser.add_argument(
        "--stats", action="store_true", help="print numbers of tokens and their speed to standard error"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    options = generation_options(arguments, logprobs=_logprobs(arguments))
    prompt = _prompt(arguments)
    model = load_model(arguments)
    begin = time.monotonic()
    first = 0.0
    chunks: list[Chunk] = []
    for chunk in model.stream(prompt, **options):
        first = first or time.monotonic() - begin
        chunks.append(chunk)
        if not arguments.json:
            write_generated(chunk.text)
    if arguments.json:
        say(json.dumps(_as_json(chunks)))
    else:
        write("\n")
    if arguments.stats:
        prompt_tokens = len(model.tokenizer.encode(prompt))
        _show_speed(prompt_tokens, chunks, first, time.monotonic() - begin)
        if chunks[-1].proposed_tokens:
            say(_acceptance(chunks[-1]), stream=sys.stderr)
    return 0


def _prompt(arguments: argparse.Namespace) -> str:
    from rlx.support.errors import Error

    if arguments.input is not None and (arguments.prompt is not None or arguments.file is not None):
        raise Error("the text is given twice: by - and by --prompt or --file")
    if arguments.prompt is not None:
        return checked_text(arguments.prompt, "--prompt")
    return read_text(arguments.file or "-")


def _logprobs(arguments: argparse.Namespace) -> int | None:
    from rlx.support.errors import Error

    if arguments.logprobs is not None and not arguments.json:
        raise Error("--logprobs goes with --json")
    return arguments.logprobs


def _as_json(chunks: Sequence[Chunk]) -> dict[str, Any]:
    """Return the object that is printed. The log-probabilities are an object for each token, whose keys are ids."""
    result = {
        "text": "".join(chunk.text for chunk in chunks),
        "tokens": [token for chunk in chunks for token in chunk.tokens],
        "finish_reason": chunks[-1].finish_reason,
    }
    if chunks[-1].logprobs is not None:
        # A token that is excluded by the logit bias has minus infinity, which JSON lacks.
        result["logprobs"] = [
            {str(token): value if math.isfinite(value) else None for token, value in entry.items()}
            for chunk in chunks
            for entry in chunk.logprobs or ()
        ]
    return result


def _acceptance(last: Chunk) -> str:
    """Return the line about proposed tokens, from the last part of a text."""
    share = last.accepted_tokens / last.proposed_tokens
    return f"draft: {last.proposed_tokens} tokens proposed, {last.accepted_tokens} accepted ({share:.0%})"


def _show_speed(prompt_tokens: int, chunks: Sequence[Chunk], first: float, whole: float) -> None:
    count = sum(len(chunk.tokens) for chunk in chunks)
    rate = max(count - 1, 0) / max(whole - first, 1e-9)
    say(f"prompt: {prompt_tokens} tokens, first text after {first:.2f} s", stream=sys.stderr)
    say(f"output: {count} tokens, {rate:.1f} per second", stream=sys.stderr)

"""Talk to a language model. Each line is a message; /clear forgets the conversation, /exit or the end of the input ends it.

An interrupt (Ctrl-C) ends the answer, and at the prompt the program. A message that the model cannot take, for example because
the conversation is longer than the context, is an error, and is forgotten.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from rlx.cli.generation import (
    add_generation_options,
    add_model_options,
    generation_options,
    load_model,
    write_generated,
)
from rlx.cli.streams import say, standard_input, write

_PROMPT = "> "


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_model_options(parser)
    parser.add_argument("--system", metavar="TEXT", help="the message of the system, before all others")
    add_generation_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from rlx.support.errors import Error

    options = generation_options(arguments)
    model = load_model(arguments)
    start = [] if arguments.system is None else [{"role": "system", "content": arguments.system}]
    messages: list[dict[str, Any]] = list(start)
    status = 0
    while (line := _next_line()) is not None:
        if line == "/exit":
            break
        if line == "/clear":
            messages = list(start)
        elif line:
            asked = [*messages, {"role": "user", "content": line}]
            try:
                answer = _answer(model, asked, options)
            except Error as problem:
                say(f"rlx: error: {problem}", stream=sys.stderr)
                status = 1
            else:
                messages = [*asked, {"role": "assistant", "content": answer}]
    return status


def _next_line() -> str | None:
    """Return the next message, or None at the end of the input. On a terminal there is a prompt, on standard error."""
    stream = standard_input()
    if stream.isatty():
        say(_PROMPT, stream=sys.stderr, end="")
        sys.stderr.flush()
    line = stream.readline()
    return line.strip() if line else None


def _answer(model: Any, messages: list[dict[str, Any]], options: dict[str, Any]) -> str:
    """Print an answer as it is generated, and return it: the part before an interrupt."""
    parts: list[str] = []
    try:
        for chunk in model.chat_stream(messages, **options):
            write_generated(chunk.text)
            parts.append(chunk.text)
    except KeyboardInterrupt:
        say(" [interrupted]", stream=sys.stderr, end="")
    write("\n")
    return "".join(parts)

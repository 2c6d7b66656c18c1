"""Options and output that the commands for language models share."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlx.cli.streams import standard_input, write
from rlx.support.printable import printable

if TYPE_CHECKING:
    from rlx.llm import LLM
    from rlx.support.errors import Error

_TERMINAL_KEEPS = "\n\t"


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Declare the model and how it is loaded."""
    parser.add_argument("model", metavar="MODEL", help="a GGUF file (of several parts, the first), or a model's folder")
    parser.add_argument(
        "-c",
        "--context",
        type=int,
        metavar="N",
        help="the largest number of tokens (default: the model's, or less if keys and values take 1 GiB)",
    )
    add_precision_options(parser)
    add_lora_option(parser, "an adapter: a GGUF file, or a folder of PEFT")
    drafts = parser.add_mutually_exclusive_group()
    drafts.add_argument(
        "--draft",
        metavar="MODEL",
        help="a smaller model with the same tokens, which proposes tokens, or mtp for the head of the model",
    )
    drafts.add_argument(
        "--lookup", action="store_true", help="propose what followed the last tokens earlier in the text"
    )


def add_lora_option(parser: Any, description: str) -> None:
    """Declare the option for adapters, of a parser or a group of one."""
    parser.add_argument("--lora", action="append", default=[], metavar="PATH[=SCALE]", help=description)


def add_precision_options(parser: argparse.ArgumentParser) -> None:
    """Declare the number of threads, and the precision of the cache and of products."""
    parser.add_argument("-t", "--threads", type=int, metavar="N", help="the number of threads (default: all cores)")
    parser.add_argument(
        "--cache", choices=("f16", "f32", "q8_0"), default="f16", help="the dtype of keys and values (default: f16)"
    )
    parser.add_argument(
        "--activations",
        choices=("i8", "i16", "f32"),
        default="i8",
        help="the precision of activations in products with packed weights (default: i8)",
    )


def precision_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options of `add_precision_options` as keywords of `rlx.llm.load`."""
    return {"threads": arguments.threads, "cache": arguments.cache, "activations": arguments.activations}


def add_generation_options(parser: argparse.ArgumentParser) -> None:
    """Declare the parameters of a generation."""
    parser.add_argument("-n", "--max-tokens", type=int, metavar="N", help="the largest number of tokens to generate")
    parser.add_argument(
        "--temp", type=float, default=0.0, metavar="X", help="temperature; 0 takes the likeliest token (default)"
    )
    parser.add_argument(
        "--top-k", type=int, default=0, metavar="N", help="keep the N likeliest tokens; 0 keeps all (default)"
    )
    parser.add_argument(
        "--top-p", type=float, default=1.0, metavar="X", help="keep the likeliest tokens of this probability in all"
    )
    parser.add_argument(
        "--min-p", type=float, default=0.0, metavar="X", help="drop tokens below this fraction of the likeliest one"
    )
    parser.add_argument(
        "--repeat-penalty", type=float, default=1.0, metavar="X", help="penalise tokens that occurred; 1 is off"
    )
    parser.add_argument(
        "--presence-penalty",
        type=float,
        default=0.0,
        metavar="X",
        help="subtract this from the logits of tokens in the output",
    )
    parser.add_argument(
        "--frequency-penalty",
        type=float,
        default=0.0,
        metavar="X",
        help="subtract this from the logits of tokens, for each time they are in the output",
    )
    parser.add_argument("-s", "--seed", type=int, metavar="SEED", help="the seed of the random numbers")
    parser.add_argument("--stop", action="append", default=[], metavar="TEXT", help="end before this text")
    parser.add_argument(
        "--logit-bias", action="append", default=[], metavar="ID=X", help="add a number to the logit of a token"
    )
    parser.add_argument("--ignore-eos", action="store_true", help="continue after the end of the text")
    parser.add_argument("--schema", metavar="FILE|JSON", help="a JSON schema that the text follows: a file, or {…}")
    parser.add_argument(
        "--grammar", metavar="FILE", help="a file with a grammar that the text follows, in GBNF or Lark"
    )


def generation_options(arguments: argparse.Namespace, *, logprobs: int | None = None) -> dict[str, Any]:
    """Return the parameters as keywords of `LLM.generate`.

    Args:
        arguments: The command line.
        logprobs: The number of log-probabilities, which not all commands print.

    Raises:
        Error: One is not valid. This is found before the model is loaded.
    """
    from rlx.llm.options import GenerationOptions

    options: dict[str, Any] = {
        "max_tokens": arguments.max_tokens,
        "temperature": arguments.temp,
        "top_k": arguments.top_k,
        "top_p": arguments.top_p,
        "min_p": arguments.min_p,
        "repetition_penalty": arguments.repeat_penalty,
        "presence_penalty": arguments.presence_penalty,
        "frequency_penalty": arguments.frequency_penalty,
        "seed": arguments.seed,
        "stop": arguments.stop,
        "logit_bias": dict(map(_bias, arguments.logit_bias)),
        "logprobs": logprobs,
        "ignore_eos": arguments.ignore_eos,
        "schema": None if arguments.schema is None else _schema(arguments.schema),
        "grammar": None if arguments.grammar is None else read_text(arguments.grammar),
    }
    GenerationOptions(**options)
    return options


def _bias(text: str) -> tuple[int, float]:
    from rlx.support.errors import Error

    token, _, number = text.partition("=")
    try:
        return int(token), float(number)
    except ValueError:
        raise Error(f"--logit-bias must be ID=X, such as 13=-2.5, got {text!r:.60}") from None


def _schema(argument: str) -> str:
    """Return a JSON schema, given as JSON text or as the name of a file."""
    is_text = argument.lstrip()[:1] == "{" or argument.strip() == "true"
    return checked_text(argument, "--schema") if is_text else read_text(argument)


def read_text(name: str) -> str:
    """Return the text of a file, or of standard input for -.

    Raises:
        Error: It cannot be read, or is not UTF-8.
    """
    from rlx.support.errors import Error

    try:
        text = "".join(standard_input()) if name == "-" else Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError as problem:
        raise not_utf8("standard input" if name == "-" else name, problem) from None
    except OSError as problem:
        raise Error(f"cannot read {name}: {problem.strerror or problem}") from None
    return checked_text(text, "standard input" if name == "-" else name)


def checked_text(text: str, source: str) -> str:
    """Return a text of an argument or of standard input. Bytes that are not UTF-8 are half of a surrogate pair in it.

    Raises:
        Error: There are such bytes.
    """
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        raise not_utf8(source, problem) from None
    return text


def not_utf8(source: str, problem: UnicodeError) -> Error:
    """Return the error for bytes that are not UTF-8."""
    from rlx.support.errors import Error

    return Error(f"{source} is not UTF-8 text: {getattr(problem, 'reason', problem)}")


def load_model(arguments: argparse.Namespace, *, parallel: int = 1) -> LLM:
    """Return the model of the command line, for some texts at the same time."""
    from rlx.llm import PredictionHead, PromptLookup, load

    draft = PromptLookup() if arguments.lookup else arguments.draft
    if draft == "mtp":  # a file of this name is ./mtp
        draft = PredictionHead()
    options = precision_options(arguments)
    return load(
        arguments.model,
        context=arguments.context,
        lora=adapters(arguments),
        draft=draft,
        parallel=parallel,
        **options,
    )


def adapters(arguments: argparse.Namespace) -> list[tuple[str, float]] | None:
    """Return the adapters of the command line: paths and factors.

    Raises:
        Error: A factor is not a number.
    """
    return [_adapter(text) for text in arguments.lora] or None


def _adapter(text: str) -> tuple[str, float]:
    """Return the path and the factor of an adapter. A path may have the character = itself."""
    from rlx.support.errors import Error

    path, separator, number = text.rpartition("=")
    if not separator or Path(text).exists():
        return text, 1.0
    try:
        return path, float(number)
    except ValueError:
        raise Error(f"--lora must be PATH or PATH=SCALE, such as adapter.gguf=0.5, got {text!r:.200}") from None


def write_generated(text: str) -> None:
    """Write generated text at once: as it is to a file or pipe, and to a terminal with control characters escaped."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    write(printable(text, keep=_TERMINAL_KEEPS) if is_terminal else text)

"""The part of `rlx quantize` for language models."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys

from rlx.cli.generation import adapters, add_lora_option
from rlx.cli.streams import say

_GGUF = b"GGUF"
_PROGRESS_WIDTH = 70
_PROGRESS_LINES = 20
_MODEL_OPTIONS = ("type", "tensor_type", "pure", "imatrix", "lora", "threads")


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options for language models."""
    model = parser.add_argument_group("language models")
    model.add_argument(
        "--type",
        metavar="TYPE",
        help="Q4_K_M, Q8_0, F16 or another name of llama.cpp, or a format of tensors (default: Q4_K_M)",
    )
    model.add_argument(
        "--tensor-type",
        action="append",
        default=[],
        metavar="PATTERN=FORMAT",
        help="the format of tensors in whose name a regular expression is found; the first that matches decides",
    )
    model.add_argument("--pure", action="store_true", help="give all matrices the format of the type")
    model.add_argument("--imatrix", metavar="FILE", help="a file with an importance matrix of llama.cpp")
    add_lora_option(model, "an adapter to merge: a GGUF file, or a folder of PEFT")
    model.add_argument("-t", "--threads", type=int, metavar="N", help="the number of threads (default: all cores)")


def check_no_model_options(arguments: argparse.Namespace) -> None:
    """Check that a graph is not given an option for language models.

    Raises:
        Error: It is.
    """
    from rlx.support.errors import Error

    for name in _MODEL_OPTIONS:
        if getattr(arguments, name) not in (None, [], False):
            hint = "give a GGUF file, or a folder with a model"
            raise Error(f"{_flag(name)} goes with a language model, and {arguments.file} is not one", hint=hint)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def is_model(path: str) -> bool:
    """Return whether a file is a GGUF file, or a folder."""
    if os.path.isdir(path):
        return True
    if not os.path.isfile(path):  # a pipe can be read only once
        return False
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return file.read(len(_GGUF)) == _GGUF
    return False


def run_model(arguments: argparse.Namespace) -> int:
    """Convert a language model. Progress, remarks and sizes go to standard error."""
    from rlx.llm.quantization.quantize import quantize
    from rlx.support.errors import Error

    for name, default in arguments.graph_defaults.items():
        if getattr(arguments, name) != default:
            raise Error(f"{_flag(name)} goes with a graph, and {arguments.file} is a language model")
    if arguments.output == "-":
        raise Error("a GGUF file is not written to standard output", hint="name a file: -o OUT.gguf")
    result = quantize(
        arguments.file,
        arguments.output,
        "Q4_K_M" if arguments.type is None else arguments.type,
        threads=arguments.threads,
        overrides=_overrides(arguments.tensor_type),
        imatrix=arguments.imatrix,
        pure=arguments.pure,
        lora=adapters(arguments),
        progress=_print_progress,
        remark=lambda line: say(f"remark: {line}", stream=sys.stderr),
    )
    size = f"{result.nbytes / 2**20:.1f} MiB, {result.bits_per_weight:.2f} bits per weight"
    say(f"{arguments.output}: {len(result.formats)} tensors, {size}", stream=sys.stderr)
    return 0


def _overrides(texts: list[str]) -> dict[str, str]:
    """Return formats by pattern, from texts like `ffn_down=q6_k`. The first of several for a pattern counts.

    Raises:
        Error: A text does not have this form.
    """
    from rlx.support.errors import Error

    result: dict[str, str] = {}
    for text in texts:
        pattern, _, name = text.rpartition("=")
        if not pattern or not name:
            raise Error(f"--tensor-type={text}: expected PATTERN=FORMAT, such as --tensor-type=ffn_down=q6_k")
        result.setdefault(pattern, name)
    return result


def _print_progress(done: int, total: int, name: str) -> None:
    """Print a line after each tensor. On a terminal, it replaces the one before."""
    width = len(str(total))
    line = f"[{done:{width}}/{total}] {name}"
    if sys.stderr.isatty():
        say(f"{line:{_PROGRESS_WIDTH}.{_PROGRESS_WIDTH}}", stream=sys.stderr, end="\n" if done == total else "\r")
    elif done * _PROGRESS_LINES // total != (done - 1) * _PROGRESS_LINES // total:
        say(line, stream=sys.stderr)

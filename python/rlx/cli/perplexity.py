"""Print the perplexity of a text under a language model, as llama.cpp's tool defines it.

The tokens are cut into windows, and those of the second half of each are predicted. The last line is the result with its
standard error: "perplexity: 6.2100 ± 0.0500".
"""

from __future__ import annotations

import argparse
import sys

from rlx.cli.generation import add_precision_options, precision_options, read_text
from rlx.cli.streams import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("model", metavar="MODEL", help="a GGUF file (of several parts, the first), or a model's folder")
    parser.add_argument("file", metavar="FILE", help="a file with the text, UTF-8")
    default = "default: 512, or the model's context if it is smaller"
    parser.add_argument("-c", "--context", type=int, metavar="N", help=f"tokens of a window ({default})")
    add_precision_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    import numpy as np

    from rlx.llm import load

    text = read_text(arguments.file)
    model = load(arguments.model, **precision_options(arguments))
    losses = model.negative_log_likelihoods(text, context=arguments.context)
    value = float(np.exp(losses.mean()))
    # The error of the mean, carried through the exponential.
    spread = value * float(losses.std(ddof=1) if len(losses) > 1 else 0.0) / len(losses) ** 0.5
    say(f"{len(losses)} tokens were predicted", stream=sys.stderr)
    say(f"perplexity: {value:.4f} ± {spread:.4f}")
    return 0

"""The command `rlx`: compile, run, inspect and tune models."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from rlx.cli import heed_interrupts
from rlx.cli.exit_codes import exit_code
from rlx.cli.files import check_outputs
from rlx.cli.parser import Parser
from rlx.cli.streams import flush
from rlx.report.text import table
from rlx.support.files import inputs_protected
from rlx.version import __version__

# Each command is a module here, imported when it is called. It has `add_arguments(parser)` and `run(arguments)`, which
# returns the exit code.
COMMANDS = {
    "compile": "compile a graph to a file for one device",
    "run": "run a graph, or a compiled one, on given arrays",
    "tune": "search for the fastest compilation of a graph on this machine",
    "quantize": "round a graph to integers of 8 or 4 bits, or pack the weights of a language model",
    "generate": "continue a text with a language model",
    "chat": "talk to a language model",
    "serve": "serve a language model with OpenAI's HTTP interface",
    "perplexity": "measure a language model on a text",
    "gguf": "print the metadata and tensors of a GGUF file",
    "import": "check what can be imported from a model of any format",
    "inspect": "print the ops and costs of a graph, or draw it",
    "profile": "measure each kernel of a graph, with its source lines",
    "embed": "convert sentences to vectors with a BERT sentence encoder",
    "devices": "list the devices that programs can run on",
    "doctor": "check this installation",
    "completion": "print a completion script for bash, zsh or fish",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code: see `exit_code`."""
    return exit_code("rlx", _run, argv)


def _run(argv: Sequence[str]) -> int:
    # Import only the called command, so that --help and --version are quick.
    parser = _parser()
    command = next((word for word in argv if not word.startswith("-")), None)
    if command not in COMMANDS or argv[0] != command:
        parser.parse_args(argv)  # --help, --version, or an error
        parser.print_help()
        return 0
    module = importlib.import_module(f"rlx.cli.{command}")
    chosen = Parser(
        prog=f"rlx {command}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(chosen)
    chosen.add_argument(
        "--load",
        action="append",
        default=[],
        metavar="FILE.py|MODULE",
        help="import a module that registers ops or passes",
    )
    arguments = chosen.parse_intermixed_args(argv[1:])
    heed_interrupts()
    check_outputs(arguments)
    if arguments.load:
        from rlx.cli.extensions import load

        load(arguments.load)
    with inputs_protected():
        code = module.run(arguments)
    flush()
    return code


def _parser() -> argparse.ArgumentParser:
    commands = "\n".join(table(list(COMMANDS.items()), indent="  "))
    parser = Parser(
        prog="rlx",
        usage="rlx [-h] [--version] COMMAND …",
        description="RLX compiles tensor programs for CPUs and GPUs.",
        epilog=f"commands:\n{commands}\n\n`rlx COMMAND --help` describes a command; `rlx-opt` runs passes.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"rlx {__version__}")
    parser.add_argument("command", nargs="?", choices=COMMANDS, metavar="COMMAND", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())

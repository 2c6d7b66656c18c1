"""Print a completion script for a shell: commands, flags and pass names of `rlx` and `rlx-opt`.

bash:  rlx completion bash > ~/.local/share/bash-completion/completions/rlx
       ln -s rlx ~/.local/share/bash-completion/completions/rlx-opt
zsh:   rlx completion zsh > FOLDER/_rlx, and rlx completion zsh --for=rlx-opt > FOLDER/_rlx-opt, where FOLDER is in $fpath
fish:  rlx completion fish > ~/.config/fish/completions/rlx.fish
       rlx completion fish --for=rlx-opt > ~/.config/fish/completions/rlx-opt.fish
"""

from __future__ import annotations

import argparse
import importlib

from rlx.cli.opt_flags import FLAGS
from rlx.cli.opt_flags import PROGRAM as RLX_OPT
from rlx.cli.streams import write
from rlx.support.packages import import_package

SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("shell", choices=SHELLS)
    parser.add_argument(
        "--for",
        dest="program",
        choices=("rlx", RLX_OPT),
        help="complete this program; default: both programs if the shell supports both in one file (bash), else rlx",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    both = ("rlx", RLX_OPT) if arguments.shell == "bash" else ("rlx",)
    for program in both if arguments.program is None else (arguments.program,):
        write(script(program, arguments.shell) + "\n")
    return 0


def script(program: str, shell: str) -> str:
    """Return the completion script of a program for a shell.

    Raises:
        Error: The package `shtab` is missing.
    """
    shtab = import_package("shtab", "completion")
    parser = rlx_parser() if program == "rlx" else opt_parser()
    for action in _actions(parser):
        if action.choices is None and action.nargs != 0:  # an argument without choices is usually a file
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    return shtab.complete(parser, shell)


def rlx_parser() -> argparse.ArgumentParser:
    """Return one parser for all of `rlx`. The commands do not use it, so that they start quickly."""
    from rlx.cli.main import COMMANDS

    parser = argparse.ArgumentParser(prog="rlx")
    parser.add_argument("--version", action="store_true", help="print the version")
    commands = parser.add_subparsers(dest="command")
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary)
        importlib.import_module(f"rlx.cli.{name}").add_arguments(command)
        command.add_argument("--load", help="import a module that registers ops or passes")
    return parser


def opt_parser() -> argparse.ArgumentParser:
    """Return a parser with the flags of `rlx-opt`, and a flag for every pass."""
    from rlx.passes import native
    from rlx.passes.base import infos

    parser = argparse.ArgumentParser(prog=RLX_OPT, add_help=False)
    for flag in FLAGS:
        spelling = "-o" if flag.name == "o" else f"--{flag.name}"
        takes = {"action": "store"} if flag.needs_value else {"action": "store_true"}
        parser.add_argument(spelling, dest=f"flag {flag.name}", help=_plain(flag.help), **takes)  # type: ignore[arg-type]
    passes = {info.name: info.summary for info in infos()} | dict(native.names())
    for name in sorted(passes, key=lambda name: (not name.startswith("rlx-"), name)):
        parser.add_argument(f"--{name}", dest=f"pass {name}", action="store_true", help=_plain(passes[name]))
    parser.add_argument("file", nargs="?")
    return parser


def _plain(text: str) -> str:
    """Return a description that argparse does not format and no shell expands."""
    return text.replace("%", "%%").replace("`", "'").replace("$", "")


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    found: list[argparse.Action] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in set(action.choices.values()):
                found += _actions(command)
        else:
            found.append(action)
    return found

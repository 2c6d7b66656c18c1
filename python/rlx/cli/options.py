"""The options of a compilation on the command line, made from `CompileOptions`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from rlx.support.options import option_help
from rlx.targets.options import CompileOptions


def add_options(parser: argparse.ArgumentParser, *names: str, of: type = CompileOptions) -> None:
    """Declare options.

    Args:
        parser: The parser of a command.
        names: The names of the options; all when absent.
        of: The dataclass that has them.
    """
    for name, (default, option) in option_help(of).items():
        if not names or name in names:
            argument: dict[str, Any] = {"default": default, **option.argument}
            if argument.get("action") == "append":
                argument["default"] = []
            parser.add_argument(option.flag, dest=name, **argument)


def options_of(arguments: argparse.Namespace) -> CompileOptions:
    """The options that a command is given. A graph is read before: where its importer takes the sizes, none are left.

    Raises:
        Error: A value is not valid.
    """
    values: dict[str, Any] = {}
    for name in option_help(CompileOptions):
        given = getattr(arguments, name)
        values[name] = bindings(given) if isinstance(given, list) else given
    return CompileOptions(**values)


def first_given(arguments: argparse.Namespace) -> str:
    """The flag of the first option whose value is not the default; empty if there is none."""
    for name, (default, option) in option_help(CompileOptions).items():
        if getattr(arguments, name) not in (default, []):
            return option.flag
    return ""


def bindings(texts: Sequence[str]) -> dict[str, int]:
    """Sizes by symbol, from `seq=128` texts.

    Raises:
        Error: One is not written like this, or a symbol is bound twice.
    """
    from rlx.cli.pairs import size_of
    from rlx.support.errors import Error

    sizes: dict[str, int] = {}
    for text in texts:
        name, _, size = text.rpartition("=")
        if not name or not size.isdecimal():
            raise Error(f"--bind={text}: expected SYMBOL=SIZE, such as --bind=seq=128")
        if name in sizes:
            raise Error(f"--bind: '{name}' is bound twice")
        sizes[name] = size_of(size, f"--bind={name}")
    return sizes

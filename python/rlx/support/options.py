"""Options that several calls and commands take: the fields of a frozen dataclass, from which signatures and help are made.

A function that takes them by name is declared with `**options: Unpack[Keywords]`, where `Keywords` is a `TypedDict` with the
names and types of the fields, in addition to the dataclass.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, fields
from typing import Any, TypeVar

Documented = TypeVar("Documented", bound=Callable[..., Any])
_WIDTH = 128


@dataclass(frozen=True)
class OptionHelp:
    """The documentation of an option, and its form on the command line.

    Attributes:
        text: Its meaning, for docstrings.
        flag: Its name on the command line; empty if commands do not have it.
        argument: Keywords of `argparse`'s `add_argument`, with a `help` in terms of the command line.
    """

    text: str
    flag: str
    argument: Mapping[str, Any]


def described(text: str, flag: str = "", **argument: Any) -> dict[str, OptionHelp]:
    """The metadata of a field that is an option: see `OptionHelp`."""
    return {"help": OptionHelp(text, flag, argument)}


def option_help(options: type) -> dict[str, tuple[Any, OptionHelp]]:
    """The default and the documentation of each option of a dataclass, by name."""
    return {option.name: (option.default, option.metadata["help"]) for option in _fields(options)}


def _fields(options: type) -> list[Field[Any]]:
    """The fields that are options, those of the class itself first."""
    described_fields = [option for option in fields(options) if "help" in option.metadata]
    return sorted(described_fields, key=lambda option: option.name not in options.__annotations__)


def documents_options(options: type) -> Callable[[Documented], Documented]:
    """A decorator of a function or class: in its docstring, the line of `options` becomes one for each option.

    Args:
        options: The dataclass.
    """

    def documented(thing: Documented) -> Documented:
        lines = (thing.__doc__ or "").split("\n")
        for i, line in enumerate(lines):
            if line.lstrip().startswith("options:"):
                before = line[: len(line) - len(line.lstrip())]
                lines[i : i + 1] = [text for entry in option_help(options).items() for text in _lines(entry, before)]
                thing.__doc__ = "\n".join(lines)
                break
        return thing

    return documented


def _lines(entry: tuple[str, tuple[Any, OptionHelp]], before: str) -> list[str]:
    """The lines of a docstring for an option."""
    name, (_, option) = entry
    return textwrap.wrap(f"{name}: {option.text}", _WIDTH, initial_indent=before, subsequent_indent=f"{before}    ")


def takes_options(options: type) -> Callable[[Documented], Documented]:
    """A decorator of a function with `**options: Unpack[…]`: its signature and docstring name each option.

    They are what `help`, the pages of the API and errors of wrong calls show.

    Args:
        options: The dataclass.
    """

    def taking(function: Documented) -> Documented:
        signature: Any = inspect.signature(function)
        kept = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        declared = [
            inspect.Parameter(o.name, inspect.Parameter.KEYWORD_ONLY, default=o.default, annotation=o.type)
            for o in _fields(options)
        ]
        function.__signature__ = signature.replace(parameters=[*kept, *declared])  # type: ignore[attr-defined]
        return documents_options(options)(function)

    return taking

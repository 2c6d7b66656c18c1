"""Flags of targets that commands have as options of their own: `--preset=latency` stands for `--flag=--preset=latency`.

A back end of RLX declares them in a module `flags`, which is imported for every command and so imports nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Sequence

_DECLARING = ("rlx.targets.fpga.flags", "rlx.targets.xla.flags")


def declared() -> dict[str, tuple[str, str]]:
    """By name, with the dashes: what to call the value in help, and the help."""
    flags: dict[str, tuple[str, str]] = {}
    for module in _DECLARING:
        flags |= importlib.import_module(module).COMMAND_LINE
    return flags


def check_own(target: str, flags: Sequence[str], own: Collection[str] = ()) -> None:
    """No flag is one that only other targets have.

    Args:
        target: The name of the target.
        flags: What it is given.
        own: The flags among those that commands have as options that it has as well.

    Raises:
        CompileError: One is.
    """
    from rlx.support.errors import CompileError

    for flag in flags:
        name = flag.partition("=")[0]
        if name in declared() and name not in own:
            _, text = declared()[name]
            raise CompileError(f"{target} has no flag '{flag:.100}'", hint=f"{name} is of other targets: {text}")

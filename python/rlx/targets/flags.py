"""Target flags that commands also accept as options: `--preset=latency` is short for `--flag=--preset=latency`.

A back end of RLX declares them in a module `flags`. Every command imports this module, so it imports no other module.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Sequence

_DECLARING = ("rlx.targets.fpga.flags", "rlx.targets.xla.flags")


def command_line_flags() -> dict[str, tuple[str, str]]:
    """Return the flags by name, including the dashes. Each has a name for its value, and a help text."""
    flags: dict[str, tuple[str, str]] = {}
    for module in _DECLARING:
        flags |= importlib.import_module(module).COMMAND_LINE
    return flags


def check_own(target: str, flags: Sequence[str], own: Collection[str] = ()) -> None:
    """Check that no flag belongs only to other targets.

    Args:
        target: The name of the target.
        flags: The flags passed to it.
        own: The flags of `command_line_flags` that this target has.

    Raises:
        CompileError: A flag belongs only to other targets.
    """
    from rlx.support.errors import CompileError

    for flag in flags:
        name = flag.partition("=")[0]
        if name in command_line_flags() and name not in own:
            _, text = command_line_flags()[name]
            raise CompileError(f"{target} has no flag '{flag:.100}'", hint=f"{name} is of other targets: {text}")

"""Flags of targets that commands have as options of their own: `--preset=latency` stands for `--flag=--preset=latency`.

A back end of RLX declares them in a module `flags`, which is imported for every command and so imports nothing.
"""

from __future__ import annotations

import importlib

_DECLARING = ("rlx.backends.fpga.flags", "rlx.backends.xla.flags")


def declared() -> dict[str, tuple[str, str]]:
    """By name, with the dashes: what to call the value in help, and the help."""
    flags: dict[str, tuple[str, str]] = {}
    for module in _DECLARING:
        flags |= importlib.import_module(module).COMMAND_LINE
    return flags

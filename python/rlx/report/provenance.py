"""The origin of a page: version, date, machine and options."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rlx.support.errors import Error
from rlx.support.short import short_repr
from rlx.targets.compilation import Compilation
from rlx.targets.host import usable_cpus
from rlx.targets.iree.cpu import describe_host
from rlx.version import __version__


def provenance(compilation: Compilation) -> Iterator[str]:
    """Yield lines about a compilation: version and date, this machine, and the options.

    The date is that of `SOURCE_DATE_EPOCH`, if this variable is set.
    """
    yield f"RLX {__version__}, {_date()}"
    yield f"machine: {machine_text()}"
    yield target_text(compilation)


def target_text(compilation: Compilation) -> str:
    """Return the target and the options of a compilation."""
    return f"target: {compilation.target.name} ({compilation.target.arch}); options: {options_text(compilation)}"


def machine_text() -> str:
    """Return this machine in words: system, CPU, its features, and the number of CPUs that may be used."""
    model = ""
    if Path("/proc/cpuinfo").exists():
        found = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(errors="replace"), re.MULTILINE)
        model = found[1] if found else ""
    try:
        features = describe_host(brief=True)
    except Error as problem:
        features = problem.message
    count = usable_cpus()
    names = [platform.system(), platform.machine(), model or platform.processor(), features]
    return f"{', '.join(name for name in names if name)}; {count} CPU{'s' if count > 1 else ''}"


def options_text(compilation: Compilation) -> str:
    """Return the level of optimisation, and the options that differ from their defaults."""
    options = compilation.options
    words = [f"-O{options.opt}"]
    for option in fields(options):
        value: Any = getattr(options, option.name)
        if option.name != "opt" and value != option.default and value not in (None, (), []):
            words.append(f"{option.name}={short_repr(value)}")
    return " ".join(words)


def _date() -> str:
    seconds = os.environ.get("SOURCE_DATE_EPOCH", "")
    moment = datetime.fromtimestamp(int(seconds), UTC) if seconds.isdecimal() else datetime.now(UTC)
    return f"{moment:%Y-%m-%d %H:%M} UTC"

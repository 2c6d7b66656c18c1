"""The version. The build and the command line read it from this file."""

from __future__ import annotations

import re

__version__ = "0.1.0"


def release() -> tuple[int, int, int]:
    """Return major, minor and patch number of the version, without what follows them, such as `rc1` or `+local`."""
    numbers = re.match(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?", __version__)
    assert numbers is not None
    major, minor, patch = (int(n or 0) for n in numbers.groups())
    return major, minor, patch

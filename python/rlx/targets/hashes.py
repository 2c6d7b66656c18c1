"""SHA-256 of files and of cache keys."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from rlx.support.errors import Error


def fingerprint(*parts: str | bytes) -> str:
    """Return the SHA-256 over all parts and their lengths, so that ``"ab", "c"`` and ``"a", "bc"`` differ."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def check_sha256(data: Any, expected: str, name: str) -> None:
    """Check that the SHA-256 of a file is the expected one.

    Raises:
        Error: The SHA-256 differs, or `expected` is not a SHA-256.
    """
    if not isinstance(expected, str) or not re.fullmatch(r"[0-9a-fA-F]{64}", expected):
        raise Error(f"a SHA-256 has 64 hexadecimal digits, got {expected!r}", hint=f"sha256sum {name} prints it")
    actual = hashlib.sha256(data).hexdigest()
    if actual != expected.lower():
        raise Error(f"{name} is another file than expected: its SHA-256 is {actual}, not {expected.lower()}")

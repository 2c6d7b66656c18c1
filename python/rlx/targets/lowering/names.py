"""Unique names in the language of a lowering, similar to the names in the graph."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable


def scope_words(scope: str, longest: int) -> str:
    """Return the innermost names of the scope of an op that fit, joined by `_`: `encoder/block0/query` as `block0_query`.

    Args:
        scope: The scope, as `rlx.ir.location.scope_of` returns it. It may have any characters.
        longest: The greatest number of characters. A single name may be longer.
    """
    words = [word for part in scope.split("/") if (word := re.sub(r"[^0-9A-Za-z]+", "_", part).strip("_"))]
    while len(words) > 1 and len("_".join(words)) > longest:
        words = words[1:]
    return "_".join(words)


class UniqueNames:
    """Names of one scope. Two names differ in more than case, because some become file names.

    Args:
        identifier: Returns a valid identifier for a name, or for a fallback if no character of the name is valid.
        taken: Names that are in use from the start.
    """

    def __init__(self, identifier: Callable[[str, str], str], taken: Iterable[str] = ()) -> None:
        self._identifier = identifier
        self._taken = {name.lower() for name in taken}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._taken

    def take(self, name: str, fallback: str = "x") -> str:
        """Return an unused identifier similar to a name, and mark it as used."""
        base = self._identifier(name, fallback)
        found, number = base, 2
        while found in self:
            found, number = f"{base}_{number}", number + 1
        self._taken.add(found.lower())
        return found

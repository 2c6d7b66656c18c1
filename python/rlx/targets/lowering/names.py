"""Names in the language of a lowering: like those of a graph, and none twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable


class UniqueNames:
    """Names of one scope. Two names differ in more than case: some become names of files.

    Args:
        identifier: Gives the identifier of the language for a name, or for a fallback where nothing of the name is left.
        taken: Names that are taken from the start.
    """

    def __init__(self, identifier: Callable[[str, str], str], taken: Iterable[str] = ()) -> None:
        self._identifier = identifier
        self._taken = {name.lower() for name in taken}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._taken

    def take(self, name: str, fallback: str = "x") -> str:
        """Return an identifier like a name, which is not taken, and take it."""
        base = self._identifier(name, fallback)
        found, number = base, 2
        while found in self:
            found, number = f"{base}_{number}", number + 1
        self._taken.add(found.lower())
        return found

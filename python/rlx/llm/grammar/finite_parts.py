"""`FiniteParts`: the parts of a grammar or a schema that have a text of finite length."""

from __future__ import annotations

from collections.abc import Iterable


class FiniteParts:
    """Parts that are finite when enough of the parts that they use are.

    Each use is counted once, so that the time is linear in the size of the grammar.
    """

    def __init__(self) -> None:
        self._missing: list[int] = []  # the number of uses that must still become finite
        self._users: list[list[int]] = []

    def new(self, missing: int = 0) -> int:
        """Return the number of a new part, with `missing` uses that must be finite."""
        self._missing.append(missing)
        self._users.append([])
        return len(self._missing) - 1

    def use_one(self, user: int, parts: Iterable[int]) -> None:
        """Declare that a part also needs one of some parts."""
        choice = self.new(1)
        for part in parts:
            self._users[part].append(choice)
        self.use(user, choice)

    def use(self, user: int, part: int) -> None:
        """Declare that a part also needs another one."""
        self._missing[user] += 1
        self._users[part].append(user)

    def solve(self) -> None:
        """Find the finite parts."""
        waiting = [part for part, missing in enumerate(self._missing) if missing == 0]
        while waiting:
            for user in self._users[waiting.pop()]:
                self._missing[user] -= 1
                if self._missing[user] == 0:
                    waiting.append(user)

    def is_finite(self, part: int) -> bool:
        """Return whether a part has a text of finite length."""
        return self._missing[part] <= 0

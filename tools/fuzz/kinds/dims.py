"""Expressions of symbolic sizes: parsed, evaluated, printed and parsed again."""

from __future__ import annotations

import random
from typing import Any

from tools.fuzz.frame import Kind

_NAMES = ("a", "b", "batch", "seq", "n")
_OPERATORS = ("+", "-", "*", "*", "//", "%")


class Dims(Kind):
    name = "dims"
    suffix = ".txt"
    seconds = 10.0

    def make(self, rng: random.Random) -> bytes:
        text = _expression(rng, rng.choice((2, 3, 4, 6, 9)))
        if rng.random() < 0.1:
            text = rng.choice(("({})*({})", "({})//({})", "max({},{})", "-({})-({})")).format(text, text)
        if rng.random() < 0.05:
            text = "*".join(f"({text})" for _ in range(rng.randint(2, 40)))
        if rng.random() < 0.1:
            at = rng.randrange(len(text))
            text = text[:at] + rng.choice(("", "(", ")", "**", "9" * 300, "é", "\0", "max(", "-" * 50)) + text[at + 1 :]
        return text.encode()

    def attempt(self, data: bytes) -> Any:
        from rlx.ir.dims import dim

        text = data.decode()
        found = dim.parse(text)
        assert dim.parse(str(found)) == found, "reads otherwise when printed"
        again = (found + 1) * 2 - found // 3 + found % 5
        dim.same(again, found)
        dim.is_multiple_of(found, 4)
        bindings: dict[str, int] = dict.fromkeys(_NAMES, 3)
        value = dim.evaluate(found, bindings)
        assert dim.evaluate(dim.substitute(found, bindings), bindings) == value, "substitution changes the value"
        return found


def _expression(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(_NAMES) if rng.random() < 0.7 else str(rng.choice((0, 1, 2, 3, 8, 2**31, 2**63, 10**30)))
    left, right = _expression(rng, depth - 1), _expression(rng, depth - 1)
    if rng.random() < 0.15:
        return f"{rng.choice(('max', 'min'))}({left},{right})"
    return f"({left}{rng.choice(_OPERATORS)}{right})"


KIND = Dims()

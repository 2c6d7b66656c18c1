"""Names in C: a user's as near as may be, and none twice."""

from __future__ import annotations

import re

_WORDS = (
    "auto break case char const continue default do double else enum extern float for goto if inline int long register "
    "restrict return short signed sizeof static struct switch typedef union unsigned void volatile while "
    # What the emitted code and its headers use, and what C++ and headers of toolchains often define.
    "state params arena channel sums bool true false asm class new delete this template typename operator namespace and "
    "or not xor main errno abs exp log sin cos tan tanh sqrt pow round memcpy memset NULL NAN INFINITY I "
    "int8_t uint8_t int16_t uint16_t int32_t uint32_t int64_t uint64_t linux unix"
)
_KEYWORDS = frozenset(_WORDS.split())


def identifier(name: str, fallback: str = "x") -> str:
    """A name as an identifier of C, which is not a word of the language."""
    text = re.sub(r"[^0-9A-Za-z]+", "_", name).strip("_")[:40] or fallback
    if text[0].isdigit():
        text = f"{fallback}_{text}"
    return f"{text}_" if text in _KEYWORDS else text


class Names:
    """Names of one scope."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._taken

    def take(self, name: str, fallback: str = "x") -> str:
        """A name like this one that nobody has."""
        base = identifier(name, fallback)
        found, number = base, 2
        while found.lower() in self._taken:
            found, number = f"{base}_{number}", number + 1
        self._taken.add(found.lower())
        return found

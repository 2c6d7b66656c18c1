"""Mutations: bytes and tokens removed, duplicated, moved, replaced, nested, repeated."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

_TOKEN = re.compile(
    r'"(?:[^"\\\n]|\\.)*"|[%@#!^]?[A-Za-z_][\w.$-]*|%\d+|-?\d+(?:\.\d*(?:[eE][-+]?\d+)?)?|->|\s+|.', re.S
)
_OPEN, _CLOSE = "([{<", ")]}>"
_NUMBERS = (
    *("0", "1", "-1", "2", "7", "127", "128", "255", "65536", "2147483647", "2147483648", "4294967296"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "18446744073709551615"),
    *("99999999999999999999", "9" * 400, "0x7FC00000", "0xFFFFFFFFFFFFFFFF", "1e400", "-1e-400", "1.0e+308", "?"),
)


def tokens(text: str) -> list[str]:
    """Split a text into tokens. Joined, they are the text."""
    return _TOKEN.findall(text)


class Mutator:
    """Damages texts.

    Args:
        corpus: Texts to damage.
        words: Words for insertion: names of ops, types, attributes.
    """

    def __init__(self, corpus: Sequence[str], words: Sequence[str]):
        self.corpus, self.words = corpus, words
        self._ways: list[Callable[[list[str], random.Random], None]] = [
            self._delete, self._double, self._swap, self._word, self._word, self._number, self._number, self._splice,
            self._nest, self._repeat, self._junk, self._same_kind, self._same_kind, self._cut, self._lines,
        ]  # fmt: skip

    def text(self, rng: random.Random) -> str:
        """Return a text of the corpus with some damage."""
        parts = tokens(rng.choice(self.corpus))
        for _ in range(rng.choice((1, 1, 1, 1, 1, 2, 2, 3, 8))):
            if not parts:
                break
            rng.choice(self._ways)(parts, rng)
        text = "".join(parts)
        return self.characters(text, rng) if rng.random() < 0.1 else text

    @staticmethod
    def characters(text: str, rng: random.Random) -> str:
        """Remove, duplicate and replace single characters."""
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(text) + 1)
            new = rng.choice(("", "\0", "\x80", "\ud800", "é", "\\", '"', "\n", "<", "(", text[at - 1 : at] * 2))
            text = text[:at] + new + text[at + rng.randint(0, 2) :]
        return text

    # --- kinds of damage --------------------------------------------------------------------------

    def _delete(self, parts: list[str], rng: random.Random) -> None:
        at = rng.randrange(len(parts))
        del parts[at : at + rng.choice((1, 1, 1, 2, 5, 20))]

    def _double(self, parts: list[str], rng: random.Random) -> None:
        at, size = rng.randrange(len(parts)), rng.choice((1, 1, 3, 10, 40))
        parts[at:at] = parts[at : at + size]

    def _swap(self, parts: list[str], rng: random.Random) -> None:
        i, j = rng.randrange(len(parts)), rng.randrange(len(parts))
        parts[i], parts[j] = parts[j], parts[i]

    def _word(self, parts: list[str], rng: random.Random) -> None:
        parts[rng.randrange(len(parts))] = rng.choice(self.words)

    def _number(self, parts: list[str], rng: random.Random) -> None:
        found = [i for i, p in enumerate(parts) if p.lstrip("-")[:1].isdigit()]
        if found:
            at = rng.choice(found)
            size, rest = re.fullmatch(r"(-?[\d.]+)(.*)", parts[at], re.S).groups()  # type: ignore[union-attr]
            near = str(int(size) + rng.choice((-1, 1, 2))) if re.fullmatch(r"-?\d{1,300}", size) else "0"
            parts[at] = rng.choice((*_NUMBERS, near, near, near)) + rest

    def _same_kind(self, parts: list[str], rng: random.Random) -> None:
        """Replace one token by another of its kind in the text: a value, a string, a name."""
        at = rng.randrange(len(parts))
        others = [p for p in parts if p[:1] == parts[at][:1] and p != parts[at]]
        if others:
            parts[at] = rng.choice(others)

    def _splice(self, parts: list[str], rng: random.Random) -> None:
        other = tokens(rng.choice(self.corpus))
        start, size = rng.randrange(len(other)), rng.choice((1, 3, 10, 40, len(other)))
        at = rng.randrange(len(parts))
        parts[at : at + rng.choice((0, 0, 1, size))] = other[start : start + size]

    def _nest(self, parts: list[str], rng: random.Random) -> None:
        """Put brackets around a token, sometimes very many."""
        which, depth = rng.randrange(4), rng.choice((1, 2, 5, 50, 400, 20000))
        at = rng.randrange(len(parts))
        before = rng.choice(("", "", "tuple", "tensor", "array", "loc", "fused", "affine_map", "dense", "vector", "-"))
        closing = _CLOSE[which] * depth if rng.random() < 0.8 else ""
        parts[at] = (before + _OPEN[which]) * depth + parts[at] + closing

    def _repeat(self, parts: list[str], rng: random.Random) -> None:
        at, size = rng.randrange(len(parts)), rng.choice((1, 2, 4, 10))
        parts[at:at] = parts[at : at + size] * rng.choice((2, 10, 100, 3000))

    def _junk(self, parts: list[str], rng: random.Random) -> None:
        parts[rng.randrange(len(parts))] = rng.choice(
            ("\0", '"\\FF"', '"\\00"', "é", "\ud800", "\x7f", "//", '"', "\\", "x" * 70000, '"' + "x" * 70000 + '"')
        )

    def _cut(self, parts: list[str], rng: random.Random) -> None:
        del parts[rng.randrange(len(parts)) :]

    def _lines(self, parts: list[str], rng: random.Random) -> None:
        """Move or duplicate a line, so that values are used before their definition or defined twice."""
        lines = "".join(parts).split("\n")
        line = lines.pop(rng.randrange(len(lines))) if rng.random() < 0.5 else rng.choice(lines)
        lines.insert(rng.randrange(len(lines) + 1), line)
        parts[:] = tokens("\n".join(lines))


def damaged_bytes(data: bytes, rng: random.Random, others: Sequence[bytes] = ()) -> bytes:
    """Return bytes with bits flipped, and runs removed, duplicated, set to extreme values, or taken from other data."""
    result = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3, 8, 30))):
        at, size = rng.randrange(len(result) + 1), rng.choice((1, 1, 2, 4, 8, 64))
        match rng.randrange(7):
            case 0 if at < len(result):
                result[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(result):
                result[at] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF, rng.randrange(256)))
            case 2:
                del result[at : at + size]
            case 3:
                result[at:at] = result[at : at + size]
            case 4:
                result[at : at + size] = rng.randbytes(size)
            case 5 if others:
                other = rng.choice(others)
                start = rng.randrange(len(other) + 1)
                result[at : at + size] = other[start : start + size]
            case 6 if rng.random() < 0.2:
                del result[at:]
    return bytes(result)

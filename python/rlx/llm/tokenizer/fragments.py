"""Recognition of special tokens in a text."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Sequence
from typing import Protocol

from rlx.llm.tokenizer.vocabulary import HIDDEN, TokenKind, Vocabulary

Fragment = str | int
_WHITE = " \t\n\v\f\r"  # of `isspace` in the C locale


class SpecialTokens:
    """Splits texts at tokens that are recognised as a whole.

    The longest token comes first, wherever it is in the text, then the next one. Equally long ones are taken from left
    to right. Source of the order: llama.cpp, `tokenizer_st_partition`.

    Args:
        ids: The id of each token.
        left: Tokens that absorb the white space in front of them.
        right: Tokens that absorb the white space after them.
    """

    def __init__(self, ids: dict[str, int], left: Iterable[int] = (), right: Iterable[int] = ()):
        self._ids = ids
        self._left, self._right = frozenset(left), frozenset(right)
        # The lengths of the tokens that have the same first two characters, or the same only one: longest first.
        lengths: dict[str, set[int]] = {}
        for token in ids:
            lengths.setdefault(token[:2], set()).add(len(token))
        self._lengths = {start: sorted(found, reverse=True) for start, found in lengths.items()}
        starts = "".join(re.escape(c) for c in sorted({token[0] for token in ids}))
        self._start = re.compile(f"[{starts}]") if starts else None

    def split(self, text: str) -> list[Fragment]:
        """Return the text as a list of ids and of the texts between them, none empty."""
        result: list[Fragment] = []
        position = 0
        for start, end, token_id in self._matches(text):
            between = text[position:start]
            if token_id in self._left:
                between = between.rstrip(_WHITE)
            result += (between, token_id)
            position = end
            if token_id in self._right:
                while position < len(text) and text[position] in _WHITE:
                    position += 1
        result.append(text[position:])
        return [fragment for fragment in result if fragment != ""]

    def _matches(self, text: str) -> list[tuple[int, int, int]]:
        """Return start, end and id of each token in a text, in their order."""
        if self._start is None:
            return []
        found: list[tuple[int, int, int]] = []
        overlap = False
        for match in self._start.finditer(text):
            start = match.start()
            length = self._longest(text, start, len(text) - start)
            if length:
                overlap = overlap or bool(found and found[-1][1] > start)
                found.append((start, start + length, self._ids[text[start : start + length]]))
        return self._disjoint(text, found) if overlap else found

    def _longest(self, text: str, start: int, limit: int) -> int:
        """Return the length of the longest token of at most `limit` characters at a position, or 0."""
        for key in (text[start : start + 2], text[start]):
            for length in self._lengths.get(key, ()):
                if length <= limit and text[start : start + length] in self._ids:
                    return length
        return 0

    def _disjoint(self, text: str, found: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        queue = [(start - end, start) for start, end, _ in found]
        heapq.heapify(queue)
        covered = bytearray(len(text))
        result: list[tuple[int, int, int]] = []
        while queue:
            length, start = heapq.heappop(queue)
            end = start - length
            # No token before was shorter, so one that overlaps this one covers its first or its last character.
            if not covered[start] and not covered[end - 1]:
                covered[start:end] = b"\1" * -length
                result.append((start, end, self._ids[text[start:end]]))
            elif not covered[start] and (shorter := self._longest(text, start, -length - 1)):
                heapq.heappush(queue, (-shorter, start))
        return sorted(result)


class FragmentModel(Protocol):
    """Encodes text that has no special tokens."""

    def encode(self, text: str, starts: bool, ends: bool) -> list[int]:
        """Return the ids of a text.

        Args:
            text: The text between two special tokens.
            starts: It is the start of a text, where some models put a space.
            ends: It is the end of a text, where some models remove spaces.
        """
        ...


class FragmentEncoder:
    """Encodes texts in which special tokens are recognised first.

    Args:
        vocabulary: The tokens.
        model: Encodes the text between special tokens.
        left: Tokens that absorb the white space in front of them.
        right: Tokens that absorb the white space after them.
        inner: Tokens that are a part of the text around them. A text starts after other special tokens, and ends
            before them.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        model: FragmentModel,
        *,
        left: Sequence[int] = (),
        right: Sequence[int] = (),
        inner: Sequence[int] = (),
    ):
        def special(*kinds: TokenKind) -> SpecialTokens:
            ids = {vocabulary.tokens[i]: i for i in vocabulary.of_kind(*kinds) if vocabulary.tokens[i]}
            return SpecialTokens(ids, left, right)

        self._model, self._inner = model, frozenset(inner)
        self._all = special(TokenKind.USER_DEFINED, *HIDDEN)
        self._user_defined = special(TokenKind.USER_DEFINED)

    def encode(self, text: str, parse_special: bool) -> list[int]:
        """Return the ids of a text. Without `parse_special`, control tokens in it are plain text."""
        fragments = (self._all if parse_special else self._user_defined).split(text)
        result: list[int] = []
        for i, fragment in enumerate(fragments):
            starts = i == 0 or (isinstance(fragments[i - 1], int) and fragments[i - 1] not in self._inner)
            if isinstance(fragment, int):
                if starts and fragment in self._inner:  # the text starts with this token
                    result += self._model.encode("", True, False)
                result.append(fragment)
                continue
            ends = i == len(fragments) - 1 or fragments[i + 1] not in self._inner
            result += self._model.encode(fragment, starts, ends)
        return result

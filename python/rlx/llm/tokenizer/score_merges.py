"""SentencePiece's BPE, which merges the pair whose result has the highest score.

The package `tokenizers` cannot express it: there each pair has a rank, while here all pairs with the same result have
one score, and equal scores are merged from left to right.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Sequence
from itertools import pairwise

from rlx.llm.tokenizer.charsmap import TextNormaliser
from rlx.llm.tokenizer.vocabulary import MATCHABLE, METASPACE, TokenKind, Vocabulary
from rlx.support.errors import Error
from rlx.support.short import short_repr

_WORD = re.compile(f"{METASPACE}*[^{METASPACE}]*")
_LONGEST_CACHED, _LARGEST_CACHE = 64, 50_000


class ScoreMergeModel:
    """SentencePiece's BPE for text that has no special tokens.

    Args:
        vocabulary: The tokens.
        scores: The score of each token.
        normaliser: Normalises a text first. It may put a space in front of it, also after a special token.
        unknown: The id of a character without a token and without byte tokens.
        origin: The file, for messages.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        scores: Sequence[float],
        *,
        normaliser: TextNormaliser,
        unknown: int | None,
        origin: str,
    ):
        self._ids = {vocabulary.tokens[i]: i for i in vocabulary.of_kind(*MATCHABLE)}
        self._scores = {token: -scores[i] for token, i in self._ids.items()}  # negative: a heap has the smallest first
        self._bytes = vocabulary.byte_tokens()
        self._normaliser, self._unknown, self._origin = normaliser, unknown, origin
        # If no token has a space inside, no merge crosses the start of a word, and words are independent.
        normal = (vocabulary.tokens[i] for i in vocabulary.of_kind(TokenKind.NORMAL, TokenKind.UNUSED))
        self._splits = all(_WORD.fullmatch(token) for token in normal)
        self._known: dict[str, list[int]] = {}

    def encode(self, text: str, starts: bool, ends: bool) -> list[int]:
        """Return the ids of a text.

        Raises:
            Error: The vocabulary has no token for a character of the text.
        """
        text = self._normaliser.normalise(text, starts, ends)
        if not self._splits:
            return self._fused(self._word(text))
        return self._fused([i for word in _WORD.findall(text) if word for i in self._cached(word)])

    def _fused(self, ids: list[int]) -> list[int]:
        """Return the ids with adjacent unknown ones replaced by one."""
        unknown = self._unknown
        if unknown is None or unknown not in ids:
            return ids
        return [token_id for i, token_id in enumerate(ids) if token_id != unknown or i == 0 or ids[i - 1] != unknown]

    def _cached(self, word: str) -> list[int]:
        found = self._known.get(word)
        if found is None:
            found = self._word(word)
            if len(word) <= _LONGEST_CACHED:
                if len(self._known) >= _LARGEST_CACHE:
                    self._known.clear()
                self._known[word] = found
        return found

    def _word(self, word: str) -> list[int]:
        return [token_id for symbol in self._merged(word) for token_id in self._symbol(symbol)]

    def _symbol(self, symbol: str) -> list[int]:
        token_id = self._ids.get(symbol)
        if token_id is not None:
            return [token_id]
        ids = [self._bytes[byte] for byte in symbol.encode()]
        known = [i for i in ids if i is not None]
        if len(known) == len(ids):
            return known
        if self._unknown is None:
            raise Error(
                f"{self._origin}: the vocabulary has no token for {short_repr(symbol)}, no byte tokens for it,"
                " and no unknown token"
            )
        return [self._unknown]

    def _merged(self, word: str) -> list[str]:
        """Return the symbols of a word after all merges."""
        symbols, scores = list(word), self._scores
        after = [*range(1, len(symbols)), -1]
        before = list(range(-1, len(symbols) - 1))
        queue: list[tuple[float, int, int, str]] = []
        for i, (one, other) in enumerate(pairwise(symbols)):
            if (score := scores.get(one + other)) is not None:
                queue.append((score, i, i + 1, one + other))
        heapq.heapify(queue)
        while queue:
            _, left, right, text = heapq.heappop(queue)
            # An entry is outdated if one of its symbols was merged since.
            if not symbols[left] or not symbols[right] or len(symbols[left]) + len(symbols[right]) != len(text):
                continue
            symbols[left], symbols[right] = text, ""
            after[left] = after[right]
            if after[right] >= 0:
                before[after[right]] = left
            for one, other in ((before[left], left), (left, after[left])):
                if one >= 0 <= other and (score := scores.get(symbols[one] + symbols[other])) is not None:
                    heapq.heappush(queue, (score, one, other, symbols[one] + symbols[other]))
        return [symbol for symbol in symbols if symbol]

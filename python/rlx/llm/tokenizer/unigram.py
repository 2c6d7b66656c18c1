"""SentencePiece's unigram model: the split of a text whose tokens have the highest sum of scores."""

from __future__ import annotations

from collections.abc import Sequence

from rlx.llm.tokenizer.charsmap import TextNormaliser
from rlx.llm.tokenizer.library import converted, tokenizers
from rlx.llm.tokenizer.vocabulary import MATCHABLE, TokenKind, Vocabulary


class UnigramModel:
    """The unigram model for text that has no special tokens.

    Args:
        vocabulary: The tokens.
        scores: The log-probability of each token.
        normaliser: Normalises a text first.
        unknown: The id of characters without a token.
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
        self._normaliser, self._unknown, self._origin = normaliser, unknown, origin
        self._bytes = vocabulary.byte_tokens()
        # Other tokens get names that no text matches, because a normalised text has no spaces.
        usable = [kind in MATCHABLE for kind in vocabulary.kinds]
        least = min((score for score, is_usable in zip(scores, usable, strict=True) if is_usable), default=0.0)
        entries = [
            (vocabulary.tokens[i], 0.0 if vocabulary.kinds[i] == TokenKind.USER_DEFINED else scores[i])
            if is_usable
            else (f" {i}", max(least, 0.0))
            for i, is_usable in enumerate(usable)
        ]
        library = tokenizers()
        with converted(f"{origin}: the scores do not fit the vocabulary"):
            self._tokenizer = library.Tokenizer(library.models.Unigram(entries, unk_id=unknown, byte_fallback=False))

    def encode(self, text: str, starts: bool, ends: bool) -> list[int]:
        """Return the ids of a text. A character without a token becomes its byte tokens, or else the unknown token.

        Raises:
            Error: The vocabulary has no token for a character of the text.
        """
        text = self._normaliser.normalise(text, starts, ends)
        if not text:
            return []
        with converted(f"{self._origin}: the text cannot be encoded"):
            encoding = self._tokenizer.encode(text, add_special_tokens=False)
        ids: list[int] = encoding.ids
        if self._unknown not in ids or None in self._bytes:
            return ids
        result: list[int] = []
        for token_id, (start, end) in zip(ids, encoding.offsets, strict=True):
            if token_id == self._unknown:
                result += [i for byte in text[start:end].encode() if (i := self._bytes[byte]) is not None]
            else:
                result.append(token_id)
        return result

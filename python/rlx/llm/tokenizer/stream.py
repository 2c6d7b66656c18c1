"""`StreamDecoder`: the text of tokens that arrive one at a time."""

from __future__ import annotations

import codecs

from rlx.llm.tokenizer.vocabulary import HIDDEN, Vocabulary


class StreamDecoder:
    """Decodes tokens one at a time, and returns only whole characters.

    The returned texts joined are the text of all tokens: `Tokenizer.decode(ids, skip_special_tokens=True)`. Bytes that
    no continuation can complete to a character become U+FFFD. Control tokens and unknown tokens have no text.

    Args:
        vocabulary: The tokens.
        keeps_space: Keep the space of a first token such as `▁word`, because the text continues another one.
    """

    def __init__(self, vocabulary: Vocabulary, *, keeps_space: bool = False):
        self._vocabulary = vocabulary
        self._strips = vocabulary.starts_with_space and not keeps_space
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """Return the characters that a token completes. Ids after the last token, of a padded embedding, have none."""
        kinds = self._vocabulary.kinds
        if token_id >= len(kinds) or kinds[token_id] in HIDDEN:
            return ""
        piece = self._vocabulary.piece(token_id)
        if self._strips and piece:
            piece, self._strips = piece.removeprefix(b" "), False
        return self._decoder.decode(piece)

    def flush(self) -> str:
        """Return the text of the bytes that are left at the end: "" or U+FFFD. The decoder can then be used again."""
        rest = self._decoder.decode(b"", True)
        self._decoder.reset()
        return rest

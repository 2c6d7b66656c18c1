"""BERT's WordPiece: the longest tokens from the left of each word."""

from __future__ import annotations

from rlx.llm.tokenizer.library import converted, tokenizers
from rlx.llm.tokenizer.vocabulary import HIDDEN, METASPACE, Vocabulary

_LONGEST_WORD = 100  # characters; BERT replaces longer words by the unknown token


class WordPieceModel:
    """WordPiece for text that has no special tokens.

    In GGUF files, the first token of a word starts with ▁, and the other ones have no mark.

    Args:
        vocabulary: The tokens.
        unknown: The id of a word that the tokens cannot form.
        lowers: Letters become small ones.
        strips_accents: Combining marks are removed.
        origin: The file, for messages.
    """

    def __init__(self, vocabulary: Vocabulary, unknown: int, lowers: bool, strips_accents: bool, origin: str):
        self._origin = origin
        ids: dict[str, int] = {}
        for i, token in enumerate(vocabulary.tokens):
            if vocabulary.kinds[i] not in HIDDEN:
                starts = token.startswith(METASPACE) and token != METASPACE
                ids[token[1:] if starts else f"##{token}"] = i
        ids[vocabulary.tokens[unknown]] = unknown
        library = tokenizers()
        with converted(f"{origin}: the vocabulary does not fit WordPiece"):
            model = library.models.WordPiece(
                ids, unk_token=vocabulary.tokens[unknown], max_input_chars_per_word=_LONGEST_WORD
            )
            self._tokenizer = library.Tokenizer(model)
            self._tokenizer.normalizer = library.normalizers.BertNormalizer(
                clean_text=True, handle_chinese_chars=True, strip_accents=strips_accents, lowercase=lowers
            )
            self._tokenizer.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()

    def encode(self, text: str, starts: bool, ends: bool) -> list[int]:
        """Return the ids of a text."""
        del starts, ends
        with converted(f"{self._origin}: the text cannot be encoded"):
            ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

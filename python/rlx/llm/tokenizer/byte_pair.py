"""Byte-pair encoding by ranked merges, computed by the package `tokenizers`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from rlx.llm.tokenizer.byte_level import CHARACTER_OF
from rlx.llm.tokenizer.library import converted, tokenizers
from rlx.llm.tokenizer.pre_tokenizers import PreTokenizer
from rlx.llm.tokenizer.vocabulary import HIDDEN, METASPACE, Vocabulary
from rlx.native import native
from rlx.support.errors import Error
from rlx.support.short import short_repr

Merge = tuple[str, str]


def _merge_problem(lines: Sequence[str], ids: dict[str, int], where: str) -> Error | None:
    """Return the error for the first line that is not a merge of tokens of the vocabulary; None if all are."""
    for i, line in enumerate(lines):
        pairs: list[Merge] | None = native().split_merges([line])
        if pairs is None:
            return Error(f"{where}[{i}]: expected two tokens with a space between them, got {short_repr(line)}")
        missing = next((token for token in (*pairs[0], "".join(pairs[0])) if token not in ids), None)
        if missing is not None:
            return Error(f"{where}[{i}] is {short_repr(line)}, but {short_repr(missing)} is not in the vocabulary")
    return None


class BytePairModel:
    """Byte-pair encoding of text that has no special tokens.

    Args:
        vocabulary: The tokens.
        merges: The pairs of tokens that are merged, with a space between them, most important first. Of equal ones, the first
            counts.
        pre: The regexes that split a text first.
        origin: The file, for messages.

    Raises:
        Error: A merge has another form, or one of its tokens or their concatenation is not in the vocabulary.
    """

    def __init__(self, vocabulary: Vocabulary, merges: Sequence[str], pre: PreTokenizer, origin: str):
        self._origin, self._is_raw = origin, pre.is_raw
        # There may be hundreds of thousands of merges, so that the vocabulary is searched for them only after a failure.
        pairs: list[Merge] | None = native().split_merges(merges)
        try:
            if pairs is None:
                raise Error(f"{origin}: the merges are not pairs of tokens")
            self._tokenizer = _tokenizer(vocabulary, dict.fromkeys(pairs), pre, origin)
        except Error as problem:
            raise _merge_problem(merges, vocabulary.ids, f"{origin}: tokenizer.ggml.merges") or problem from None
        # Bytes that no token represents. Most vocabularies have all, and then no text has to be checked.
        self._missing = _missing_bytes(vocabulary, pre.is_raw)

    def encode(self, text: str, starts: bool, ends: bool) -> list[int]:
        """Return the ids of a text.

        Raises:
            Error: The vocabulary has no token for a byte of the text.
        """
        del starts, ends
        if self._missing and (lost := self._missing.intersection(text.encode())):
            bytes_text = ", ".join(f"0x{byte:02X}" for byte in sorted(lost))
            raise Error(f"{self._origin}: the vocabulary has no tokens for the bytes {bytes_text} of the text")
        if self._is_raw:
            text = text.replace(" ", METASPACE)
        with converted(f"{self._origin}: the text cannot be encoded"):
            ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids


def _missing_bytes(vocabulary: Vocabulary, is_raw: bool) -> set[int]:
    if is_raw:
        missing = {byte for byte, token_id in enumerate(vocabulary.byte_tokens()) if token_id is None}
        return {byte for byte in missing if byte >= 0x80 or chr(byte) not in vocabulary.ids}
    return {byte for byte, character in CHARACTER_OF.items() if character not in vocabulary.ids}


def _tokenizer(vocabulary: Vocabulary, merges: dict[Merge, None], pre: PreTokenizer, origin: str) -> Any:
    library = tokenizers()
    # Control tokens are left out, so that no text becomes one by merging, unless merges build on them.
    usable = dict(vocabulary.ids)
    if hidden := vocabulary.of_kind(*HIDDEN):
        names = {vocabulary.tokens[i] for i in hidden}
        used = names.intersection(chain.from_iterable(merges))
        for token in names - used:
            if not any((token[:i], token[i:]) in merges for i in range(1, len(token))):
                del usable[token]
    with converted(f"{origin}: the merges do not fit the vocabulary"):
        model = library.models.BPE(
            vocab=usable, merges=list(merges), ignore_merges=pre.takes_whole, byte_fallback=pre.is_raw
        )
        result = library.Tokenizer(model)
        steps = [
            library.pre_tokenizers.Split(library.Regex(regex), behavior="isolated", invert=False)
            for regex in pre.regexes
        ]
        if not pre.is_raw:
            steps.append(library.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
        result.pre_tokenizer = library.pre_tokenizers.Sequence(steps)
    return result

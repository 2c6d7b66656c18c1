"""Byte-pair encoding by ranked merges, computed by the package `tokenizers`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from rlx.llm.tokenizer.byte_level import CHARACTER_OF
from rlx.llm.tokenizer.library import converted, tokenizers
from rlx.llm.tokenizer.pre_tokenizers import PreTokenizer
from rlx.llm.tokenizer.vocabulary import HIDDEN, METASPACE, Vocabulary
from rlx.support.errors import Error
from rlx.support.short import short_repr

Merge = tuple[str, str]


def parsed_merges(lines: Sequence[str], ids: dict[str, int], where: str) -> list[Merge]:
    """Return merges from lines of two tokens with a space between them. Of equal ones, the first counts.

    Args:
        lines: The merges, most important first.
        ids: The vocabulary.
        where: The file and the name of the list, for messages.

    Raises:
        Error: A line has another form, or one of its tokens or their concatenation is not in the vocabulary.
    """
    # There may be hundreds of thousands: the usual case is in loops of C.
    merges: list[Any] = [tuple(line.split(" ", 1)) if line[:1] != " " else _split(line) for line in lines]
    are_pairs = set(map(len, merges)) <= {2}
    if not are_pairs or not all(map(ids.__contains__, chain(chain.from_iterable(merges), map("".join, merges)))):
        _check_merges(lines, ids, where)
    return list(dict.fromkeys(merges))


def _split(line: str) -> tuple[str, ...]:
    if line[:1] != " ":
        return tuple(line.split(" ", 1))
    first, *second = line[1:].split(" ", 1)
    return " " + first, *second


def _check_merges(lines: Sequence[str], ids: dict[str, int], where: str) -> None:
    """Raise the error for the first line that is not a merge."""
    for i, line in enumerate(lines):
        pair = _split(line)
        if len(pair) != 2 or not pair[1]:
            raise Error(f"{where}[{i}]: expected two tokens with a space between them, got {short_repr(line)}")
        missing = next((token for token in (*pair, "".join(pair)) if token not in ids), None)
        if missing is not None:
            raise Error(f"{where}[{i}] is {short_repr(line)}, but {short_repr(missing)} is not in the vocabulary")


class BytePairModel:
    """Byte-pair encoding of text that has no special tokens.

    Args:
        vocabulary: The tokens.
        merges: The pairs that are merged, most important first.
        pre: The regexes that split a text first.
        origin: The file, for messages.
    """

    def __init__(self, vocabulary: Vocabulary, merges: list[Merge], pre: PreTokenizer, origin: str):
        self._origin, self._is_raw = origin, pre.is_raw
        self._tokenizer = _tokenizer(vocabulary, merges, pre, origin)
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


def _tokenizer(vocabulary: Vocabulary, merges: list[Merge], pre: PreTokenizer, origin: str) -> Any:
    library = tokenizers()
    # Control tokens are left out, so that no text becomes one by merging, unless merges build on them.
    usable = dict(vocabulary.ids)
    if hidden := vocabulary.of_kind(*HIDDEN):
        names = {vocabulary.tokens[i] for i in hidden}
        used = names.intersection(chain(chain.from_iterable(merges), map("".join, merges)))
        for token in names - used:
            del usable[token]
    with converted(f"{origin}: the merges do not fit the vocabulary"):
        model = library.models.BPE(vocab=usable, merges=merges, ignore_merges=pre.takes_whole, byte_fallback=pre.is_raw)
        result = library.Tokenizer(model)
        steps = [
            library.pre_tokenizers.Split(library.Regex(regex), behavior="isolated", invert=False)
            for regex in pre.regexes
        ]
        if not pre.is_raw:
            steps.append(library.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
        result.pre_tokenizer = library.pre_tokenizers.Sequence(steps)
    return result

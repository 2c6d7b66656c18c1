"""Tokenizers from `tokenizer.json`, computed by the package `tokenizers`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlx.llm.tokenizer.folder_settings import FolderSettings
from rlx.llm.tokenizer.library import converted, tokenizers
from rlx.llm.tokenizer.tokenizer import Tokenizer
from rlx.llm.tokenizer.vocabulary import (
    METASPACE,
    TokenKind,
    Vocabulary,
    byte_level_piece,
    continuation_piece,
    is_byte_token,
    plain_piece,
)
from rlx.support.errors import Error
from rlx.support.files import parsed_json, read_bytes
from rlx.support.short import short_repr

_LARGEST = 64 << 20
_LARGEST_ID = 1 << 24

Piece = Callable[[str], bytes]


class HubEncoder:
    """Encodes texts by a `tokenizer.json`.

    Args:
        text: The file.
        origin: Its name, for messages.
    """

    def __init__(self, text: str, origin: str):
        self._origin = origin
        library = tokenizers()
        with converted(f"cannot read {origin}"):
            self.library: Any = library.Tokenizer.from_str(text)
            self.library.no_padding()
            self.library.no_truncation()
            # The flag to recognise control tokens belongs to a tokenizer, which threads share. So there are two.
            self._plain: Any = library.Tokenizer.from_str(text)
            self._plain.no_padding()
            self._plain.no_truncation()
            self._plain.encode_special_tokens = True

    def encode(self, text: str, parse_special: bool) -> list[int]:
        """Return the ids of a text. Without `parse_special`, control tokens in it are plain text."""
        with converted(f"{self._origin}: the text cannot be encoded"):
            chosen = self.library if parse_special else self._plain
            ids: list[int] = chosen.encode(text, add_special_tokens=False).ids
        return ids

    def affixes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the ids that the post-processor puts in front of a text and after it."""
        with converted(f"{self._origin}: the text cannot be encoded"):
            text = "a"
            bare: list[int] = self.library.encode(text, add_special_tokens=False).ids
            full: list[int] = self.library.encode(text, add_special_tokens=True).ids
        for start in range(len(full) - len(bare) + 1):
            if full[start : start + len(bare)] == bare:
                return tuple(full[:start]), tuple(full[start + len(bare) :])
        raise Error(f"{self._origin}: the post-processor changes the tokens of a text, which is not supported")


def hub_tokenizer(path: Path, settings: FolderSettings) -> Tokenizer:
    """Return the tokenizer of a `tokenizer.json`.

    Raises:
        Error: The file is damaged, or its decoder is not supported.
    """
    origin = str(path)
    content = read_bytes(path, _LARGEST)
    data = parsed_json(content, origin)
    if not isinstance(data, dict) or not isinstance(data.get("model"), dict):
        raise Error(f"cannot read {origin}: expected an object with an entry 'model'")
    encoder = HubEncoder(content.decode(), origin)
    tokens, kinds = _tokens(encoder.library, data, origin)
    piece_of, starts_with_space = _decoding(data.get("decoder"), origin)
    vocabulary = Vocabulary(tokens, kinds, piece_of, starts_with_space=starts_with_space)
    prefix, suffix = encoder.affixes()
    vocabulary = with_settings(replace(vocabulary, prefix=prefix, suffix=suffix), settings)
    return Tokenizer(vocabulary, encoder, templates=settings.templates, origin=str(settings.folder))


def with_settings(vocabulary: Vocabulary, settings: FolderSettings) -> Vocabulary:
    """Return a vocabulary with the special tokens that a folder names.

    Raises:
        Error: The vocabulary does not have one of them.
    """

    def token_id(name: str, text: str | None, default: int | None) -> int | None:
        if text is None:
            return default
        if text not in vocabulary.ids:
            raise Error(f"{settings.folder}: the vocabulary does not have the {name}_token {short_repr(text)}")
        return vocabulary.ids[text]

    bos = token_id("bos", settings.bos, vocabulary.bos)
    eos = token_id("eos", settings.eos, vocabulary.eos)
    ends = {*settings.ends, *(() if eos is None else (eos,))}
    if beyond := [i for i in ends if i >= len(vocabulary.tokens)]:
        raise Error(
            f"{settings.folder}: expected eos_token_id to be an id from 0 to {len(vocabulary.tokens) - 1}, got {beyond[0]}"
        )
    prefix, suffix = vocabulary.prefix, vocabulary.suffix
    if bos is not None and settings.adds_bos is not None and prefix in ((), (bos,)):
        prefix = (bos,) if settings.adds_bos else ()
    if eos is not None and settings.adds_eos is not None and suffix in ((), (eos,)):
        suffix = (eos,) if settings.adds_eos else ()
    return replace(vocabulary.with_ends(ends, {}), bos=bos, eos=eos, prefix=prefix, suffix=suffix)


def _tokens(library: Any, data: dict[str, Any], origin: str) -> tuple[list[str], bytes]:
    """Return the text and the kind of each id. An id without a token has no text."""
    ids: dict[str, int] = library.get_vocab(with_added_tokens=True)
    if not ids:
        raise Error(f"{origin} has no tokens")
    size = max(ids.values()) + 1
    if size > _LARGEST_ID:
        raise Error(f"{origin}: expected ids below {_LARGEST_ID}, got {size - 1}")
    tokens = [""] * size
    kinds = bytearray([TokenKind.UNUSED]) * size
    has_bytes = _has_bytes(data)
    for token, i in ids.items():
        tokens[i], kinds[i] = token, TokenKind.BYTE if has_bytes and is_byte_token(token) else TokenKind.NORMAL
    unknown = data["model"].get("unk_token")
    if isinstance(unknown, str) and unknown in ids:
        kinds[ids[unknown]] = TokenKind.UNKNOWN
    for i, token in library.get_added_tokens_decoder().items():
        kinds[i] = TokenKind.CONTROL if token.special else TokenKind.USER_DEFINED
    return tokens, bytes(kinds)


def _has_bytes(data: dict[str, Any]) -> bool:
    names = {step.get("type") for step in _steps(data.get("decoder"))}
    return data["model"].get("byte_fallback") is True or "ByteFallback" in names


def _steps(decoder: Any) -> Iterator[dict[str, Any]]:
    """Yield the steps of a decoder, those of a sequence one by one."""
    if isinstance(decoder, dict) and decoder.get("type") == "Sequence":
        for step in decoder.get("decoders") or ():
            yield from _steps(step)
    elif isinstance(decoder, dict):
        yield decoder


def _decoding(decoder: Any, origin: str) -> tuple[Piece, bool]:
    """Return the function from a token's text to bytes, and whether the first token loses a space."""
    steps = [*_steps(decoder)]
    if not steps:  # then `tokenizers` separates tokens by spaces
        return (lambda token: f" {token}".encode()), True
    piece_of: Piece = plain_piece
    strips = False
    for step in steps:
        match step:
            case {"type": "ByteLevel"}:
                piece_of = byte_level_piece
            case {"type": "Metaspace", "replacement": str(mark)}:
                piece_of = _replacing(mark, " ")
                strips = step.get("prepend_scheme") != "never" and step.get("add_prefix_space") is not False
            case {"type": "Replace", "pattern": {"String": str(mark)}, "content": str(content)}:
                piece_of = _replacing(mark, content)
            case {"type": "Strip", "content": " ", "start": int(start)}:
                strips = strips or start > 0
            case {"type": "WordPiece", "prefix": "##"}:
                piece_of, strips = continuation_piece, True
            case {"type": "BPEDecoder", "suffix": str(suffix)}:
                piece_of = _replacing(suffix, " ")
            case {"type": "ByteFallback" | "Fuse"}:
                pass
            case _:
                raise Error(f"{origin}: the decoder {short_repr(json.dumps(step))} is not supported")
    return piece_of, bool(strips)


def _replacing(mark: str, content: str) -> Piece:
    if mark == METASPACE and content == " ":
        return lambda token: token.replace(METASPACE, " ").encode()
    return lambda token: token.replace(mark, content).encode()

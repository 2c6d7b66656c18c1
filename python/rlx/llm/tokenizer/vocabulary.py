"""`Vocabulary`: the tokens of a model, their kinds, and the bytes that each adds to a text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

import numpy as np

from rlx.llm.tokenizer.byte_level import BYTE_OF
from rlx.support.errors import Error
from rlx.support.short import short_repr

METASPACE = "▁"
_BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")

# Tokens that end a generation wherever they occur in a vocabulary. Source: llama.cpp, src/llama-vocab.cpp.
END_TEXTS = (
    *("<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>"),
    *("<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<eos>", "[e~["),
    *("<end_of_utterance>", "<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>"),
)
# Markers for infilling in code models, by the name of their metadata key. The ids of the last three end a generation.
FILL_TEXTS = {
    "fim_pre": (
        *("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|code_prefix|>"),
        "<|prefix|>",
    ),
    "fim_suf": (
        *("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>", "<|code_suffix|>"),
        "<|suffix|>",
    ),
    "fim_mid": (
        *("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|code_middle|>"),
        "<|middle|>",
    ),
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}
ENDING_FILLS = ("fim_pad", "fim_rep", "fim_sep")
# The parts of gpt-oss's format. They are shown, because programs parse them.
_SHOWN_TEXTS = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")


class TokenKind(IntEnum):
    """The kind of a token, with the number that GGUF stores."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


HIDDEN = frozenset((TokenKind.UNKNOWN, TokenKind.CONTROL))
# Tokens that SentencePiece's models find in texts.
MATCHABLE = (TokenKind.NORMAL, TokenKind.USER_DEFINED, TokenKind.UNUSED)


def byte_level_piece(token: str) -> bytes:
    """Return the bytes of a token of byte-level BPE. A token with other characters is literal, as in `tokenizers`."""
    try:
        return bytes(BYTE_OF[c] for c in token)
    except KeyError:
        return token.encode()


def metaspace_piece(token: str) -> bytes:
    """Return the bytes of a token in which ▁ represents a space."""
    return token.replace(METASPACE, " ").encode()


def phantom_piece(token: str) -> bytes:
    """Return the bytes of a WordPiece token of a GGUF file, in which ▁ marks the start of a word."""
    return (f" {token[1:]}" if token.startswith(METASPACE) else token).encode()


def plain_piece(token: str) -> bytes:
    """Return the bytes of a token that is literal text."""
    return token.encode()


def continuation_piece(token: str) -> bytes:
    """Return the bytes of a WordPiece token of a folder, in which ## marks the continuation of a word."""
    return token[2:].encode() if token.startswith("##") else f" {token}".encode()


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a model and the meaning of the special ones.

    Attributes:
        tokens: The text of each id, as the file has it.
        kinds: A `TokenKind` for each id.
        piece_of: Returns the bytes of a normal token's text.
        bos: The id that starts a text.
        eos: The id that ends a text.
        ends: All ids that end a generation.
        prefix: Ids in front of every text that is encoded with special tokens.
        suffix: Ids at the end of every text that is encoded with special tokens.
        starts_with_space: Encoding puts a space in front of a text, and decoding removes it.
        ids: The id of each token.
    """

    tokens: Sequence[str]
    kinds: bytes
    piece_of: Callable[[str], bytes]
    bos: int | None = None
    eos: int | None = None
    ends: frozenset[int] = frozenset()
    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()
    starts_with_space: bool = False
    ids: dict[str, int] = field(default_factory=dict[str, int], repr=False)

    def __post_init__(self) -> None:
        if not self.ids:
            self.ids.update({token: i for i, token in enumerate(self.tokens)})

    def kind(self, token_id: int) -> TokenKind:
        """Return the kind of an id of the vocabulary."""
        return TokenKind(self.kinds[token_id])

    def of_kind(self, *kinds: TokenKind) -> list[int]:
        """Return the ids of some kinds."""
        return np.flatnonzero(np.isin(np.frombuffer(self.kinds, np.uint8), kinds)).tolist()

    def piece(self, token_id: int) -> bytes:
        """Return the bytes that a token adds to a text. Special tokens are literal."""
        token, kind = self.tokens[token_id], self.kinds[token_id]
        if kind == TokenKind.BYTE:
            return bytes([int(token[3:5], 16)])
        if kind in HIDDEN or kind == TokenKind.USER_DEFINED:
            return token.encode()
        return self.piece_of(token)

    def byte_tokens(self) -> list[int | None]:
        """Return the id of the byte token of each byte."""
        result: list[int | None] = [None] * 256
        for token_id in self.of_kind(TokenKind.BYTE):
            result[int(self.tokens[token_id][3:5], 16)] = token_id
        return result

    def with_ends(self, ends: set[int], fills: dict[str, int | None]) -> Vocabulary:
        """Return the vocabulary with its end-of-generation tokens.

        Some files have the wrong kind for end-of-generation and infilling markers: these become control tokens.

        Args:
            ends: The ids that the file names as the end of a text, a turn or a message.
            fills: The ids that the file names for infilling, by the names of `FILL_TEXTS`.
        """
        ends, kinds = set(ends), bytearray(self.kinds)
        for name, texts in FILL_TEXTS.items():
            token_id = fills.get(name)
            if token_id is None:
                token_id = min((self.ids[text] for text in texts if text in self.ids), default=None)
                if token_id is not None:
                    kinds[token_id] = TokenKind.CONTROL
            if token_id is not None and name in ENDING_FILLS:
                ends.add(token_id)
        for token_id in (self.ids[text] for text in END_TEXTS if text in self.ids):
            ends.add(token_id)
            kinds[token_id] = TokenKind.CONTROL
        for token_id in (self.ids[text] for text in _SHOWN_TEXTS if text in self.ids):
            kinds[token_id] = TokenKind.USER_DEFINED
        self._correct_ends(ends, kinds)
        return replace(self, ends=frozenset(ends), kinds=bytes(kinds))

    def _correct_ends(self, ends: set[int], kinds: bytearray) -> None:
        """Remove tokens that end a generation in other models only. Source: llama.cpp, src/llama-vocab.cpp."""
        has = {self.tokens[i] for i in ends}
        calls = bool(has & {"<|call|>", "<|calls|>"})
        if "<|end|>" in has and calls and has & {"<|return|>", "<|flush|>"}:  # gpt-oss, Solar Open
            ends.discard(self.ids["<|end|>"])
            kinds[self.ids["<|end|>"]] = TokenKind.USER_DEFINED
        if "</s>" in has and has & {"<|tool_response>", "<|plamo:eos|>"}:  # Gemma 4, where it is an HTML tag
            ends.discard(self.ids["</s>"])
            kinds[self.ids["</s>"]] = TokenKind.NORMAL


def is_byte_token(token: str) -> bool:
    """Return whether a token is one of `<0x00>` … `<0xFF>`."""
    return len(token) == 6 and _BYTE_TOKEN.fullmatch(token) is not None


def check_byte_tokens(tokens: Sequence[str], kinds: bytes, origin: str) -> None:
    """Check the texts of byte tokens.

    Raises:
        Error: A byte token is not one of `<0x00>` … `<0xFF>`.
    """
    for token_id, kind in enumerate(kinds):
        if kind == TokenKind.BYTE and not is_byte_token(tokens[token_id]):
            raise Error(
                f"{origin}: token {token_id} is a byte token, expected '<0x00>' … '<0xFF>',"
                f" got {short_repr(tokens[token_id])}"
            )

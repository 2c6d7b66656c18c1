"""Log-probabilities of tokens in OpenAI's two forms: that of completions and that of chats."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlx.llm import Tokenizer
from rlx.llm.distribution import top_logprobs

_LEAST = -9999.0  # as OpenAI writes log-probabilities that JSON cannot represent


def token_bytes(tokenizer: Tokenizer, token: int) -> bytes:
    """Return the bytes of a token: of a control token those of its name. Ids without a token have none."""
    return tokenizer.vocabulary.piece(token) if token < tokenizer.vocab_size else b""


def _escaped(data: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in data)


def _number(value: float) -> float:
    return max(float(value), _LEAST)


class CompletionLogprobs:
    """The entry `logprobs` of the choices of a completion, part by part.

    Args:
        tokenizer: The tokenizer.
    """

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._offset = 0

    def entry(self, tokens: Sequence[int], logprobs: Sequence[Mapping[int, float] | None]) -> dict[str, Any]:
        """Return the entry for the next tokens.

        Args:
            tokens: The tokens.
            logprobs: For each, the likeliest tokens and itself; None where there are none.
        """
        offsets: list[int] = []
        for token in tokens:
            offsets.append(self._offset)
            if token < self._tokenizer.vocab_size and not self._tokenizer.is_control(token):
                self._offset += len(self._decoder.decode(token_bytes(self._tokenizer, token)))
        return {
            "tokens": [self._text(token) for token in tokens],
            "token_logprobs": [
                None if row is None else _number(row[token]) for token, row in zip(tokens, logprobs, strict=True)
            ],
            "top_logprobs": [None if row is None else self._top(row) for row in logprobs],
            "text_offset": offsets,
        }

    def _top(self, row: Mapping[int, float]) -> dict[str, float]:
        texts: dict[str, float] = {}
        for token, value in row.items():  # the likeliest first: of two tokens with one text it is the one that is shown
            texts.setdefault(self._text(token), _number(value))
        return texts

    def _text(self, token: int) -> str:
        data = token_bytes(self._tokenizer, token)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return f"bytes:{_escaped(data)}"


def joined_logprobs(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the entries of all parts of a completion as one."""
    names = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
    return {name: [value for part in parts for value in part[name]] for name in names}


def chat_logprobs(
    tokenizer: Tokenizer, tokens: Sequence[int], logprobs: Sequence[Mapping[int, float]], most: int
) -> list[dict[str, Any]]:
    """Return the entries of `logprobs.content` of a chat.

    Args:
        tokenizer: The tokenizer.
        tokens: The tokens.
        logprobs: For each, the likeliest tokens and itself.
        most: The number of likeliest tokens that the client asked for.
    """
    return [
        {
            **_chat_token(tokenizer, token, row[token]),
            "top_logprobs": [_chat_token(tokenizer, other, value) for other, value in list(row.items())[:most]],
        }
        for token, row in zip(tokens, logprobs, strict=True)
    ]


def _chat_token(tokenizer: Tokenizer, token: int, value: float) -> dict[str, Any]:
    data = token_bytes(tokenizer, token)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = _escaped(data)
    return {"token": text, "logprob": _number(value), "bytes": list(data)}


def prompt_logprobs(logits: np.ndarray, tokens: Sequence[int], most: int) -> list[dict[int, float] | None]:
    """Return the log-probabilities of the tokens of a prompt. The first one has none.

    Args:
        logits: f32 `[tokens, vocabulary]`.
        tokens: The tokens.
        most: The number of likeliest tokens of each.
    """
    return [None, *(top_logprobs(row, most, token) for row, token in zip(logits[:-1], tokens[1:], strict=True))]

"""Proposals of tokens, which a model verifies several at a time: speculative decoding.

The model chooses each token from its own logits, as without proposals, and compares it with the proposed one: the text is the
same. Sources: Leviathan et al., Fast inference from transformers via speculative decoding (2023), with this comparison in place
of its acceptance rule; lookup: Saxena, Prompt lookup decoding (2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rlx.llm.engine import Engine
from rlx.llm.pages import CachedText, common_length
from rlx.support.errors import Error

DRAFTED = 3  # tokens that are proposed at a time
_MOST_STEPS = 2  # tokens that the program for single tokens adds to a draft; more are a prompt


class Proposer(Protocol):
    """The proposals for one text."""

    def propose(self, tokens: Sequence[int], count: int) -> list[int]:
        """Return at most `count` tokens that may follow some tokens: those of the prompt and of the text so far."""
        ...

    def close(self) -> None:
        """Release the memory for the text."""
        ...


class Draft(Protocol):
    """The origin of proposals."""

    def proposer(self, text: CachedText) -> Proposer:
        """Return the proposals for a new text of the model that verifies them."""
        ...


@dataclass(frozen=True)
class PromptLookup:
    """Proposes the tokens that followed the last tokens where the text has them already: for summaries, code and quotations.

    Args:
        length: The largest number of last tokens that are looked for; if they are not found, fewer are.

    Raises:
        Error: The length is not positive.
    """

    length: int = 3

    def __post_init__(self) -> None:
        if type(self.length) is not int or self.length < 1:
            raise Error(f"length must be a positive integer, got {self.length!r:.60}")

    def proposer(self, text: CachedText) -> Proposer:
        """Return the proposals for a new text of the model that verifies them."""
        return _LookupProposer(self.length)


class _LookupProposer:
    """The proposals of a lookup for one text.

    Args:
        length: As in `PromptLookup`.
    """

    def __init__(self, length: int):
        self._length = length
        self._ends: dict[tuple[int, ...], int] = {}  # the end of the last occurrence of some tokens that others follow
        self._known = 0

    def propose(self, tokens: Sequence[int], count: int) -> list[int]:
        for end in range(self._known + 1, len(tokens)):
            for length in range(1, min(self._length, end) + 1):
                self._ends[tuple(tokens[end - length : end])] = end
        self._known = max(self._known, len(tokens) - 1)
        for length in range(min(self._length, len(tokens)), 0, -1):
            end = self._ends.get(tuple(tokens[-length:]))
            if end is not None:
                return list(tokens[end : end + count])
        return []

    def close(self) -> None:
        self._ends.clear()


class DraftModel:
    """Proposes the likeliest tokens of a smaller model.

    Args:
        engine: The programs of the model, which may have recurrent layers: it keeps the states of the last tokens.
    """

    def __init__(self, engine: Engine):
        self._engine = engine

    def proposer(self, text: CachedText) -> Proposer:
        """Return the proposals for a new text of the model that verifies them."""
        return _ModelProposer(self._engine)


class _ModelProposer:
    """The proposals of a model for one text.

    Args:
        engine: The programs of the model.
    """

    def __init__(self, engine: Engine):
        self._engine, self._text = engine, CachedText()
        self._is_started = False

    def propose(self, tokens: Sequence[int], count: int) -> list[int]:
        engine, text = self._engine, self._text
        count = min(count, engine.context - len(tokens))
        if count < 1:
            return []
        if not self._is_started:
            logits = engine.start(text, tokens)
            self._is_started = True
        else:
            missing = tokens[text.continue_at(common_length(text.tokens, tokens[:-1])) :]
            if len(missing) > _MOST_STEPS:
                logits = engine.extend(text, tokens)
            else:
                logits = [engine.step(text, token) for token in missing][-1]
        proposed = [int(logits.argmax())]
        while len(proposed) < count:
            proposed.append(int(engine.step(text, proposed[-1]).argmax()))
        return proposed

    def close(self) -> None:
        self._text.is_done = True


@dataclass(frozen=True)
class PredictionHead:
    """Proposes the tokens that a head of the model itself predicts: multi-token prediction (see `prediction_head.py`)."""


class HeadDraft:
    """The proposals of a `PredictionHead`.

    Args:
        engine: The programs of the model, with those of the head.
    """

    def __init__(self, engine: Engine):
        self._engine = engine

    def proposer(self, text: CachedText) -> Proposer:
        """Return the proposals for a new text of the model that verifies them."""
        return _HeadProposer(self._engine, text)


class _HeadProposer:
    """The proposals of a head for one text.

    Args:
        engine: The programs of the model.
        text: The text in the cache, which has all tokens but the last one.
    """

    def __init__(self, engine: Engine, text: CachedText):
        self._engine, self._text = engine, text

    def propose(self, tokens: Sequence[int], count: int) -> list[int]:
        return self._engine.predict(self._text, tokens[-1], count) if count > 0 else []

    def close(self) -> None:
        """The text has nothing of its own here."""

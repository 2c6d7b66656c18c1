"""`OutputText`: the text of generated tokens, with stop texts."""

from __future__ import annotations

from collections.abc import Sequence

from rlx.llm.tokenizer import StreamDecoder, Tokenizer


class OutputText:
    """The text of tokens that arrive one at a time. It holds back characters that may begin a stop text.

    Args:
        tokenizer: The tokenizer.
        stops: Texts that end the generation.

    Attributes:
        is_stopped: Whether a stop text is complete. The text before it has been returned then.
    """

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str]):
        self._decoder = StreamDecoder(tokenizer.vocabulary, keeps_space=True)
        self._stops = stops
        self._held = ""
        self.is_stopped = False

    def push(self, token: int) -> str:
        """Return the characters that are certain after a token."""
        return self._released(self._decoder.push(token))

    def flush(self) -> str:
        """Return the characters that were held back, at the end of the generation."""
        text = self._released(self._decoder.flush())
        rest, self._held = self._held, ""
        return text if self.is_stopped else text + rest

    def _released(self, text: str) -> str:
        held = self._held + text
        # The first stop text to be complete ends the text; of several that one token completes, the one that begins first.
        found = [(held.find(stop), -len(stop)) for stop in self._stops if stop in held]
        if found:
            self.is_stopped, self._held = True, ""
            return held[: min(found)[0]]
        keep = max((_overlap(held, stop) for stop in self._stops), default=0)
        self._held = held[len(held) - keep :]
        return held[: len(held) - keep]


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of a text that begins a stop text."""
    for size in range(min(len(text), len(stop) - 1), 0, -1):
        if stop.startswith(text[-size:]):
            return size
    return 0

"""Pages of the cache of keys and values, and the texts that use them.

A page has the keys and values of some consecutive tokens of a text. Texts with the same beginning share its whole pages. The
pages of a finished text stay until others need them (Kwon et al., PagedAttention, 2023).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np


class CachedText:
    """A text whose keys and values are in the cache, or were, until another text took their place.

    Attributes:
        tokens: The tokens in the cache.
        proposed: Tokens that are in the cache after `tokens`. They become tokens of the text if they are right.
        cached_tokens: The number of tokens of the prompt that were in the cache before.
        reusable: The number of tokens at the start that other texts may share. The program for prompts computed them; the one
            for single tokens rounds differently, and a result must not depend on earlier texts.
        pages: The pages of the tokens, in order.
        saved: Pages by the name of the state, while they are not in the cache.
        slots: The slots of the states of recurrent layers, by the number of tokens after which they are. They are replaced and
            not changed, since other threads read them.
        written_slots: The slots that the next run writes.
        state_lengths: The keys of `slots`, or of `saved_states`; None for models without recurrent layers.
        saved_states: The states by number of tokens and by name, while they are not in the cache.
        hidden: States after the last norm by position, f32 `[hidden_size]`, from which a head of the model has not predicted
            yet.
        is_done: Whether the text is complete.
    """

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.proposed: list[int] = []
        self._next_length: int | None = None
        self.cached_tokens = self.reusable = 0
        self.pages: list[int] = []
        self.saved: dict[str, np.ndarray] | None = None
        self.slots: dict[int, int] = {}
        self.written_slots: list[int] = []
        self.state_lengths: tuple[int, ...] | None = None
        self.saved_states: dict[int, dict[str, np.ndarray]] | None = None
        self.hidden: dict[int, np.ndarray] = {}
        self.is_done = False

    @property
    def is_outside(self) -> bool:
        """Whether other texts have taken the place of this one in the cache."""
        return self.saved is not None or self.saved_states is not None

    @property
    def length(self) -> int:
        """The number of tokens before those of the next run."""
        return len(self.tokens) if self._next_length is None else self._next_length

    def continue_at(self, length: int) -> int:
        """Let the next run continue after some of the tokens in the cache, and return their number.

        It is less than `length` if the recurrent states after these tokens are not known. The thread of the text calls this.
        The tokens change in the next run, in the thread that changes the cache.

        Args:
            length: A number of tokens: the first ones of `tokens` and `proposed`.
        """
        if self.state_lengths is not None:
            length = max((known for known in self.state_lengths if known <= length), default=0)
        self._next_length = length
        return length

    def settle(self) -> None:
        """Take the proposed tokens that are right, and forget the tokens after the place where the text continues.

        Proposed tokens are forgotten without a call of `continue_at`. Only the thread that changes the cache calls this.
        """
        length, self._next_length = self.length, None
        if not self.is_done:  # a text that is done has only the tokens that others may share
            self.tokens += self.proposed[: max(length - len(self.tokens), 0)]
            del self.tokens[length:]
            self.reusable = min(self.reusable, length)
        self.proposed = []


class PagePool:
    """The assignment of pages to texts. It is not thread-safe.

    Args:
        count: The number of pages.
        length: The number of tokens of a page.
    """

    def __init__(self, count: int, length: int):
        self.length = length
        self._free = list(range(count))[::-1]
        self._uses = [0] * count
        self._texts: dict[CachedText, None] = {}  # the least recently used first

    @property
    def texts(self) -> list[CachedText]:
        """The texts in the cache, the least recently used first."""
        return list(self._texts)

    def use(self, text: CachedText) -> None:
        """Record that a text is used."""
        self._texts.pop(text, None)
        self._texts[text] = None

    def share(self, text: CachedText, prompt: Sequence[int]) -> tuple[int, tuple[int, int] | None]:
        """Give a new text the pages of the longest beginning of a prompt that is in the cache.

        Args:
            text: The text. It has the tokens of the shared pages afterwards.
            prompt: The tokens of the prompt. The last one is not looked for, since its logits are needed.

        Returns:
            The number of tokens in the cache. If they end within a page that stays with its text, also the numbers of this page
            and of a new page, into which it must be copied.
        """
        self._trim_finished({text})
        self.use(text)
        length, best = max(
            ((common_length(other.tokens[: other.reusable], prompt[:-1]), other) for other in self._texts),
            key=lambda pair: pair[0],
        )
        whole = length // self.length
        text.pages = best.pages[:whole]
        for page in text.pages:
            self._uses[page] += 1
        text.tokens, text.reusable = list(prompt[: whole * self.length]), whole * self.length
        if length == text.reusable:
            return length, None
        page = self._take({text, best})
        if page is not None:
            text.pages.append(page)
            return length, (best.pages[whole], page)
        if not best.is_done or self._uses[best.pages[whole]] > 1:
            return text.reusable, None
        text.pages.append(best.pages.pop(whole))
        text.tokens, text.reusable = list(prompt[:length]), length
        while len(best.pages) > whole:
            self._drop_last(best)
        self._forget_after_pages(best)
        return length, None

    def extend(self, text: CachedText, length: int, pinned: Collection[CachedText]) -> bool:
        """Give a text pages for some tokens. Returns False if there are not enough.

        Args:
            text: The text.
            length: The number of its tokens.
            pinned: Texts whose pages must stay.
        """
        self._trim_finished(pinned)
        self.use(text)
        while len(text.pages) * self.length < length:
            page = self._take(pinned)
            if page is None:
                return False
            text.pages.append(page)
        return True

    def release(self, text: CachedText) -> None:
        """Take all pages of a text."""
        while text.pages:
            self._drop_last(text)
        self._texts.pop(text, None)

    def _take(self, pinned: Collection[CachedText]) -> int | None:
        """Return a page that no text uses, taken from a finished text if need be; None if there is none."""
        for text in self.texts:
            while not self._free and text.is_done and text not in pinned and text.pages:
                self._drop_last(text)
                self._forget_after_pages(text)
        if not self._free:
            return None
        page = self._free.pop()
        self._uses[page] = 1
        return page

    def _drop_last(self, text: CachedText) -> None:
        page = text.pages.pop()
        self._uses[page] -= 1
        if not self._uses[page]:
            self._free.append(page)

    def _trim_finished(self, pinned: Collection[CachedText]) -> None:
        """Keep of finished texts the tokens that others may share, but not of those in the run: they end after it."""
        for text in self.texts:
            if not text.is_done or text in pinned:
                continue
            text.saved = None
            while len(text.pages) * self.length >= text.reusable + self.length:
                self._drop_last(text)
            self._forget_after_pages(text)

    def _forget_after_pages(self, text: CachedText) -> None:
        text.reusable = min(text.reusable, len(text.pages) * self.length)
        del text.tokens[text.reusable :]
        if not text.tokens:
            self.release(text)


def common_length(a: Sequence[int], b: Sequence[int]) -> int:
    """Return the number of equal tokens at the start of two texts."""
    for number, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            return number
    return min(len(a), len(b))

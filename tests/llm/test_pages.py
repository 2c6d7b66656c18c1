"""Pages of the cache: a text always has the rows of its own tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlx.llm.pages import CachedText, PagePool
from tests.drawing import graph_seed

_LENGTH = 4


class _Cache:
    """A pool, with a memory in which a row is the text up to its token.

    Args:
        count: The number of pages.
    """

    def __init__(self, count: int):
        self.pool = PagePool(count, _LENGTH)
        self.rows: list[list[tuple[int, ...]]] = [[()] * _LENGTH for _ in range(count)]
        self.texts: list[tuple[CachedText, list[int]]] = []

    def start(self, prompt: list[int]) -> CachedText:
        text = CachedText()
        length, copied = self.pool.share(text, prompt)
        if copied is not None:
            source, target = copied
            self.rows[target] = list(self.rows[source])
            text.tokens, text.reusable = prompt[:length], length
        text.cached_tokens = length
        assert self.content(text) == prompt[: len(text.tokens)] and len(text.tokens) < len(prompt)
        self.texts.append((text, []))
        self.add(text, prompt[len(text.tokens) :])
        text.reusable = len(text.tokens)
        return text

    def add(self, text: CachedText, tokens: list[int]) -> None:
        """Write tokens. Texts that are not finished make room if need be."""
        while not self.pool.extend(text, len(text.tokens) + len(tokens), {text}):
            victim = next(t for t in self.pool.texts if t is not text and t.pages)
            victim.is_done = True
            self.pool.release(victim)
            self.texts = [pair for pair in self.texts if pair[0] is not victim]
        for token in tokens:
            text.tokens.append(token)
            place = len(text.tokens) - 1
            self.rows[text.pages[place // _LENGTH]][place % _LENGTH] = tuple(text.tokens)

    def content(self, text: CachedText) -> list[int]:
        """Return the tokens of the rows of a text."""
        rows = [row for page in text.pages for row in self.rows[page]][: len(text.tokens)]
        assert [len(row) for row in rows] == [*range(1, len(rows) + 1)]
        assert all(rows[-1][: len(row)] == row for row in rows)
        return list(rows[-1]) if rows else []


@pytest.mark.parametrize("number", range(8))
def test_texts_have_their_own_rows(number: int, seed: int) -> None:
    rng: Any = np.random.default_rng(graph_seed(seed, number))
    cache = _Cache(int(rng.integers(4, 12)))
    for _ in range(300):
        choice, active = rng.random(), cache.texts
        if choice < 0.3 or not active:
            start = active[int(rng.integers(len(active)))][0].tokens if active and rng.random() < 0.7 else []
            own = rng.integers(0, 3, int(rng.integers(1, 7))).tolist()
            cache.start([*start[: int(rng.integers(0, 10))], *own][:14])
        elif choice < 0.8:
            text = active[int(rng.integers(len(active)))][0]
            if len(text.tokens) < 15:
                cache.add(text, [int(rng.integers(3))])
        else:
            text, _ = active.pop(int(rng.integers(len(active))))
            text.is_done = True
        for text, _ in cache.texts:
            assert cache.content(text) == text.tokens
        used = {page for text in cache.pool.texts for page in text.pages}
        assert len(used) + len(cache.pool._free) == len(cache.rows) and used.isdisjoint(cache.pool._free)


def test_the_beginning_of_a_text_in_use_is_shared_and_a_part_of_a_page_copied() -> None:
    cache = _Cache(8)
    first = cache.start([1, 2, 3, 4, 5, 6])
    second = cache.start([1, 2, 3, 4, 5, 7])
    assert second.cached_tokens == 5 and second.pages[0] == first.pages[0] and second.pages[1] != first.pages[1]
    cache.add(first, [8])  # a token of the other program
    first.is_done = True
    assert cache.start([1, 2, 3, 4, 5, 6, 8, 9]).cached_tokens == 6


def test_finished_texts_stay_until_others_need_their_pages() -> None:
    cache = _Cache(4)
    prompts = [[i] * 4 + [0] for i in range(1, 3)]
    for prompt in prompts:
        cache.start(prompt).is_done = True
    assert [cache.start(prompt).cached_tokens for prompt in prompts] == [4, 4]
    for text, _ in cache.texts:
        text.is_done = True
    cache.start([7] * 16).is_done = True
    assert [cache.start(prompt).cached_tokens for prompt in prompts] == [0, 0]

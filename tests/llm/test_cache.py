"""The cache of a model with keys, values and recurrent states: a text always has those of its own tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlx.llm.cache import TextCache
from rlx.llm.pages import CachedText, PagePool
from rlx.llm.slots import SlotPool
from tests.drawing import graph_seed

_LENGTH = 4  # tokens of a page


class _Program:
    """A program whose states have the number of the text up to a token.

    Args:
        pages: The number of pages; 0 for a model without keys and values.
        slots: The number of slots.
    """

    def __init__(self, pages: int, slots: int):
        self._values = {"state_0": np.zeros((slots, 1, 1))}
        if pages:
            self._values["key_0"] = np.zeros((pages, _LENGTH, 1))
        self.states = [SimpleNamespace(name=name) for name in self._values]
        self._numbers: dict[tuple[int, ...], int] = {(): 0}

    def __getitem__(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(run=getattr(self, name))

    def copy_page(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Copy a page."""
        self._values["key_0"][inputs["target"]] = self._values["key_0"][inputs["source"]]

    def write_page(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Write a page or a slot. All its rows are there."""
        for name in inputs.keys() - {"target"}:
            self._values[name.removeprefix("new_")][inputs["target"]] = inputs[name]

    write_slot = write_page

    def state(self, name: str) -> np.ndarray:
        return self._values[name].copy()

    def number(self, tokens: Sequence[int]) -> int:
        """Return the number of a text."""
        return self._numbers.setdefault(tuple(tokens), len(self._numbers))

    def check(self, text: CachedText) -> None:
        """Check what a run reads."""
        length = len(text.tokens)
        if length:
            assert self._values["state_0"][text.slots[length], 0, 0] == self.number(text.tokens)
        if "key_0" in self._values:
            rows = self._values["key_0"][text.pages].reshape(-1)[:length]
            assert rows.tolist() == [self.number(text.tokens[: i + 1]) for i in range(length)]

    def write(self, text: CachedText, tokens: Sequence[int], slots: Sequence[int]) -> None:
        """Write the rows and states of further tokens. With one slot, only the last state is written."""
        whole = [*text.tokens, *tokens]
        for i in range(len(text.tokens), len(whole)):
            if "key_0" in self._values:
                self._values["key_0"][text.pages[i // _LENGTH], i % _LENGTH] = self.number(whole[: i + 1])
        for back, slot in enumerate(reversed(slots)):
            self._values["state_0"][slot] = self.number(whole[: len(whole) - back])


class _Model:
    """The part of an engine that uses the cache."""

    def __init__(self, pages: int, slots: int, kept: int = 0):
        self.program: Any = _Program(pages, slots)
        self.pages = PagePool(pages, _LENGTH) if pages else None
        self.slots = SlotPool(slots, kept)
        self.cache = TextCache(self.pages, self.slots, self.program)
        self.kept = kept

    def start(self, prompt: list[int]) -> CachedText:
        text = CachedText()
        logits = self.cache.share(text, prompt)
        assert text.tokens == prompt[: text.cached_tokens]
        if text.cached_tokens:
            self.program.check(text)
        assert (logits is None) == (text.cached_tokens < len(prompt))
        if logits is not None:
            assert logits.tolist() == [self.program.number(prompt)]
        while len(text.tokens) < len(prompt):
            begin = len(text.tokens)
            tokens = prompt[begin : begin + _LENGTH - begin % _LENGTH]
            assert self.cache.admit(text, len(tokens))
            self.run([(text, tokens)])
            text.reusable = len(text.tokens)
            self.cache.keep(text, np.array([self.program.number(text.tokens)]))
        return text

    def run(self, rows: Sequence[tuple[CachedText, list[int]]]) -> None:
        """Run admitted texts: all are read before any is written."""
        for text, _ in rows:
            self.program.check(text)
        for text, tokens in rows:
            self.program.write(text, tokens, text.written_slots)
            self.cache.advance(text, [len(text.tokens) + len(tokens)])
            text.tokens += tokens

    def steps(self, texts: Sequence[CachedText], token: int) -> None:
        ready: list[CachedText] = []
        for text in texts:
            if not self.cache.admit(text, 1, others=ready):
                break
            ready.append(text)
        assert ready
        self.run([(text, [token]) for text in ready])

    def verify(self, text: CachedText, tokens: list[int], accepted: int) -> None:
        assert self.cache.admit(text, len(tokens), len(tokens))
        self.program.check(text)
        self.program.write(text, tokens, text.written_slots)
        first = len(text.tokens)
        self.cache.advance(text, range(first + 1, first + 1 + len(tokens)))
        text.proposed = tokens
        text.continue_at(first + accepted)
        text.settle()


@pytest.mark.parametrize("has_pages", [True, False])
@pytest.mark.parametrize("kept", [0, 3])
@pytest.mark.parametrize("number", range(4))
def test_texts_have_their_own_states(number: int, kept: int, has_pages: bool, seed: int) -> None:
    """Prompts, steps together, proposed tokens, shortened and finished texts, with too little room for all."""
    rng: Any = np.random.default_rng(graph_seed(seed, number))
    slots = int(rng.integers(5 if kept else 4, 12))
    model = _Model(int(rng.integers(4, 10)) if has_pages else 0, slots, kept)
    active: list[CachedText] = []
    cached = 0

    def one() -> CachedText:
        return active[int(rng.integers(len(active)))]

    for _ in range(400):
        choice = rng.random()
        active = [text for text in active if len(text.tokens) < 12 or not has_pages]
        if choice < 0.3 or not active:
            start = one().tokens if active and rng.random() < 0.7 else []
            prompt = [*start[: int(rng.integers(0, 10))], *rng.integers(0, 3, int(rng.integers(1, 5))).tolist()]
            active.append(model.start(prompt[:11]))
            cached += active[-1].cached_tokens
        elif choice < 0.6:
            model.steps(list({one(): None for _ in range(3)}), int(rng.integers(3)))
        elif choice < 0.8 and not kept:
            model.verify(one(), rng.integers(0, 3, 3).tolist(), int(rng.integers(1, 4)))
        elif choice < 0.8:
            text = one()
            before = list(text.tokens)
            model_length = int(rng.integers(0, len(before) + 1))
            text.continue_at(model_length)
            text.settle()
            assert text.tokens == before[: len(text.tokens)] and len(text.tokens) <= model_length
            if not text.tokens:
                active.remove(text)
                text.is_done = True
        else:
            text = active.pop(int(rng.integers(len(active))))
            text.is_done = True
        uses = [0] * slots
        for text in model.slots.texts:
            for slot in [*text.slots.values(), *text.written_slots]:
                uses[slot] += 1
        for checkpoint in model.slots._checkpoints.values():
            uses[checkpoint.slot] += 1
        assert uses == model.slots._uses and sorted(model.slots._free) == [i for i in range(slots) if not uses[i]]
    assert cached > 0


def test_a_text_is_shortened_by_the_kept_states() -> None:
    model = _Model(0, 8, kept=2)
    text = model.start([1, 2, 3])
    for token in (4, 5, 6):
        model.steps([text], token)
    assert text.continue_at(4) == 4
    text.settle()
    assert text.tokens == [1, 2, 3, 4]
    model.steps([text], 7)
    assert text.continue_at(2) == 0  # too far back
    text.settle()
    assert text.tokens == []


def test_the_least_recently_used_checkpoint_makes_room() -> None:
    model = _Model(0, 3)
    for first in (1, 2, 3):
        model.start([first, first]).is_done = True
    assert model.start([1, 1]).cached_tokens == 2
    model.start([4, 4]).is_done = True  # in place of the checkpoint of 2
    assert [len(model.slots.checkpoints_of([first, first])) for first in (1, 2, 3, 4)] == [1, 0, 1, 1]


def test_both_pages_and_checkpoint_are_needed() -> None:
    model = _Model(2, 8)
    model.start([1, 2, 3, 4, 5, 6]).is_done = True
    assert model.start([1, 2, 3, 4, 5, 6, 7]).cached_tokens == 6
    model = _Model(2, 8)
    model.start([1, 2, 3, 4, 5, 6]).is_done = True
    model.start([9] * 5).is_done = True  # takes both pages
    assert model.start([1, 2, 3, 4, 5, 6, 7]).cached_tokens == 0
    assert [c.length for c in model.slots.checkpoints_of([1, 2, 3, 4, 5, 6])] == [6, 4]

"""Slots of the states of recurrent layers, the texts that use them, and checkpoints of prompts.

A slot has the states of all recurrent layers after some tokens of a text. A run reads a slot and writes another or the same
one. A slot that a checkpoint uses is not written, so that a checkpoint is made without a copy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rlx.llm.pages import CachedText


@dataclass(frozen=True)
class StateCheckpoint:
    """The states after the beginning of a prompt.

    Attributes:
        length: The number of tokens.
        slot: The slot of the states.
        logits: The logits after the last token, f32 `[vocab_size]`.
    """

    length: int
    slot: int
    logits: np.ndarray


class SlotPool:
    """The assignment of slots to texts and checkpoints. It is not thread-safe.

    Args:
        count: The number of slots.
        rewind: The number of earlier states that a text keeps, for `CachedText.continue_at`.
    """

    def __init__(self, count: int, rewind: int = 0):
        self._rewind = rewind
        self._free = list(range(count))[::-1]
        self._uses = [0] * count
        self._texts: dict[CachedText, None] = {}  # the least recently used first
        self._checkpoints: dict[tuple[int, bytes], StateCheckpoint] = {}  # in the same order

    @property
    def texts(self) -> list[CachedText]:
        """The texts with slots, the least recently used first."""
        return list(self._texts)

    # --- texts ------------------------------------------------------------------------------------

    def reserve(self, text: CachedText, count: int, pinned: Collection[CachedText]) -> bool:
        """Give a text slots for the states that a run writes: its `written_slots`. Returns False if there are not enough.

        Args:
            text: The text.
            count: The number of states: 1, or one for each token of the run.
            pinned: Texts whose slots must stay, this one among them.
        """
        self._release_finished(pinned)
        self._texts.pop(text, None)
        self._texts[text] = None
        self._forget(text)
        length = len(text.tokens)
        self._drop(text.written_slots)
        text.written_slots = []
        while count > 1 or self._rewind or not self._is_own(text, length):
            if len(text.written_slots) == count:
                return True
            if self._free:
                self._uses[self._free[-1]] = 1
                text.written_slots.append(self._free.pop())
            elif self._checkpoints:
                self._drop_checkpoint(next(iter(self._checkpoints)))
            else:
                return False
        # The state of the text is its own, maybe since checkpoints have been dropped: it is replaced.
        self._drop(text.written_slots)
        self._uses[text.slots[length]] += 1
        text.written_slots = [text.slots[length]]
        return True

    def advance(self, text: CachedText, lengths: Sequence[int]) -> None:
        """Record that a run has written the states after these numbers of tokens to the `written_slots` of a text."""
        written = dict(zip(lengths, text.written_slots, strict=True))
        is_only = len(lengths) == 1 and not self._rewind
        others = {} if is_only else {n: slot for n, slot in text.slots.items() if n not in written}
        self._drop(slot for n, slot in text.slots.items() if n not in others)
        text.written_slots = []
        text.slots = others | written
        text.state_lengths = tuple(text.slots)

    def release(self, text: CachedText) -> None:
        """Take all slots of a text."""
        self._drop([*text.slots.values(), *text.written_slots])
        text.slots, text.written_slots = {}, []
        self._texts.pop(text, None)

    def is_kept(self, text: CachedText, length: int) -> bool:
        """Whether the state of a text after a number of tokens is still needed."""
        return len(text.tokens) - self._rewind <= length <= len(text.tokens)

    def _is_own(self, text: CachedText, length: int) -> bool:
        """Whether a text has a state after its last token which nothing else uses."""
        return length in text.slots and self._uses[text.slots[length]] == 1

    def _forget(self, text: CachedText) -> None:
        """Take the slots of a text for tokens that are not there any more, and for those that are too far back."""
        kept = {length: slot for length, slot in text.slots.items() if self.is_kept(text, length)}
        self._drop(slot for length, slot in text.slots.items() if length not in kept)
        text.slots = kept
        if text.saved_states is None:
            text.state_lengths = tuple(kept)

    def _release_finished(self, pinned: Collection[CachedText]) -> None:
        for text in self.texts:
            if text.is_done and text not in pinned:
                text.saved_states = None
                self.release(text)

    def _drop(self, slots: Iterable[int]) -> None:
        for slot in slots:
            self._uses[slot] -= 1
            if not self._uses[slot]:
                self._free.append(slot)

    # --- checkpoints ------------------------------------------------------------------------------

    def keep(self, text: CachedText, logits: np.ndarray) -> None:
        """Make a checkpoint of the state of a text after its tokens."""
        length = len(text.tokens)
        key = next(_keys(text.tokens, [length]))
        if key in self._checkpoints:
            self._checkpoints[key] = self._checkpoints.pop(key)
            return
        slot = text.slots[length]
        self._uses[slot] += 1
        self._checkpoints[key] = StateCheckpoint(length, slot, logits.copy())

    def checkpoints_of(self, prompt: Sequence[int]) -> list[StateCheckpoint]:
        """Return the checkpoints of beginnings of a prompt, the longest first."""
        lengths = sorted({length for length, _ in self._checkpoints if length <= len(prompt)})
        return [self._checkpoints[key] for key in _keys(prompt, lengths) if key in self._checkpoints][::-1]

    def begin(self, text: CachedText, checkpoint: StateCheckpoint) -> None:
        """Let a new text continue from a checkpoint. It has its tokens already."""
        key = next(key for key, other in self._checkpoints.items() if other is checkpoint)
        self._checkpoints[key] = self._checkpoints.pop(key)
        self._uses[checkpoint.slot] += 1
        text.slots, text.state_lengths = {checkpoint.length: checkpoint.slot}, (checkpoint.length,)
        self._texts[text] = None

    def _drop_checkpoint(self, key: tuple[int, bytes]) -> None:
        self._drop([self._checkpoints.pop(key).slot])


def _keys(tokens: Sequence[int], lengths: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """Yield the keys of checkpoints of the first tokens, for increasing lengths. A hash takes less memory than the tokens."""
    hashed, done = hashlib.blake2b(digest_size=32), 0
    for length in lengths:
        hashed.update(np.array(tokens[done:length], np.int32).tobytes())
        done = length
        yield length, hashed.digest()

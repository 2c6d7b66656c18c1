"""`TextCache`: the pages and slots of texts in the states of a program, and the texts that are saved outside of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from rlx.llm.pages import CachedText, PagePool
from rlx.llm.slots import SlotPool, StateCheckpoint
from rlx.runtime.program import Program


class TextCache:
    """The pages of keys and values, and the slots of recurrent states. It is not thread-safe.

    Args:
        pages: The pages; None for a model without keys and values.
        slots: The slots; None for a model without recurrent layers.
        program: The program that has the states.
    """

    def __init__(self, pages: PagePool | None, slots: SlotPool | None, program: Program):
        self._pages, self._slots, self._program = pages, slots, program

    # --- prompts ----------------------------------------------------------------------------------

    def share(self, text: CachedText, prompt: Sequence[int]) -> np.ndarray | None:
        """Share the cached tokens at the start of a prompt with a new text.

        Returns:
            The logits after the prompt, if the whole of it has been computed before.
        """
        if self._slots is None:
            text.cached_tokens = self._share_pages(text, prompt)
            return None
        for checkpoint in self._slots.checkpoints_of(prompt):
            if self._continue_from(text, checkpoint, prompt):
                text.cached_tokens = checkpoint.length
                return checkpoint.logits if checkpoint.length == len(prompt) else None
        return None

    def _continue_from(self, text: CachedText, checkpoint: StateCheckpoint, prompt: Sequence[int]) -> bool:
        """Let a text continue from a checkpoint. Returns False if the keys and values of its tokens are not there."""
        assert self._slots is not None
        own = list(prompt[: checkpoint.length])
        # The pages are those of a prompt with one more token, whatever it is: the last one is not looked for.
        if self._pages is not None and self._share_pages(text, [*own, 0]) < len(own):
            self._pages.release(text)
            text.tokens, text.reusable = [], 0
            return False
        text.tokens, text.reusable = own, len(own)
        self._slots.begin(text, checkpoint)
        return True

    def _share_pages(self, text: CachedText, prompt: Sequence[int]) -> int:
        """Give a new text the pages of the beginning of a prompt, and return the number of tokens."""
        if self._pages is None:
            return 0
        length, copied = self._pages.share(text, prompt)
        if copied is not None:
            source, target = (np.array([page], np.int32) for page in copied)
            self._program["copy_page"].run({"source": source, "target": target})
            text.tokens, text.reusable = list(prompt[:length]), length
        return length

    def keep(self, text: CachedText, logits: np.ndarray) -> None:
        """Make a checkpoint of the recurrent state of a text, if there is one."""
        if self._slots is not None:
            self._slots.keep(text, logits)

    # --- runs -------------------------------------------------------------------------------------

    def admit(self, text: CachedText, count: int, states: int = 1, others: Collection[CachedText] = ()) -> bool:
        """Give a text room for more tokens, and move texts that are not in this run out of the cache if need be.

        Args:
            text: The text.
            count: The number of tokens.
            states: The number of recurrent states that the run writes.
            others: The other texts of the run.

        Returns:
            Whether there is room. If not, the text has been moved out.
        """
        pinned = {text, *others}
        return self._has_pages(text, count, pinned) and self._has_slots(text, states, pinned)

    def _has_pages(self, text: CachedText, count: int, pinned: Collection[CachedText]) -> bool:
        pages = self._pages
        if pages is None:
            return True
        while not pages.extend(text, len(text.tokens) + count, pinned):
            if not self._make_room(text, [t for t in pages.texts if t.pages], pinned):
                return False
        if text.saved is not None:
            self._write("write_page", text.pages, text.saved)
            text.saved = None
        return True

    def _has_slots(self, text: CachedText, count: int, pinned: Collection[CachedText]) -> bool:
        slots, saved = self._slots, text.saved_states
        if slots is None:
            return True
        if saved is not None:
            lengths = [length for length in saved if slots.is_kept(text, length)]
            if not self._reserve(slots, text, len(lengths), pinned):
                return False
            for length, slot in zip(lengths, text.written_slots, strict=True):
                self._write("write_slot", [slot], saved[length])
            slots.advance(text, lengths)
            text.saved_states = None
        return self._reserve(slots, text, count, pinned)

    def _reserve(self, slots: SlotPool, text: CachedText, count: int, pinned: Collection[CachedText]) -> bool:
        while not slots.reserve(text, count, pinned):
            if not self._make_room(text, slots.texts, pinned):
                return False
        return True

    def advance(self, text: CachedText, lengths: Sequence[int]) -> None:
        """Record that a run has written the recurrent states of a text after these numbers of tokens."""
        if self._slots is not None:
            self._slots.advance(text, lengths)

    def _make_room(self, text: CachedText, candidates: Sequence[CachedText], pinned: Collection[CachedText]) -> bool:
        """Move a text out of the cache: one that is not in the run or, if there is none, this text. Returns False then."""
        victim = next((other for other in candidates if other not in pinned), None)
        self._move_out(text if victim is None else victim)
        return victim is not None

    # --- texts that are outside -------------------------------------------------------------------

    def _move_out(self, text: CachedText) -> None:
        """Take the pages and slots of a text, and keep their content."""
        is_needed = bool(text.tokens) and not text.is_done
        if self._pages is not None:
            if is_needed and text.saved is None:
                text.saved = {name: self._program.state(name)[text.pages] for name in self._names(True)}
            self._pages.release(text)
        if self._slots is not None:
            if is_needed and text.saved_states is None:
                text.saved_states = self._states_of(text)
            self._slots.release(text)

    def _states_of(self, text: CachedText) -> dict[int, dict[str, np.ndarray]]:
        """Return the recurrent states of a text by number of tokens and by name."""
        result: dict[int, dict[str, np.ndarray]] = {length: {} for length in text.slots}
        for name in self._names(False):
            state = self._program.state(name)
            for length, slot in text.slots.items():
                result[length][name] = state[slot : slot + 1].copy()
        return result

    def _write(self, entry: str, indices: Sequence[int], saved: Mapping[str, np.ndarray]) -> None:
        """Write saved pages, or a slot. A text may need fewer pages: proposed tokens that were wrong have been forgotten."""
        count = min(len(indices), *(len(content) for content in saved.values()))
        for number, index in enumerate(indices[:count]):
            contents = {f"new_{name}": content[number : number + 1] for name, content in saved.items()}
            self._program[entry].run({"target": np.array([index], np.int32), **contents})

    def _names(self, is_cache: bool) -> Iterator[str]:
        return (state.name for state in self._program.states if is_cache_state(state.name) == is_cache)


def is_cache_state(state: str) -> bool:
    """Whether a state has a row for each token. The states of recurrent layers have one for each text."""
    return state.startswith(("key_", "value_"))

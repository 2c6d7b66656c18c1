"""`Engine`: the compiled programs of a model, and the cache of keys and values that they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlx.ir.dtype import dtype
from rlx.llm.cache import TextCache
from rlx.llm.generation_graphs import generation_graphs, whole_graph
from rlx.llm.pages import CachedText, PagePool
from rlx.llm.scheduler import Scheduler, Step
from rlx.llm.slots import SlotPool
from rlx.models.model import PretrainedModel
from rlx.runtime.program import Program
from rlx.runtime.session import Session
from rlx.support.cached_property import locked_property
from rlx.support.errors import Error

_PAGE = 256  # tokens of a page, and so at most of a run for a prompt: an interrupt waits for one run
_PAGE_STEP = 64  # kernels take pages of a multiple of this number
_MOST_ROWS = 8  # texts in one run, for which there are kernels
_MOST_CHECKPOINTS = 64
_SLOT_INPUTS = ("read_slots", "written_slots")
LARGEST_CACHE = 1 << 30  # bytes of keys and values of several texts, or of one if its length is not given
LARGEST_CHECKPOINTS = 1 << 28  # bytes of the checkpoints of recurrent states


@dataclass(frozen=True)
class _Row:
    """A row of a run: tokens of a text, the position of the first one, and which of the text's slots it writes."""

    text: CachedText
    start: int
    tokens: Sequence[int]
    slot_index: int = 0


class Engine:
    """The programs of a model. All methods are thread-safe.

    Programs run in the thread of a scheduler. Tokens that are added to several texts at the same time are rows of one run. A
    row does not depend on the others, so that a text is the same in any company. In a model with recurrent layers that
    verifies proposed tokens, the rows of a run are consecutive tokens of one text.

    Args:
        model: The model.
        session: The session that compiles its graphs.
        context: The largest number of tokens of a text.
        cache_dtype: The dtype of the cache, or the format of its packed rows.
        activations: The precision of activations in products with packed weights.
        parallel: The number of texts for which the cache has pages and slots, unless they take more than `LARGEST_CACHE`.
        drafted: The number of proposed tokens that are verified in one run.
        rewind: The number of last tokens that `CachedText.continue_at` may remove without forgetting a recurrent state.
        predicts: Whether the model has a head that predicts further tokens, for `predict`.
    """

    def __init__(
        self,
        model: PretrainedModel,
        session: Session,
        *,
        context: int,
        cache_dtype: str,
        activations: str,
        parallel: int = 1,
        drafted: int = 0,
        rewind: int = 0,
        predicts: bool = False,
    ) -> None:
        self.context, self._predicts = context, predicts
        self._model, self._session = model, session
        self._cache_dtype, self._activations = cache_dtype, activations
        self._scheduler = Scheduler()
        self._is_recurrent = model.config.recurrent_elements > 0
        self._is_consecutive = self._is_recurrent and drafted > 0
        # The rows of a run: texts or, if it is consecutive, tokens of one text.
        self.run_rows = drafted + 1 if self._is_consecutive else min(max(parallel, drafted + 1), _MOST_ROWS)
        self._page = min(_PAGE, -(-context // _PAGE_STEP) * _PAGE_STEP)
        self._pages_of_text = -(-context // self._page)
        self._pages = self._slots = self._checkpoints = self._rewind = 0
        if "pages" in model.sizes:
            affordable = LARGEST_CACHE // (self._page * model.config.cache_bytes(cache_dtype, predicts))
            self._pages = max(self._pages_of_text, min(self._pages_of_text * parallel, affordable))
        if self._is_recurrent:
            self._count_slots(parallel, drafted, rewind)

    def _count_slots(self, parallel: int, drafted: int, rewind: int) -> None:
        """Set the numbers of slots and of checkpoints."""
        config = self._model.config
        size = config.recurrent_elements * dtype("f32").itemsize
        with_logits = size + config.vocab_size * dtype("f32").itemsize
        own = max(drafted, rewind) + 2 if drafted or rewind else 1
        self._rewind = rewind
        self._checkpoints = min(LARGEST_CHECKPOINTS // with_logits, _MOST_CHECKPOINTS)
        self._slots = max(own, min(own * parallel, LARGEST_CACHE // size)) + self._checkpoints

    # --- programs ---------------------------------------------------------------------------------

    @locked_property
    def _generation(self) -> Program:
        sizes: dict[str, Any] = {"context": self.context, "last": True, **self._precision}
        # Rows of a run without a text use the last page and the last slot, and so do texts that have no state yet.
        if self._pages:
            sizes |= {"pages": self._pages + (self.run_rows > 1), "page_length": self._page}
        if self._slots:
            sizes["slots"] = self._slots + 1
        own = {"is_consecutive": self._is_consecutive, "predicts": self._predicts}
        return self._session.compile(generation_graphs(self._model, sizes, self.run_rows, **own))

    @locked_property
    def _cache(self) -> TextCache:
        pages = PagePool(self._pages, self._page) if self._pages else None
        slots = SlotPool(self._slots, self._rewind) if self._slots else None
        return TextCache(pages, slots, self._generation)

    @locked_property
    def _scoring(self) -> Program:
        return self._session.compile(whole_graph(self._model, **self._precision))

    @locked_property
    def _hidden_states(self) -> Program:
        headless = replace(self._model, config=replace(self._model.config, head=False))
        return self._session.compile(whole_graph(headless, **self._precision))

    @property
    def _precision(self) -> dict[str, str]:
        return {"cache_dtype": self._cache_dtype, "activations": self._activations}

    @property
    def text_rows(self) -> int:
        """The largest number of texts in one run."""
        return 1 if self._is_consecutive else self.run_rows

    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        """Return the logits after each token, f32 `[tokens, vocab_size]`."""
        (logits,) = self._scheduler.call(self._scoring.run, {"input_ids": np.array([tokens], np.int32)})
        return logits[0]

    def hidden_states(self, tokens: Sequence[int]) -> np.ndarray:
        """Return the normalised hidden states of the last layer, f32 `[tokens, hidden_size]`."""
        (states,) = self._scheduler.call(self._hidden_states.run, {"input_ids": np.array([tokens], np.int32)})
        return states[0]

    # --- prompts ----------------------------------------------------------------------------------

    def start(self, text: CachedText, prompt: Sequence[int]) -> np.ndarray:
        """Put a prompt into the cache, and return the logits after it, f32 `[vocab_size]`; none if the text is done.

        Between two runs of a long prompt, the tokens that wait are added to other texts. If the text is done then, this ends.

        Args:
            text: A new text.
            prompt: Its tokens, at least one and at most `context`.
        """
        cache = self._cache  # it is compiled in this thread, whose interrupt ends that
        logits = self._scheduler.call(cache.share, text, prompt)
        return self.extend(text, prompt) if logits is None else logits

    def extend(self, text: CachedText, prompt: Sequence[int]) -> np.ndarray:
        """Add the tokens of a prompt to a text that has its first ones, and return the logits after the last.

        There are none if the text is done.
        """
        logits = np.zeros(0, np.float32)
        while text.length < len(prompt) and not text.is_done:
            logits = self._scheduler.call(self._prefill, text, prompt)
        return logits

    def _prefill(self, text: CachedText, prompt: Sequence[int]) -> np.ndarray:
        """Add the next tokens of a prompt: those of one run."""
        text.settle()
        if text.is_done:  # since this call waits; the states of its tokens may belong to another text by now
            return np.zeros(0, np.float32)
        begin = len(text.tokens)
        tokens = prompt[begin : begin + self._page - begin % self._page]
        end = begin + len(tokens)
        self._check_room(text, len(tokens))
        self._cache.admit(text, len(tokens))
        (logits,) = self._run("prefill", [_Row(text, begin, tokens)])
        self._cache.advance(text, [end])
        text.tokens += tokens
        text.reusable = end
        if self._predicts:
            self._predict_rows(text, begin, prompt[begin + 1 : end + 1])
        if self._is_checkpoint(end, len(prompt)):
            self._cache.keep(text, logits)
        return logits

    def _is_checkpoint(self, length: int, prompt_length: int) -> bool:
        """Whether to make a checkpoint after some tokens of a prompt: at its end and at the ends of pages.

        Of a long prompt, the ends of some pages, so that it replaces at most half of all checkpoints.
        """
        if length == prompt_length:
            return self._checkpoints > 0 and not self._rewind
        most = self._checkpoints // 2
        return most > 0 and length // self._page % -(-prompt_length // (self._page * most)) == 0

    # --- single tokens ----------------------------------------------------------------------------

    def step(self, text: CachedText, token: int) -> np.ndarray:
        """Add a token to a text, and return the logits after it, f32 `[vocab_size]`; none if the text is done."""
        return self.steps([(text, token)])[0]

    def steps(self, pairs: Sequence[tuple[CachedText, int]]) -> list[np.ndarray]:
        """Add a token to each of some texts, and return the logits after them."""
        for text, _ in pairs:
            self._check_room(text, 1)
        return self._scheduler.run([Step(text, token, self._run_steps, self.text_rows) for text, token in pairs])

    def _run_steps(self, steps: Sequence[Step]) -> None:
        """Run as many of some steps as have room in the cache together, and at least one."""
        ready: list[Step] = []
        for step in steps:
            step.text.settle()
            if not self._cache.admit(step.text, 1, others=[other.text for other in ready]):
                break
            ready.append(step)
        rows = [_Row(step.text, len(step.text.tokens), [step.token]) for step in ready]
        is_alone = len(rows) == 1 and "decode" in self._generation
        for step, logits in zip(ready, self._run("decode" if is_alone else "batch", rows), strict=True):
            self._cache.advance(step.text, [len(step.text.tokens) + 1])
            step.text.tokens.append(step.token)
            step.finish(logits)

    def verify(self, text: CachedText, tokens: Sequence[int]) -> list[np.ndarray]:
        """Return the logits after each of at most `run_rows` tokens, as `step` returns them; none if the text is done.

        The tokens are rows of one run, and each row sees the tokens before it. They become tokens of the text only by
        `text.continue_at`, which callers call with the number of those that are right.
        """
        return self._scheduler.call(self._verified, text, tokens)

    def _verified(self, text: CachedText, tokens: Sequence[int]) -> list[np.ndarray]:
        text.settle()
        if text.is_done:
            return []
        self._check_room(text, len(tokens))
        self._cache.admit(text, len(tokens), len(tokens))
        first = len(text.tokens)
        results = self._run("batch", [_Row(text, first + i, [token], i) for i, token in enumerate(tokens)])
        self._cache.advance(text, range(first + 1, first + 1 + len(tokens)))
        text.proposed = list(tokens)
        return results

    # --- the head that predicts further tokens ----------------------------------------------------

    def predict(self, text: CachedText, token: int, count: int) -> list[int]:
        """Return at most `count` tokens that the head of the model predicts after the next token of a text.

        The head attends to the earlier states of a text, which it has computed with the prompt. It predicts the first token
        from a state of the model, and further ones from its own. There are none if the text is done, or if it begins with a
        prompt that was in the cache, and has no further token yet: the state after it is not known.
        """
        return self._scheduler.call(self._predict, text, token, count)

    def _predict(self, text: CachedText, token: int, count: int) -> list[int]:
        text.settle()
        first = length = len(text.tokens)
        text.hidden = {place: state for place, state in text.hidden.items() if place < length}  # not of wrong proposals
        while first - 1 in text.hidden:
            first -= 1
        if text.is_done or first == length:
            return []
        self._cache.admit(text, count)
        proposed = [int(self._predict_rows(text, first, [*text.tokens[first + 1 :], token]).argmax())]
        while len(proposed) < count:
            place = length + len(proposed) - 1
            proposed.append(int(self._predict_rows(text, place, proposed[-1:]).argmax()))
        text.hidden = {}
        return proposed

    def _predict_rows(self, text: CachedText, first: int, following: Sequence[int]) -> np.ndarray:
        """Run the head for the states from a position on, and return the last logits. They are taken from `text.hidden`.

        Its own last state takes the next place there, if it is free. Tokens of one run belong to one page.

        Args:
            text: The text.
            first: The position.
            following: The token after each of the states.
        """
        logits, done = np.zeros(0, np.float32), 0
        while done < len(following):
            begin = first + done
            ids = following[done : done + self._page - begin % self._page]
            hidden = np.stack([text.hidden.pop(begin + i) for i in range(len(ids))])
            inputs = self._inputs(1, [_Row(text, begin, ids)]) | {"hidden_states": hidden[None]}
            (logits,), (states,) = (values[:, -1] for values in self._generation["predict"].run(inputs))
            done += len(ids)
            text.hidden.setdefault(first + done, states)
        return logits

    # --- runs -------------------------------------------------------------------------------------

    def _check_room(self, text: CachedText, count: int) -> None:
        if text.length + count > self.context:
            raise Error(f"{text.length + count} tokens do not fit into a context of {self.context}")

    def _run(self, entry: str, rows: Sequence[_Row]) -> list[np.ndarray]:
        """Run a program, and return the last logits of each row."""
        inputs = self._inputs(self.run_rows if entry == "batch" else 1, rows)
        if self._slots:
            inputs |= {name: np.full(len(inputs["start"]), self._slots, np.int32) for name in _SLOT_INPUTS}
            for number, row in enumerate(rows):
                inputs["read_slots"][number] = row.text.slots.get(row.start, self._slots)
                inputs["written_slots"][number] = row.text.written_slots[row.slot_index]
        results = self._generation[entry].run_named(inputs)
        if self._predicts:
            for row, states in zip(rows, results["hidden_states"], strict=False):
                row.text.hidden |= {row.start + i: state for i, state in enumerate(states)}
        return [results["logits"][number, -1] for number in range(len(rows))]

    def _inputs(self, count: int, rows: Sequence[_Row]) -> dict[str, np.ndarray]:
        """Return the tokens, positions and pages of some rows, for a program with `count` of them."""
        ids, starts = np.zeros((count, len(rows[0].tokens)), np.int32), np.zeros(count, np.int32)
        inputs = {"input_ids": ids, "start": starts}
        if self._pages:
            inputs["pages"] = np.full((count, self._pages_of_text), self._pages, np.int32)
        for number, row in enumerate(rows):
            ids[number], starts[number] = row.tokens, row.start
            if self._pages:
                inputs["pages"][number, : len(row.text.pages)] = row.text.pages
        return inputs

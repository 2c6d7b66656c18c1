"""`Engine`: the compiled programs of a model, and the cache of keys and values that they share."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.dtype import dtype
from rlx.ir.graph.graph import Graph
from rlx.ir.interface import Argument
from rlx.ir.op import opview, views
from rlx.kernels.library.packed_formats import FORMATS
from rlx.llm.pages import CachedText, PagePool
from rlx.llm.scheduler import Scheduler, Step
from rlx.models.decoder_config import DecoderConfig
from rlx.models.model import PretrainedModel
from rlx.runtime.program import Program
from rlx.runtime.session import Session
from rlx.support.cached_property import cached_property
from rlx.support.errors import Error

_PAGE = 256  # tokens of a page, and so at most of a run for a prompt: an interrupt waits for one run
_PAGE_STEP = 64  # kernels take pages of a multiple of this number
_CHUNK = 512  # tokens of a run for a prompt of a model without pages
_SYMBOL = "sequence"
_ALIKE = frozenset(("dequant_matmul", "matmul_transposed", "cached_attention"))
_MOST_ROWS = 8  # texts in one run, for which there are kernels
LARGEST_CACHE = 1 << 30  # bytes of keys and values of several texts, or of one if its length is not given


@dataclass(frozen=True)
class _Row:
    """A row of a run: tokens of a text, and the position of the first one."""

    text: CachedText
    start: int
    tokens: Sequence[int]


class Engine:
    """The programs of a model. All methods are thread-safe.

    Programs run in the thread of a scheduler. Tokens that are added to several texts at the same time are rows of one run. A
    row does not depend on the others, so that a text is the same in any company.

    Args:
        model: The model.
        session: The session that compiles its graphs.
        context: The largest number of tokens of a text.
        cache_dtype: The dtype of the cache.
        activations: The precision of activations in products with packed weights.
        parallel: The number of texts for which the cache has pages, unless they take more than `LARGEST_CACHE`.
        drafted: The number of proposed tokens that are verified in one run.
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
    ) -> None:
        self.context = context
        self._model, self._session = model, session
        self._cache_dtype, self._activations = cache_dtype, activations
        self._scheduler = Scheduler()
        self._is_recurrent = is_recurrent(model)
        # Recurrent states cannot go back to an earlier token, and there is one set of them: no sharing, and one row.
        self._rows = 1 if self._is_recurrent else min(max(parallel, drafted + 1), _MOST_ROWS)
        self._page = min(_PAGE, -(-context // _PAGE_STEP) * _PAGE_STEP)
        self._pages_of_text = -(-context // self._page)
        count = max(self._pages_of_text, min(self._pages_of_text * parallel, self._affordable_pages()))
        self._scratch = count  # the page of rows of a run without a text
        self._pool = PagePool(count, self._page) if "pages" in model.sizes else None
        self._current: CachedText | None = None  # the text whose recurrent states are in the program

    def _affordable_pages(self) -> int:
        """Return the number of pages in `LARGEST_CACHE`."""
        return LARGEST_CACHE // (self._page * cache_bytes(self._model.config, self._cache_dtype))

    # --- programs ---------------------------------------------------------------------------------

    @cached_property
    def _generation(self) -> Program:
        sizes: dict[str, Any] = {"context": self.context, "cache_dtype": self._cache_dtype, "last": True}
        sizes["activations"] = self._activations
        if self._pool is not None:
            sizes |= {"pages": self._scratch + (self._rows > 1), "page_length": self._page}
        graphs = {"prefill": self._model.graph(sequence=_SYMBOL, **sizes)}
        decode = self._model.graph(sequence=1, **sizes)
        if self._rows == 1 or _has_equal_rows(decode):
            graphs["decode"] = decode
        if self._rows > 1:
            graphs["batch"] = self._model.graph(sequence=1, batch=self._rows, **sizes)
        if not self._is_recurrent:
            graphs["copy"] = _copy_of_page([a for a in decode.arguments if _is_cache(a.name)])
        return self._session.compile(graphs)

    @cached_property
    def _scoring(self) -> Program:
        return self._session.compile(self._model.graph(sequence=_SYMBOL, activations=self._activations))

    @cached_property
    def _hidden_states(self) -> Program:
        headless = replace(self._model, config=replace(self._model.config, head=False))
        return self._session.compile(headless.graph(sequence=_SYMBOL, activations=self._activations))

    @property
    def rows(self) -> int:
        """The largest number of texts in one run."""
        return self._rows

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
        """Put a prompt into the cache, and return the logits after it, f32 `[vocab_size]`.

        Between two runs of a long prompt, the tokens that wait are added to other texts. If the text is done then, this ends.

        Args:
            text: A new text.
            prompt: Its tokens, at least one and at most `context`.
        """
        _ = self._generation  # it is compiled in this thread, whose interrupt ends that
        self._scheduler.call(self._share, text, prompt)
        return self.extend(text, prompt)

    def extend(self, text: CachedText, prompt: Sequence[int]) -> np.ndarray:
        """Add the tokens of a prompt to a text that has its first ones, and return the logits after the last."""
        logits = np.zeros(0, np.float32)
        while len(text.tokens) < len(prompt) and not text.is_done:
            logits = self._scheduler.call(self._prefill, text, prompt)
        return logits

    def _share(self, text: CachedText, prompt: Sequence[int]) -> None:
        """Use what the cache has of a prompt."""
        if self._pool is None or self._is_recurrent:
            return
        length, copied = self._pool.share(text, prompt)
        if copied is not None:
            source, target = (np.array([page], np.int32) for page in copied)
            self._generation["copy"].run({"source": source, "target": target})
            text.tokens, text.reusable = list(prompt[:length]), length
        text.cached_tokens = length

    def _prefill(self, text: CachedText, prompt: Sequence[int]) -> np.ndarray:
        """Add the next tokens of a prompt: those of one run."""
        begin = len(text.tokens)
        size = _CHUNK if self._pool is None else self._page - begin % self._page
        tokens = prompt[begin : begin + size]
        self._check_room(text, len(tokens))
        self._admit(text, len(tokens), ())
        self._enter(text)
        logits = self._run("prefill", [_Row(text, begin, tokens)])
        text.tokens += tokens
        text.reusable = len(text.tokens)
        return logits[0]

    # --- single tokens ----------------------------------------------------------------------------

    def step(self, text: CachedText, token: int) -> np.ndarray:
        """Add a token to a text, and return the logits after it, f32 `[vocab_size]`; none if the text is done."""
        return self.steps([(text, token)])[0]

    def steps(self, pairs: Sequence[tuple[CachedText, int]]) -> list[np.ndarray]:
        """Add a token to each of some texts, and return the logits after them."""
        for text, _ in pairs:
            self._check_room(text, 1)
        return self._scheduler.run([Step(text, token, self._run_steps, self._rows) for text, token in pairs])

    def _run_steps(self, steps: Sequence[Step]) -> None:
        """Run as many of some steps as have room in the cache together, and at least one."""
        ready: list[Step] = []
        for step in steps:
            if not self._admit(step.text, 1, [other.text for other in ready]):
                break
            ready.append(step)
        if len(ready) == 1:
            self._enter(ready[0].text)
        rows = [_Row(step.text, len(step.text.tokens), [step.token]) for step in ready]
        is_alone = len(rows) == 1 and "decode" in self._generation
        for step, logits in zip(ready, self._run("decode" if is_alone else "batch", rows), strict=True):
            step.text.tokens.append(step.token)
            step.finish(logits)

    def verify(self, text: CachedText, tokens: Sequence[int]) -> list[np.ndarray]:
        """Return the logits after each of at most `rows` tokens, as `step` returns them. The text stays as it is.

        The tokens are rows of one run, and each row sees the tokens before it. Callers add those that are right to
        `text.tokens`.
        """
        return self._scheduler.call(self._verified, text, tokens)

    def _verified(self, text: CachedText, tokens: Sequence[int]) -> list[np.ndarray]:
        self._check_room(text, len(tokens))
        self._admit(text, len(tokens), ())
        first = len(text.tokens)
        return self._run("batch", [_Row(text, first + i, [token]) for i, token in enumerate(tokens)])

    # --- the cache --------------------------------------------------------------------------------

    def _check_room(self, text: CachedText, count: int) -> None:
        if len(text.tokens) + count > self.context:
            raise Error(f"{len(text.tokens) + count} tokens do not fit into a context of {self.context}")

    def _run(self, entry: str, rows: Sequence[_Row]) -> list[np.ndarray]:
        """Run a program, and return the last logits of each row."""
        count = self._rows if entry == "batch" else 1
        ids, starts = np.zeros((count, len(rows[0].tokens)), np.int32), np.zeros(count, np.int32)
        inputs: dict[str, np.ndarray] = {"input_ids": ids, "start": starts}
        if self._pool is not None:
            inputs["pages"] = np.full((count, self._pages_of_text), self._scratch, np.int32)
        for number, row in enumerate(rows):
            ids[number], starts[number] = row.tokens, row.start
            if self._pool is not None:
                inputs["pages"][number, : len(row.text.pages)] = row.text.pages
        (logits,) = self._generation[entry].run(inputs)
        return [logits[number, -1] for number in range(len(rows))]

    def _admit(self, text: CachedText, count: int, others: Collection[CachedText]) -> bool:
        """Give a text pages for more tokens, and move texts that are not in this run out of the cache if need be.

        Returns False if the others of the run leave no room.
        """
        if self._pool is None:
            return True
        pinned = {text, *others}
        while not self._pool.extend(text, len(text.tokens) + count, pinned):
            victim = next((t for t in self._pool.texts if t not in pinned and t.pages), None)
            if victim is None:
                self._move_out(text)
                return False
            self._move_out(victim)
        if text.saved is not None:
            self._write_pages(text.pages, text.saved)
            text.saved = None
        return True

    def _move_out(self, text: CachedText) -> None:
        """Take the pages of a text, and keep their content."""
        assert self._pool is not None
        if text.saved is None and text.tokens and not text.is_done:
            text.saved = {name: self._generation.state(name)[text.pages] for name in self._caches}
        self._pool.release(text)

    def _write_pages(self, pages: Sequence[int], saved: Mapping[str, np.ndarray]) -> None:
        """Write saved pages. The text may need fewer than it had: proposed tokens that were wrong have been forgotten."""
        for name, content in saved.items():
            state, count = self._generation.state(name).copy(), min(len(pages), len(content))
            state[pages[:count]] = content[:count]
            self._generation.set_state(name, state)

    @property
    def _caches(self) -> list[str]:
        return [state.name for state in self._generation.states if _is_cache(state.name)]

    def _enter(self, text: CachedText) -> None:
        """Put the recurrent states of a text into the program, if those of another one are there."""
        if not self._is_recurrent or text is self._current:
            return
        names = [state.name for state in self._generation.states if not _is_cache(state.name)]
        before = self._current
        if before is not None and not before.is_done:
            before.recurrent = {name: self._generation.state(name).copy() for name in names}
        self._current = None  # until all is written, if that fails
        for name, value in (text.recurrent or {}).items():
            self._generation.set_state(name, value)
        self._current, text.recurrent = text, None


def is_recurrent(model: PretrainedModel) -> bool:
    """Whether a model has layers with a state that cannot go back to an earlier token."""
    return getattr(model.config, "linear_attention", None) is not None or "pages" not in model.sizes


def _has_equal_rows(decode: Graph) -> bool:
    """Whether a row of a run with several rows has the bits of the program for one.

    Some kernels of products compute each row alike, whatever their number. Other products depend on it.
    """

    def is_alike(op: mlir.Operation) -> bool:
        has_kernel = op.name != "rlx.dequant_matmul" or views.DequantMatmul(op).scheme.lower() in FORMATS
        return has_kernel and opview.name_of(op) in _ALIKE

    return all(is_alike(op) for op in opview.operations(decode.function.entry_block) if opview.has_trait(op, "product"))


def cache_bytes(config: DecoderConfig, cache_dtype: str) -> int:
    """Return the bytes of the keys and values of a token."""
    return config.num_hidden_layers * (config.key_width + config.value_width) * dtype(cache_dtype).itemsize


def _is_cache(state: str) -> bool:
    """Whether a state has a row for each token. The states of recurrent layers have one for all."""
    return state.startswith(("key_", "value_"))


def _copy_of_page(caches: Sequence[Argument]) -> Graph:
    """Return a graph that copies page `source` of each cache to page `target`."""
    g: Any = Graph("copy_page")
    source, target = g.input("source", (1,), "i32"), g.input("target", (1,), "i32")
    for cache in caches:
        state = g.state(cache.name, cache.shape.dims, cache.shape.dtype)
        page = g.gather(state, source, axis=0)
        g.update(state, g.update_cache(state, page, g.constant([0], dtype="i32"), target))
    g.set_outputs({"copied": target + 0})
    return g

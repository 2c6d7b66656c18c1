"""`Generation`: one text that is being generated, token by token."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing

import numpy as np

from rlx.llm.completion import Chunk, Completion
from rlx.llm.draft import DRAFTED, Draft
from rlx.llm.engine import Engine
from rlx.llm.grammar import GrammarConstraint
from rlx.llm.options import GenerationOptions
from rlx.llm.output_text import OutputText
from rlx.llm.pages import CachedText
from rlx.llm.sampler import Sampler
from rlx.llm.tokenizer import Tokenizer


class Generation:
    """One generation.

    Args:
        engine: The programs of the model.
        tokenizer: The tokenizer.
        prompt: The tokens of the prompt.
        options: The parameters.
        seed: The seed, in place of that of the parameters.
        vocab_size: The number of logits.
        draft: Proposes tokens; None for one at a time.

    Attributes:
        text: The text in the cache.
        token: The token to add to the text, whose logits `advance` takes next; None at the end.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        prompt: list[int],
        options: GenerationOptions,
        seed: int,
        vocab_size: int,
        draft: Draft | None = None,
    ) -> None:
        self._engine, self._prompt, self._options = engine, prompt, options
        self.text = CachedText()
        self.token: int | None = None
        self._draft = draft
        self._all = list(prompt)
        self._sampler = Sampler(options, prompt, seed, vocab_size)
        self._output = OutputText(tokenizer, options.stops)
        source = options.constraint
        self._constraint = None if source is None else GrammarConstraint(source, tokenizer, vocab_size)
        self._ends: frozenset[int] = frozenset() if options.ignore_eos else tokenizer.eos_token_ids
        room = engine.context - len(prompt)
        self._left = room if options.max_tokens is None else min(options.max_tokens, room)
        self._tokens: list[int] = []  # that no chunk has had yet
        self._logprobs: list[dict[int, float]] = []
        self._proposed = self._accepted = 0

    @property
    def has_draft(self) -> bool:
        """Whether tokens are proposed. These generations are not computed together."""
        return self._draft is not None

    def begin(self) -> np.ndarray | None:
        """Put the prompt into the cache, and return its logits; None if no token is to be generated."""
        return self._engine.start(self.text, self._prompt) if self._left else None

    def advance(self, logits: np.ndarray | None) -> Chunk | None:
        """Choose a token, and return the new part of the text, if there is one. The last part has the reason of the end."""
        self.token = None
        if logits is None or self._is_complete:
            return self._end("")
        allowed = None if self._constraint is None else self._constraint.allowed()
        token, logprobs = self._sampler.choose(logits, allowed)
        if token in self._ends:
            return self._chunk(self._output.flush(), "stop")
        text = self._output.push(token)
        if self._output.is_stopped:
            return self._chunk(text, "stop")
        self._tokens.append(token)
        self._all.append(token)
        if logprobs is not None:
            self._logprobs.append(logprobs)
        if self._constraint is not None:
            self._constraint.accept(token)
        self._left -= 1
        if not self._left or self._is_complete:
            return self._end(text)
        self.token = token
        return self._chunk(text, None) if text else None

    def cancel(self) -> None:
        """End the generation after the run of the model that computes it now."""
        self.text.is_done = True

    def chunks(self) -> Generator[Chunk]:
        """Generate, and yield the parts of the text."""
        if self._draft is not None:
            yield from self._drafted_chunks(self._draft)
            return
        try:
            logits = self.begin()
            while not self.text.is_done:
                chunk = self.advance(logits)
                if chunk is not None:
                    yield chunk
                if self.token is None:
                    return
                logits = self._engine.step(self.text, self.token)
        finally:
            self.text.is_done = True

    def _drafted_chunks(self, draft: Draft) -> Iterator[Chunk]:
        """Generate like `chunks`, with proposed tokens."""
        proposer, engine = draft.proposer(self.text), self._engine
        try:
            fed, results = list[int](), [self.begin()]
            while not self.text.is_done:
                chunk = self.advance(results[0])
                for token, logits in zip(fed[1:], results[1:], strict=True):
                    if token != self.token:  # the proposal is wrong
                        break
                    self._accepted += 1
                    if chunk is not None:
                        yield chunk
                    if self.text.is_done:  # the reader of the part has ended the text
                        return
                    chunk = self.advance(logits)
                if chunk is not None:
                    yield chunk
                if self.token is None or self.text.is_done:
                    return
                self.text.continue_at(len(self._all) - 1)
                room = engine.context - len(self._all)
                proposed = proposer.propose(self._all, min(DRAFTED, self._left - 1, room))
                fed = [self.token, *proposed]
                results = engine.verify(self.text, fed) if proposed else [engine.step(self.text, self.token)]
                self._proposed += len(proposed)
        finally:
            proposer.close()
            self.text.is_done = True

    @property
    def _is_complete(self) -> bool:
        """Whether a grammar cannot continue the text."""
        return self._constraint is not None and self._constraint.is_complete

    def _end(self, text: str) -> Chunk:
        text += self._output.flush()
        return self._chunk(text, "stop" if self._output.is_stopped or self._is_complete else "length")

    def _chunk(self, text: str, finish_reason: str | None) -> Chunk:
        """Return the tokens since the last chunk with their text."""
        tokens, logprobs = self._tokens, self._logprobs
        self._tokens, self._logprobs = [], []
        own = None if self._options.logprobs is None else logprobs
        return Chunk(text, tokens, finish_reason, own, self.text.cached_tokens, self._proposed, self._accepted)


class TextStream(Iterator[Chunk]):
    """The parts of a text that is being generated. `for` gives them one after the other.

    Args:
        chunks: Generates them.
        cancel: Ends the generation, from any thread.
    """

    def __init__(self, chunks: Generator[Chunk], cancel: Callable[[], None]):
        self._chunks, self._cancel = chunks, cancel

    def __next__(self) -> Chunk:
        return next(self._chunks)

    def close(self) -> None:
        """End the generation. No other thread may be waiting for a part; see `cancel`."""
        self._chunks.close()
        self.cancel()

    def cancel(self) -> None:
        """End the generation, from any thread. One that waits for a part has no more, after at most a run of the model."""
        self._cancel()


class TextGroup(Iterator[tuple[int, Chunk]]):
    """The parts of several texts that are generated together, as far as the programs have rows for them.

    An iterator of pairs: the number of a text, and its next part. Parts of different texts alternate.

    Args:
        engine: The programs of the model.
        generations: The texts. Each is taken when there is a row for it.
    """

    def __init__(self, engine: Engine, generations: Iterable[Generation]):
        self._engine, self._waiting = engine, enumerate(generations)
        self._running: dict[int, Generation] = {}
        self._is_cancelled = False
        self._pairs = self._generated()

    def __next__(self) -> tuple[int, Chunk]:
        return next(self._pairs)

    def end(self, number: int) -> None:
        """End one text. It has no more parts."""
        if number in self._running:
            self._running[number].cancel()

    def close(self) -> None:
        """End all texts. No other thread may be waiting for a part; see `cancel`."""
        self._pairs.close()

    def cancel(self) -> None:
        """End all texts, from any thread. One that waits for a part has no more, after at most a run of the model."""
        self._is_cancelled = True
        for generation in list(self._running.values()):
            generation.cancel()

    def _generated(self) -> Generator[tuple[int, Chunk]]:
        try:
            while True:
                while len(self._running) < self._engine.text_rows and (started := self._next()) is not None:
                    number, generation = started
                    if generation.has_draft:
                        yield from ((number, chunk) for chunk in generation.chunks())
                        self._running.pop(number, None)
                    else:
                        yield from self._advanced(number, generation.begin())
                if not self._running:
                    return
                numbers = list(self._running)
                steps = [(g.text, g.token) for g in self._running.values() if g.token is not None]
                for number, logits in zip(numbers, self._engine.steps(steps), strict=True):
                    yield from self._advanced(number, logits)
        finally:
            for generation in self._running.values():
                generation.cancel()

    def _next(self) -> tuple[int, Generation] | None:
        """Return the next text that waits, which then runs."""
        pair = None if self._is_cancelled else next(self._waiting, None)
        if pair is not None:
            number, self._running[number] = pair
            if self._is_cancelled:  # by another thread, which has not seen this text
                pair[1].cancel()
        return pair

    def _advanced(self, number: int, logits: np.ndarray | None) -> Iterator[tuple[int, Chunk]]:
        """Yield the next part of a text, if there is one, and forget a text that is complete."""
        generation = self._running[number]
        chunk = None if generation.text.is_done else generation.advance(logits)
        if generation.text.is_done or generation.token is None:
            generation.cancel()
            del self._running[number]
        if chunk is not None:
            yield number, chunk


def generated(engine: Engine, generations: Sequence[Generation]) -> list[list[Chunk]]:
    """Return the parts of some texts, which are generated together as far as the programs have rows for them."""
    results: list[list[Chunk]] = [[] for _ in generations]
    with closing(TextGroup(engine, generations)) as group:
        for number, chunk in group:
            results[number].append(chunk)
    return results


def completion(chunks: Sequence[Chunk], prompt_tokens: int) -> Completion:
    """Return the completion whose parts these are."""
    reason = chunks[-1].finish_reason
    assert reason is not None
    logprobs = None if chunks[-1].logprobs is None else [p for chunk in chunks for p in chunk.logprobs or ()]
    tokens = [token for chunk in chunks for token in chunk.tokens]
    text = "".join(chunk.text for chunk in chunks)
    proposals = (chunks[-1].proposed_tokens, chunks[-1].accepted_tokens)
    return Completion(text, tokens, reason, prompt_tokens, chunks[-1].cached_tokens, logprobs, *proposals)

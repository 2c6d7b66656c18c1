"""`Engine`: the compiled programs of a model, and the cache of keys and values that they share."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rlx.models.model import PretrainedModel
from rlx.runtime.program import Program
from rlx.runtime.session import Session
from rlx.support.cached_property import cached_property
from rlx.support.errors import Error

_CHUNK = 512  # tokens of a prompt in one run: memory for activations is bounded, and an interrupt waits for one run
_SYMBOL = "sequence"


class CachedText:
    """A text whose keys and values are in the cache, or were, until another text took its place.

    Attributes:
        tokens: The tokens in the cache.
        cached_tokens: The number of tokens of the prompt that were in the cache before.
        saved: Keys and values by the name of the state, while another text is in the cache.
        is_done: Whether the text is complete, so that its keys and values need not be saved.
    """

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.cached_tokens = 0
        self.saved: dict[str, np.ndarray] | None = None
        self.is_done = False


class Engine:
    """The programs of a model. All methods are thread-safe.

    Keys and values of a prompt are computed by one program, and those of generated tokens by another, with small differences
    of rounding. Only the former are used again for another prompt, so that a result does not depend on earlier calls.

    Args:
        model: The model.
        session: The session that compiles its graphs.
        context: The largest number of tokens of a text.
        cache_dtype: The dtype of the cache.
        activations: The precision of activations in products with packed weights.
    """

    def __init__(
        self, model: PretrainedModel, session: Session, *, context: int, cache_dtype: str, activations: str
    ) -> None:
        self.context = context
        self._model, self._session = model, session
        self._cache_dtype, self._activations = cache_dtype, activations
        self._lock = threading.RLock()
        # Recurrent states cannot go back to an earlier token, so prompts are always computed from the start.
        self._is_recurrent = getattr(model.config, "linear_attention", None) is not None
        self._current = CachedText()
        self._reusable = 0  # tokens at the start of the current text, computed as a prompt

    @cached_property
    def _generation(self) -> Program:
        sizes: dict[str, Any] = {"context": self.context, "cache_dtype": self._cache_dtype, "last": True}
        sizes["activations"] = self._activations
        graphs = {
            "prefill": self._model.graph(sequence=_SYMBOL, **sizes),
            "decode": self._model.graph(sequence=1, **sizes),
        }
        return self._session.compile(graphs)

    @cached_property
    def _scoring(self) -> Program:
        return self._session.compile(self._model.graph(sequence=_SYMBOL, activations=self._activations))

    @cached_property
    def _hidden_states(self) -> Program:
        headless = replace(self._model, config=replace(self._model.config, head=False))
        return self._session.compile(headless.graph(sequence=_SYMBOL, activations=self._activations))

    def start(self, text: CachedText, prompt: Sequence[int]) -> np.ndarray:
        """Put a prompt into the cache, and return the logits after it, f32 `[vocab_size]`.

        Args:
            text: A new text.
            prompt: Its tokens, at least one and at most `context`.
        """
        with self._lock:
            reusable = 0 if self._is_recurrent else self._reusable
            shared = _common_length(self._current.tokens[:reusable], prompt[:-1])
            self._leave()
            self._current, self._reusable = text, shared
            text.tokens, text.cached_tokens = list(prompt[:shared]), shared
            return self._add(text, prompt[shared:])

    def _add(self, text: CachedText, tokens: Sequence[int]) -> np.ndarray:
        """Add tokens of a prompt to the current text, and return the logits after them."""
        logits = np.zeros(0, np.float32)
        for begin in range(0, len(tokens), _CHUNK):
            chunk = list(tokens[begin : begin + _CHUNK])
            logits = self._run("prefill", chunk, len(text.tokens))
            text.tokens += chunk
            self._reusable = len(text.tokens)
        return logits

    def rewind(self, text: CachedText, length: int) -> None:
        """Forget the tokens of a text after the first ones."""
        with self._lock:
            self._enter(text)
            if self._is_recurrent and length < len(text.tokens):
                prompt, text.tokens = text.tokens[:length], []
                self._add(text, prompt)
            del text.tokens[length:]
            self._reusable = min(self._reusable, length)

    def step(self, text: CachedText, token: int) -> np.ndarray:
        """Add a token to a text, and return the logits after it, f32 `[vocab_size]`."""
        with self._lock:
            self._enter(text)
            logits = self._run("decode", [token], len(text.tokens))
            text.tokens.append(token)
            return logits

    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        """Return the logits after each token, f32 `[tokens, vocab_size]`."""
        with self._lock:
            (logits,) = self._scoring.run({"input_ids": np.array([tokens], np.int32)})
            return logits[0]

    def hidden_states(self, tokens: Sequence[int]) -> np.ndarray:
        """Return the normalised hidden states of the last layer, f32 `[tokens, hidden_size]`."""
        with self._lock:
            (states,) = self._hidden_states.run({"input_ids": np.array([tokens], np.int32)})
            return states[0]

    def _run(self, entry: str, tokens: Sequence[int], start: int) -> np.ndarray:
        if start + len(tokens) > self.context:
            raise Error(f"{start + len(tokens)} tokens do not fit into a context of {self.context}")
        inputs = {"input_ids": np.array([tokens], np.int32), "start": np.array([start], np.int32)}
        (logits,) = self._generation[entry].run(inputs)
        return logits[0, -1]

    def _enter(self, text: CachedText) -> None:
        """Put a text back into the cache, if another one took its place."""
        if text is self._current:
            return
        self._leave()
        assert text.saved is not None
        # Until all is written, the cache belongs to no text: an interrupt may end this.
        self._current, self._reusable = CachedText(), 0
        for name, rows in text.saved.items():
            state = self._generation.state(name).copy()
            if _is_cache(name):
                state[:, : rows.shape[1]] = rows
            else:
                state[...] = rows
            self._generation.set_state(name, state)
        text.saved, self._current = None, text

    def _leave(self) -> None:
        """Save the keys and values of the current text, if it is not complete."""
        text = self._current
        if not text.is_done and text.tokens:
            length = len(text.tokens)
            names = [state.name for state in self._generation.states]
            states = {name: self._generation.state(name) for name in names}
            text.saved = {n: (s[:, :length] if _is_cache(n) else s).copy() for n, s in states.items()}


def _is_cache(state: str) -> bool:
    """Whether a state has a row for each token. The states of recurrent layers have one for all."""
    return state.startswith(("key_", "value_"))


def _common_length(a: Sequence[int], b: Sequence[int]) -> int:
    for number, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            return number
    return min(len(a), len(b))

"""Choice of the next token from logits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from rlx.llm.distribution import drawn, likeliest, nucleus, top_logprobs
from rlx.llm.options import GenerationOptions
from rlx.support.errors import Error


class Sampler:
    """Chooses tokens one after the other.

    The order is that of llama.cpp: logit bias, grammar, penalties, top-k, top-p, min-p, temperature. The tokens that are left
    are in the order of their ids when one is drawn, so that a change of two similar logits by rounding changes no text.

    Args:
        options: The parameters.
        prompt: The ids of the prompt, for the repetition penalty.
        seed: The seed of the random numbers. Each token takes one of them.
        vocab_size: The number of tokens.

    Raises:
        Error: A token of `logit_bias` is not in the vocabulary.
    """

    def __init__(self, options: GenerationOptions, prompt: Iterable[int], seed: int, vocab_size: int):
        self._options = options
        self._random = np.random.default_rng(seed)
        self._output: Counter[int] = Counter()
        self._seen = set(prompt) if options.repetition_penalty != 1 else set[int]()
        biases: Mapping[int, float] = options.logit_bias or {}
        beyond = [token for token in biases if token >= vocab_size]
        if beyond:
            raise Error(f"logit_bias has token {beyond[0]}, and the model has {vocab_size} tokens")
        self._biased = np.array(list(biases), np.int64)
        self._biases = np.array(list(biases.values()), np.float64)

    def choose(self, logits: np.ndarray, allowed: np.ndarray | None = None) -> tuple[int, dict[int, float] | None]:
        """Return the next token, and the log-probabilities that the options ask for.

        Args:
            logits: f32 `[vocab_size]`.
            allowed: The tokens that a grammar allows, bool `[vocab_size]`; None allows all. Log-probabilities are those of
                the distribution before it is applied.

        Raises:
            Error: A logit is NaN or infinity, or no token is left.
        """
        scores = logits.astype(np.float64)
        if len(self._biased):
            scores[self._biased] += self._biases
        greatest = scores.max()
        if np.isnan(greatest) or greatest == np.inf:
            problem = "NaN" if np.isnan(greatest) else "infinity"
            hint = "rlx.evaluate with the pass rlx-check-numerics finds the op"
            raise Error(f"the model's logits have {problem}", hint=hint)
        penalised = self._penalised(scores if allowed is None else np.where(allowed, scores, -np.inf))
        token = self._drawn(penalised)
        count = self._options.logprobs
        logprobs = None if count is None else top_logprobs(scores, count, token)
        self._output[token] += 1
        self._seen.add(token)
        return token, logprobs

    def _penalised(self, scores: np.ndarray) -> np.ndarray:
        options = self._options
        has_penalties = options.presence_penalty or options.frequency_penalty
        if options.repetition_penalty == 1 and not (has_penalties and self._output):
            return scores
        scores = scores.copy()
        with np.errstate(over="ignore", invalid="ignore"):
            self._penalise(scores, bool(has_penalties))
        return np.nan_to_num(scores, copy=False, nan=-np.inf, neginf=-np.inf)

    def _penalise(self, scores: np.ndarray, has_penalties: bool) -> None:
        options = self._options
        if options.repetition_penalty != 1 and self._seen:
            seen = np.fromiter(self._seen, np.int64)
            old = scores[seen]
            scores[seen] = np.where(old > 0, old / options.repetition_penalty, old * options.repetition_penalty)
        if has_penalties and self._output:
            tokens = np.fromiter(self._output, np.int64)
            counts = np.fromiter(self._output.values(), np.float64)
            scores[tokens] -= options.presence_penalty + options.frequency_penalty * counts

    def _drawn(self, scores: np.ndarray) -> int:
        options = self._options
        best = int(scores.argmax())  # of equal ones the first
        if scores[best] == -np.inf:
            raise Error("logit_bias excludes all tokens, or all that the grammar allows")
        if options.temperature == 0:
            return best
        ids = self._candidates(scores)
        kept = scores if ids is None else scores[ids]
        number = drawn(kept, options.temperature, self._random.random())
        return number if ids is None else int(ids[number])

    def _candidates(self, scores: np.ndarray) -> np.ndarray | None:
        """Return the ids of the tokens that top-k, top-p and min-p keep, in ascending order; None for all."""
        options, ids, kept = self._options, None, scores
        if 0 < options.top_k < len(scores):
            ids = likeliest(scores, options.top_k)
            kept = scores[ids]
        if options.top_p < 1:
            inner = nucleus(kept, options.top_p)
            ids, kept = inner if ids is None else ids[inner], kept[inner]
        if options.min_p > 0:
            inner = np.flatnonzero(kept >= kept.max() + np.log(options.min_p))
            ids = inner if ids is None else ids[inner]
        return ids

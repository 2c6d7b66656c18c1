"""`LLM`: a language model with its tokenizer, which generates text."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, Unpack

import numpy as np

from rlx.llm.completion import Chunk, Completion
from rlx.llm.engine import CachedText, Engine
from rlx.llm.options import GenerationKeywords, GenerationOptions, checked_options
from rlx.llm.output_text import OutputText
from rlx.llm.sampler import Sampler
from rlx.llm.tokenizer import Tokenizer
from rlx.models.model import PretrainedModel
from rlx.support.errors import Error
from rlx.support.options import takes_options
from rlx.support.short import short_repr
from rlx.weights import Weights

Prompt = str | Sequence[int]
_RESERVED = frozenset(("messages", "tokenize", "tools", "chat_template"))
_POOLINGS = ("mean", "last")


class LLM:
    """A language model with its tokenizer. `rlx.llm.load` returns one. It can be used by several threads.

    Attributes:
        architecture: The name of the architecture in the file: `"llama"`, `"qwen3"`.
        context: The largest number of tokens of a text, prompt included.
        config: Sizes and options of the model.
        metadata: The metadata of a GGUF file; empty for a folder.
        weights: The tensors of the file.
        tokenizer: The tokenizer.
    """

    def __init__(
        self, model: PretrainedModel, engine: Engine, tokenizer: Tokenizer, weights: Weights, architecture: str
    ) -> None:
        self.architecture, self.config, self.context = architecture, model.config, engine.context
        self.metadata: Mapping[str, Any] = weights.metadata
        self.weights, self.tokenizer = weights, tokenizer
        self._engine: Engine | None = engine

    def __repr__(self) -> str:
        return f"<LLM {self.architecture} of {self.weights.origin}, context {self.context}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        raise Error(f"{self!r} cannot be pickled or copied", hint="load the file again: its weights are mapped")

    def close(self) -> None:
        """Release the programs and their cache. The model cannot generate afterwards."""
        self._engine = None

    @takes_options(GenerationOptions)
    def generate(self, prompt: Prompt | Sequence[Prompt], **options: Unpack[GenerationKeywords]) -> Any:
        """Continue a text.

        Args:
            prompt: A text, whose control tokens are recognised; a list of token ids; or a list of prompts.

        Returns:
            A `Completion`; a list of them for `n` above 1, and a list of these results for a list of prompts.

        Raises:
            Error: A prompt is empty or does not fit into the context, or an option is not valid.
        """
        checked = checked_options(options)
        if _is_list_of_prompts(prompt):
            return [self._completions(self._tokens(p), checked) for p in prompt]  # type: ignore[arg-type]
        return self._completions(self._tokens(prompt), checked)  # type: ignore[arg-type]

    @takes_options(GenerationOptions)
    def stream(self, prompt: Prompt, **options: Unpack[GenerationKeywords]) -> Iterator[Chunk]:
        """Continue a text, and yield its parts as they are generated. Joined, they are the text of `generate`.

        Args:
            prompt: A text, or a list of token ids.

        Raises:
            Error: As for `generate`, or `n` is not 1.
        """
        return self._streamed(self._tokens(prompt), _single(checked_options(options)))

    @takes_options(GenerationOptions)
    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Any] | None = None,
        template_options: Mapping[str, Any] | None = None,
        **options: Unpack[GenerationKeywords],
    ) -> Any:
        """Answer the last of some messages.

        Args:
            messages: `{"role": "user", "content": "…"}` and others that the model's template accepts.
            tools: Descriptions of tools, for the template.
            template_options: More variables of the template.

        Returns:
            A `Completion`, or a list of them for `n` above 1.

        Raises:
            Error: The model has no chat template, the template refuses the messages, or as for `generate`.
        """
        return self._completions(self._chat_tokens(messages, tools, template_options), checked_options(options))

    @takes_options(GenerationOptions)
    def chat_stream(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Any] | None = None,
        template_options: Mapping[str, Any] | None = None,
        **options: Unpack[GenerationKeywords],
    ) -> Iterator[Chunk]:
        """Answer the last of some messages, and yield the parts of the answer. See `chat` and `stream`."""
        checked = _single(checked_options(options))
        return self._streamed(self._chat_tokens(messages, tools, template_options), checked)

    def logits(self, prompt: Prompt) -> np.ndarray:
        """Return the logits after each token of a prompt, f32 `[tokens, vocabulary]`."""
        return self.engine.logits(self._tokens(prompt))

    def embed(self, texts: str | Sequence[str], pooling: str = "mean", normalize: bool = True) -> np.ndarray:
        """Return a vector for each text, f32 `[n, width]`: pooled states of the last layer.

        Args:
            texts: A text, or a list of texts.
            pooling: `"mean"` of all tokens, or the `"last"` one.
            normalize: Whether the vectors are divided by their lengths.
        """
        if pooling not in _POOLINGS:
            raise Error(f"pooling must be one of {', '.join(_POOLINGS)}, got {short_repr(pooling)}")
        listed = [texts] if isinstance(texts, str) else texts
        if not isinstance(listed, (list, tuple)):
            raise Error(f"expected a text or a list of texts, got {short_repr(texts)}")
        rows: list[np.ndarray] = []
        for text in listed:
            states = self.engine.hidden_states(self._tokens(text)).astype(np.float64)
            row = states.mean(0) if pooling == "mean" else states[-1]
            rows.append(row / max(float(np.linalg.norm(row)), 1e-12) if normalize else row)
        return np.array(rows, np.float32).reshape(len(rows), self.config.hidden_size)

    def perplexity(self, text: str, *, context: int = 512) -> float:
        """Return the perplexity of a text, as llama.cpp's tool defines it.

        The tokens are cut into windows of `context`. The first token of each becomes BOS, if the model has one, and the
        tokens of the second half are predicted.

        Raises:
            Error: The text has fewer than `2·context` tokens, or the context is not valid.
        """
        return float(np.exp(np.mean(self.negative_log_likelihoods(text, context=context))))

    def negative_log_likelihoods(self, text: str, *, context: int = 512) -> np.ndarray:
        """Return the negative log-probabilities of the predicted tokens, f64. `perplexity` is the exponential of their mean."""
        limit = min(self.context, self.config.max_position_embeddings)
        if type(context) is not int or not 4 <= context <= limit:
            raise Error(f"context must be an integer from 4 to {limit}, got {short_repr(context)}")
        tokens = self._tokens(text, largest=None)
        if len(tokens) < 2 * context:
            raise Error(
                f"the text has {len(tokens)} tokens, and at least {2 * context} are needed for a context of {context}"
            )
        first = self.tokenizer.bos_token_id
        has_first = bool(self.tokenizer.vocabulary.prefix)
        losses: list[np.ndarray] = []
        for begin in range(0, len(tokens) // context * context, context):
            window = list(tokens[begin : begin + context])
            if has_first and first is not None:
                window[0] = first
            logits = self.engine.logits(window).astype(np.float64)[context // 2 : -1]
            top = logits.max(-1, keepdims=True)
            totals = top[:, 0] + np.log(np.exp(logits - top).sum(-1))
            following = np.array(tokens[begin + context // 2 + 1 : begin + context])
            losses.append(totals - logits[np.arange(len(following)), following])
        return np.concatenate(losses)

    @property
    def engine(self) -> Engine:
        """The compiled programs and their cache.

        Raises:
            Error: The model is closed.
        """
        if self._engine is None:
            raise Error("the model is closed", hint="load it again with rlx.llm.load")
        return self._engine

    def _tokens(self, prompt: object, largest: int | None = -1) -> list[int]:
        """Return the tokens of a prompt, at most `largest` of them; by default the context."""
        is_text = isinstance(prompt, str)
        tokens: list[int] = self.tokenizer.encode(prompt) if is_text else _ids(prompt, self.config.vocab_size)
        if not tokens:
            raise Error("the prompt is empty, and the model has no token that starts a text")
        most = self.context if largest == -1 else largest
        if most is not None and len(tokens) > most:
            raise Error(
                f"the prompt has {len(tokens)} tokens, and the context {most}",
                hint="load the model with a larger context=, or shorten the prompt",
            )
        return tokens

    def _chat_tokens(
        self, messages: Any, tools: Sequence[Any] | None, template_options: Mapping[str, Any] | None
    ) -> list[int]:
        variables = _template_options(template_options)
        text = self.tokenizer.apply_chat_template(messages, tools=tools, **variables)
        assert isinstance(text, str)  # tokenize=False
        # Templates write the token that starts a text themselves.
        return self._tokens(self.tokenizer.encode(text, add_special_tokens=False))

    def _completions(self, prompt: list[int], options: GenerationOptions) -> Any:
        seed = secrets.randbits(63) if options.seed is None else options.seed
        results: list[Completion] = []
        text = CachedText()
        logits: np.ndarray | None = None
        try:
            for number in range(options.n):
                generation = _Generation(self, prompt, replace(options, seed=seed + number), text, logits)
                chunks = list(generation.chunks())
                logits = generation.first_logits
                results.append(_joined(chunks, len(prompt), text.cached_tokens, options))
        finally:
            text.is_done = True
        return results[0] if options.n == 1 else results

    def _streamed(self, prompt: list[int], options: GenerationOptions) -> Iterator[Chunk]:
        seed = secrets.randbits(63) if options.seed is None else options.seed
        text = CachedText()
        try:
            yield from _Generation(self, prompt, replace(options, seed=seed), text, None).chunks()
        finally:
            text.is_done = True


class _Generation:
    """One generation.

    Args:
        model: The model.
        prompt: The tokens of the prompt.
        options: The parameters, with a seed.
        text: The text in the cache. It has the prompt already if `first_logits` is not None.
        first_logits: The logits after the prompt.
    """

    def __init__(
        self,
        model: LLM,
        prompt: list[int],
        options: GenerationOptions,
        text: CachedText,
        first_logits: np.ndarray | None,
    ) -> None:
        self._model, self._prompt, self._options, self._text = model, prompt, options, text
        self.first_logits = first_logits
        assert options.seed is not None
        self._sampler = Sampler(options, prompt, options.seed, model.config.vocab_size)
        self._output = OutputText(model.tokenizer, options.stops)

    def chunks(self) -> Iterator[Chunk]:
        """Yield the parts of the text; the last one has the reason of the end."""
        options, pending = self._options, _Pending(self._options)
        ends: frozenset[int] = frozenset() if options.ignore_eos else self._model.tokenizer.eos_token_ids
        room = self._model.context - len(self._prompt) + 1  # the last token need not be in the cache
        limit = room if options.max_tokens is None else min(options.max_tokens, room)
        logits = self._begin() if limit else None
        for number in range(limit):
            assert logits is not None
            token, logprobs = self._sampler.choose(logits)
            if token in ends:
                yield pending.chunk(self._output.flush(), "stop")
                return
            text = self._output.push(token)
            if self._output.is_stopped:
                yield pending.chunk(text, "stop")
                return
            pending.add(token, logprobs)
            if text:
                yield pending.chunk(text, None)
            if number + 1 < limit:
                logits = self._model.engine.step(self._text, token)
        text = self._output.flush()
        yield pending.chunk(text, "stop" if self._output.is_stopped else "length")

    def _begin(self) -> np.ndarray:
        engine = self._model.engine
        if self.first_logits is None:
            self.first_logits = engine.start(self._text, self._prompt)
        else:
            engine.rewind(self._text, len(self._prompt))
        return self.first_logits


class _Pending:
    """Tokens that have not been yielded yet."""

    def __init__(self, options: GenerationOptions):
        self._has_logprobs = options.logprobs is not None
        self._tokens: list[int] = []
        self._logprobs: list[dict[int, float]] = []

    def add(self, token: int, logprobs: dict[int, float] | None) -> None:
        self._tokens.append(token)
        if logprobs is not None:
            self._logprobs.append(logprobs)

    def chunk(self, text: str, finish_reason: str | None) -> Chunk:
        """Return the tokens with their text, and forget them."""
        tokens, logprobs = self._tokens, self._logprobs
        self._tokens, self._logprobs = [], []
        return Chunk(text, tokens, finish_reason, logprobs if self._has_logprobs else None)


def _joined(chunks: Sequence[Chunk], prompt_tokens: int, cached: int, options: GenerationOptions) -> Completion:
    reason = chunks[-1].finish_reason
    assert reason is not None
    logprobs = None if options.logprobs is None else [p for chunk in chunks for p in chunk.logprobs or ()]
    tokens = [token for chunk in chunks for token in chunk.tokens]
    return Completion("".join(chunk.text for chunk in chunks), tokens, reason, prompt_tokens, cached, logprobs)


def _single(options: GenerationOptions) -> GenerationOptions:
    if options.n != 1:
        raise Error(f"a stream has one result, and n is {options.n}")
    return options


def _is_list_of_prompts(prompt: Any) -> bool:
    return isinstance(prompt, (list, tuple)) and bool(prompt) and isinstance(prompt[0], (str, list, tuple, np.ndarray))


def _template_options(options: Any) -> dict[str, Any]:
    """Return the variables of a template, checked."""
    if options is None:
        return {}
    names = isinstance(options, Mapping) and all(isinstance(name, str) for name in options)
    if not names or not _RESERVED.isdisjoint(options):
        reserved = ", ".join(sorted(_RESERVED))
        raise Error(f"template_options must be a mapping of names other than {reserved}, got {short_repr(options)}")
    return dict(options)


def _ids(prompt: Any, vocab_size: int) -> list[int]:
    """Return token ids, checked."""
    try:
        ids = np.asarray(list(prompt) if isinstance(prompt, (list, tuple, np.ndarray)) else None)
    except (TypeError, ValueError):
        ids = np.zeros(0, object)
    if ids.size and ids.ndim == 1 and ids.dtype.kind in "iu" and ids.min() >= 0 and ids.max() < vocab_size:
        return ids.tolist()
    if isinstance(prompt, (list, tuple)) and not prompt:
        return []
    expected = f"a text, or a list of token ids from 0 to {vocab_size - 1}"
    raise Error(f"a prompt must be {expected}, got {short_repr(prompt)}")

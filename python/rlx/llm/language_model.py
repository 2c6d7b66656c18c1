"""`LLM`: a language model with its tokenizer, which generates text."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

import numpy as np

from rlx.llm.distribution import log_sum_exp
from rlx.llm.draft import Draft
from rlx.llm.engine import Engine
from rlx.llm.generation import Generation, TextGroup, TextStream, completion, generated
from rlx.llm.options import GenerationKeywords, GenerationOptions, checked_options
from rlx.llm.tokenizer import Tokenizer
from rlx.llm.tokenizer.tokenizer import RESERVED_VARIABLES
from rlx.models.model import PretrainedModel
from rlx.support.errors import Error
from rlx.support.options import takes_options
from rlx.support.short import short_repr
from rlx.weights import Weights

Prompt = str | Sequence[int]
_POOLINGS = ("mean", "last")
_WINDOW = 512  # tokens of a window for perplexities, as in llama.cpp


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
        self,
        model: PretrainedModel,
        engine: Engine,
        tokenizer: Tokenizer,
        weights: Weights,
        architecture: str,
        draft: Draft | None = None,
    ) -> None:
        self.architecture, self.config, self.context = architecture, model.config, engine.context
        self.metadata: Mapping[str, Any] = weights.metadata
        self.weights, self.tokenizer = weights, tokenizer
        self._engine: Engine | None = engine
        self._draft = draft

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
        self._engine = self._draft = None

    @takes_options(GenerationOptions)
    def generate(self, prompt: Prompt | Sequence[Prompt], **options: Unpack[GenerationKeywords]) -> Any:
        """Continue a text.

        Args:
            prompt: A text, whose control tokens are recognised; a list of token ids; or a list of prompts.
            options: The parameters of the generation.

        Returns:
            A `Completion`; a list of them for `n` above 1, and a list of these results for a list of prompts.

        Raises:
            Error: A prompt is empty or does not fit into the context, or an option is not valid.
        """
        checked = checked_options(options)
        if _is_list_of_prompts(prompt):
            return self._completions([self._tokens(p) for p in prompt], checked)  # type: ignore[arg-type]
        return self._completions([self._tokens(prompt)], checked)[0]

    @takes_options(GenerationOptions)
    def stream(self, prompt: Prompt, **options: Unpack[GenerationKeywords]) -> TextStream:
        """Continue a text, and return an iterator of its parts. Joined, they are the text of `generate`.

        Args:
            prompt: A text, or a list of token ids.
            options: The parameters of the generation.

        Returns:
            An iterator of `Chunk`. Its methods `close`, and from other threads `cancel`, end the generation.

        Raises:
            Error: As for `generate`, or `n` is not 1.
        """
        return self._streamed(self._tokens(prompt), _single(checked_options(options)))

    def stream_together(self, requests: Iterable[tuple[Prompt, Mapping[str, Any]]]) -> TextGroup:
        """Continue several texts at the same time, as far as the model was opened with `parallel=`.

        Args:
            requests: For each text its prompt and the keywords of `stream`. They are read when their texts begin.

        Returns:
            An iterator of pairs: the number of a text, and its next `Chunk`. Its method `end` ends one text, and `close` and
            `cancel` end all.

        Raises:
            Error: As for `stream`, when a text begins.
        """
        return TextGroup(self.engine, self._requested(requests))

    def _requested(self, requests: Iterable[tuple[Prompt, Mapping[str, Any]]]) -> Iterator[Generation]:
        for prompt, options in requests:
            yield from self._generations(self._tokens(prompt), _single(checked_options(options)))

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
            options: The parameters of the generation.

        Returns:
            A `Completion`, or a list of them for `n` above 1.

        Raises:
            Error: The model has no chat template, the template refuses the messages, or as for `generate`.
        """
        prompt = self._chat_tokens(messages, tools, template_options)
        return self._completions([prompt], checked_options(options))[0]

    @takes_options(GenerationOptions)
    def chat_stream(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Any] | None = None,
        template_options: Mapping[str, Any] | None = None,
        **options: Unpack[GenerationKeywords],
    ) -> TextStream:
        """Answer the last of some messages, and return an iterator of the parts. See `chat` and `stream`."""
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

    def perplexity(self, text: str, *, context: int | None = None) -> float:
        """Return the perplexity of a text, as llama.cpp's tool defines it.

        The tokens are cut into windows of `context`. The first token of each becomes BOS, if the model has one, and the
        tokens of the second half are predicted. None is 512, or the model's context if it is smaller.

        Raises:
            Error: The text is empty or has fewer than `2·context` tokens, or the context is not valid.
        """
        return float(np.exp(np.mean(self.negative_log_likelihoods(text, context=context))))

    def negative_log_likelihoods(self, text: str, *, context: int | None = None) -> np.ndarray:
        """Return the negative log-probabilities of the predicted tokens, f64. `perplexity` is the exponential of their mean."""
        if isinstance(text, str) and not text:
            raise Error("the text is empty")
        limit = min(self.context, self.config.max_position_embeddings)
        context = min(_WINDOW, limit) if context is None else context
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
            logits = self.engine.logits(window)[context // 2 : -1]
            following = np.array(tokens[begin + context // 2 + 1 : begin + context])
            taken = logits[np.arange(len(following)), following].astype(np.float64)
            losses.append(np.array([log_sum_exp(row) for row in logits]) - taken)
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
        return self._tokens(self.tokenizer.apply_chat_template(messages, tokenize=True, tools=tools, **variables))

    def _completions(self, prompts: Sequence[list[int]], options: GenerationOptions) -> list[Any]:
        """Return the result for each prompt: a completion, or a list of them for `n` above 1."""
        generations = [g for prompt in prompts for g in self._generations(prompt, options)]
        engine = self.engine
        parts = generated(engine, generations)
        results: list[Any] = []
        for number, prompt in enumerate(prompts):
            own = parts[number * options.n : (number + 1) * options.n]
            completions = [completion(chunks, len(prompt)) for chunks in own]
            results.append(completions[0] if options.n == 1 else completions)
        return results

    def _generations(self, prompt: list[int], options: GenerationOptions) -> Iterator[Generation]:
        """Yield a generation for each sample of a prompt."""
        seed = secrets.randbits(63) if options.seed is None else options.seed
        for number in range(options.n):
            own = seed + number
            yield Generation(self.engine, self.tokenizer, prompt, options, own, self.config.vocab_size, self._draft)

    def _streamed(self, prompt: list[int], options: GenerationOptions) -> TextStream:
        (generation,) = self._generations(prompt, options)
        return TextStream(generation.chunks(), generation.cancel)


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
    if not names or not RESERVED_VARIABLES.isdisjoint(options):
        reserved = ", ".join(sorted(RESERVED_VARIABLES))
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

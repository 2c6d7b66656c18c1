"""`/v1/completions`: texts that continue prompts."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from rlx.serve.json_text import event_bytes, json_bytes
from rlx.serve.model_service import ModelService, TokenUsage
from rlx.serve.request_error import invalid
from rlx.serve.request_fields import RequestFields
from rlx.serve.sampling_fields import SamplingRequest, logprob_count, sampling_request, token_limit
from rlx.serve.token_logprobs import CompletionLogprobs, joined_logprobs, prompt_logprobs
from rlx.serve.work_queue import Job

DONE = b"data: [DONE]\n\n"
_DEFAULT_TOKENS = 16  # OpenAI's default
_MOST_PROMPTS = 2048
_MOST_ECHOED = 1 << 18  # tokens
_LARGEST_LOGITS = 1 << 30  # bytes for log-probabilities of a prompt


@dataclass(frozen=True)
class CompletionRequest:
    """A request of `/v1/completions`.

    Attributes:
        prompts: Texts and lists of token ids.
        sampling: The parameters of the generation.
        has_echo: Whether the prompt is part of the text.
        logprobs: The number of likeliest tokens that are asked for, or None.
    """

    prompts: list[str | list[int]]
    sampling: SamplingRequest
    has_echo: bool
    logprobs: int | None


@dataclass(frozen=True)
class CompletionPart:
    """The next part of a choice. The last one has the reason of the end."""

    index: int
    text: str
    logprobs: dict[str, Any] | None
    finish_reason: str | None = None


def completion_request(fields: RequestFields, service: ModelService) -> CompletionRequest:
    """Return a request.

    Raises:
        RequestError: A parameter is not valid or not supported.
    """
    service.check_model(fields)
    prompts = _prompts(fields, service)
    sampling = sampling_request(fields, service.model.config.vocab_size)
    limit = token_limit(fields)
    sampling.options["max_tokens"] = _DEFAULT_TOKENS if limit is None else limit
    logprobs = logprob_count(fields, "logprobs")
    if logprobs is not None:
        sampling.options["logprobs"] = logprobs
    has_echo = bool(fields.flag("echo"))
    best_of = fields.integer("best_of", 1)
    if best_of not in (None, sampling.choices):
        raise fields.unsupported("best_of", "only the value of 'n' is supported.")
    fields.refuse("text is inserted at the end only.", "suffix")
    fields.check_unknown()
    return CompletionRequest(prompts, sampling, has_echo, logprobs)


def _prompts(fields: RequestFields, service: ModelService) -> list[str | list[int]]:
    value = fields.take("prompt")
    if value is None:
        raise fields.missing("prompt")
    if isinstance(value, str):
        return [value]
    entries = fields.array("prompt", least=1)
    assert entries is not None
    if type(entries[0]) is int:
        return [token_ids(fields, "prompt", entries, service)]
    fields.array("prompt", most=_MOST_PROMPTS)
    prompts: list[str | list[int]] = []
    for i, entry in enumerate(entries):
        if isinstance(entry, str):
            prompts.append(entry)
        elif isinstance(entry, list) and entry:
            prompts.append(token_ids(fields, f"prompt[{i}]", entry, service))
        else:
            raise fields.wrong_type(f"prompt[{i}]", "a string or an array of token ids", entry)
    return prompts


def token_ids(fields: RequestFields, name: str, entries: list[Any], service: ModelService) -> list[int]:
    """Return an array of token ids, checked.

    Raises:
        RequestError: An entry is not the id of a token, or they do not fit into the context.
    """
    vocab_size = service.model.config.vocab_size
    for i, entry in enumerate(entries):
        if type(entry) is not int:
            raise fields.wrong_type(f"{name}[{i}]", "an integer", entry)
        if not 0 <= entry < vocab_size:
            message = f"Invalid '{name}[{i}]': Expected a token id from 0 to {vocab_size - 1}."
            raise invalid(message, name, "invalid_value")
    return service.check_length(entries, name.partition("[")[0])


def complete(request: CompletionRequest, service: ModelService, job: Job) -> Generator[bytes]:
    """Yield the answer: one JSON object, or the events of a stream after an empty piece.

    Raises:
        RequestError: A prompt does not fit into the context, or an option is not supported.
    """
    usage = TokenUsage()
    prompts = [_tokens(prompt, service, job) for prompt in request.prompts]
    if request.has_echo and sum(map(len, prompts)) * request.sampling.choices > _MOST_ECHOED:
        raise invalid(f"At most {_MOST_ECHOED} tokens of prompts are returned, over all choices.", "echo")
    for tokens in prompts:
        _check_echo(request, service, tokens)
    parts = _parts(request, service, job, prompts, usage)
    head = service.head("text_completion", "cmpl")
    if request.sampling.is_stream:
        first = next(parts)  # before the answer begins: options may be refused here
        yield b""
        yield from _events(request.sampling, head, first, parts, usage)
        return
    choices: list[list[CompletionPart]] = [[] for _ in range(len(prompts) * request.sampling.choices)]
    for part in parts:
        choices[part.index].append(part)
    yield json_bytes({**head, "choices": list(map(_choice, choices)), "usage": usage.body()})


def _tokens(prompt: str | list[int], service: ModelService, job: Job) -> list[int]:
    job.check()
    return service.encode(prompt, "prompt") if isinstance(prompt, str) else prompt


def _check_echo(request: CompletionRequest, service: ModelService, tokens: list[int]) -> None:
    size = 4 * len(tokens) * service.model.config.vocab_size
    if request.has_echo and request.logprobs is not None and size > _LARGEST_LOGITS:
        most = _LARGEST_LOGITS // (4 * service.model.config.vocab_size)
        raise invalid(f"Log-probabilities of prompts are limited to {most} tokens, not {len(tokens)}.", "echo")


def _parts(
    request: CompletionRequest, service: ModelService, job: Job, prompts: list[list[int]], usage: TokenUsage
) -> Iterator[CompletionPart]:
    """Yield the parts of all choices. Those of choices that are computed together alternate."""
    writers: dict[int, CompletionLogprobs] = {}
    echo = _PromptEcho(request, service, job, prompts)
    group = service.start(job, prompts, request.sampling)
    for index, chunk in service.chunks(job, group, usage, request.sampling):
        number, choice = divmod(index, request.sampling.choices)
        if index not in writers:
            writers[index] = CompletionLogprobs(service.model.tokenizer)
            if choice == 0:
                service.count_prompt(usage, len(prompts[number]), chunk.cached_tokens)
            if request.has_echo:
                yield echo.part(index, writers[index])
        logprobs = None if chunk.logprobs is None else writers[index].entry(chunk.tokens, chunk.logprobs)
        if chunk.text or chunk.tokens:
            yield CompletionPart(index, chunk.text, logprobs)
        if chunk.finish_reason is not None:
            yield CompletionPart(index, "", None, chunk.finish_reason)


class _PromptEcho:
    """The parts of an answer with the prompts of a request.

    Args:
        request: The request.
        service: The model.
        job: The job of the request.
        prompts: The tokens of its prompts.
    """

    def __init__(self, request: CompletionRequest, service: ModelService, job: Job, prompts: list[list[int]]):
        self._request, self._service, self._job, self._prompts = request, service, job, prompts
        self._rows: dict[int, list[dict[int, float] | None]] = {}  # by prompt
        self._missing = [request.sampling.choices] * len(prompts)  # choices without the part

    def part(self, index: int, writer: CompletionLogprobs) -> CompletionPart:
        """Return the part of a choice. The token that starts a text is not part of it."""
        number = index // self._request.sampling.choices
        prompt, tokenizer = self._request.prompts[number], self._service.model.tokenizer
        text = prompt if isinstance(prompt, str) else tokenizer.decode([t for t in prompt if t < tokenizer.vocab_size])
        if self._request.logprobs is None:
            return CompletionPart(index, text, None)
        begin = len(tokenizer.vocabulary.prefix) if isinstance(prompt, str) else 0
        rows = self._logprobs(number, self._request.logprobs)
        return CompletionPart(index, text, writer.entry(self._prompts[number][begin:], rows[begin:]))

    def _logprobs(self, number: int, most: int) -> list[dict[int, float] | None]:
        """Return the log-probabilities of a prompt, which its choices share."""
        tokens = self._prompts[number]
        if number not in self._rows:
            self._job.check()  # the run of the model over the whole prompt is not interrupted
            self._rows[number] = prompt_logprobs(self._service.model.logits(tokens), tokens, most)
        self._missing[number] -= 1
        return self._rows[number] if self._missing[number] else self._rows.pop(number)


def _choice(parts: list[CompletionPart]) -> dict[str, Any]:
    logprobs = [part.logprobs for part in parts if part.logprobs is not None]
    return {
        "index": parts[0].index,
        "text": "".join(part.text for part in parts),
        "logprobs": joined_logprobs(logprobs) if logprobs else None,
        "finish_reason": parts[-1].finish_reason,
    }


def _events(
    sampling: SamplingRequest,
    head: dict[str, Any],
    first: CompletionPart,
    parts: Iterator[CompletionPart],
    usage: TokenUsage,
) -> Iterator[bytes]:
    pending = {"usage": None} if sampling.has_usage else {}
    for part in chain([first], parts):
        choice = {
            "index": part.index,
            "text": part.text,
            "logprobs": part.logprobs,
            "finish_reason": part.finish_reason,
        }
        yield event_bytes({**head, "choices": [choice], **pending})
    if sampling.has_usage:
        yield event_bytes({**head, "choices": [], "usage": usage.body()})
    yield DONE

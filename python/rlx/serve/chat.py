"""`/v1/chat/completions`: answers to messages."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from rlx.llm.tokenizer.tokenizer import RESERVED_VARIABLES
from rlx.serve.chat_messages import chat_messages
from rlx.serve.completions import DONE
from rlx.serve.json_text import event_bytes, json_bytes
from rlx.serve.model_service import ModelService, TokenUsage
from rlx.serve.request_error import invalid
from rlx.serve.request_fields import RequestFields
from rlx.serve.sampling_fields import SamplingRequest, logprob_count, sampling_request, token_limit
from rlx.serve.token_logprobs import chat_logprobs
from rlx.serve.tool_calls import ToolCall, ToolCallParser
from rlx.serve.tool_format import ToolChoice, tool_choice
from rlx.serve.work_queue import Job
from rlx.support.errors import Error

if TYPE_CHECKING:
    from rlx.llm import Chunk


@dataclass(frozen=True)
class ChatRequest:
    """A request of `/v1/chat/completions`.

    Attributes:
        messages: The messages, for the template.
        sampling: The parameters of the generation.
        tools: The tools that the model may call, or None.
        template_options: More variables of the template.
        logprobs: The number of likeliest tokens of each position, or None without log-probabilities.
    """

    messages: list[dict[str, Any]]
    sampling: SamplingRequest
    tools: ToolChoice | None
    template_options: dict[str, Any]
    logprobs: int | None


@dataclass(frozen=True)
class ChatPart:
    """The next part of an answer: content, or a call of a tool. The last one has the reason of the end.

    Attributes:
        index: The number of the choice.
        content: The text, or a call.
        logprobs: The entries of the tokens since the last part, or None.
        finish_reason: The reason of the end, or None.
    """

    index: int
    content: str | ToolCall
    logprobs: list[dict[str, Any]] | None = None
    finish_reason: str | None = None


def chat_request(fields: RequestFields, service: ModelService) -> ChatRequest:
    """Return a request.

    Raises:
        RequestError: A parameter is not valid or not supported.
    """
    service.check_model(fields)
    messages = chat_messages(fields)
    sampling = sampling_request(fields, service.model.config.vocab_size)
    limit = _token_limit(fields)
    if limit is not None:
        sampling.options["max_tokens"] = limit
    logprobs = _logprobs(fields)
    if logprobs is not None:
        sampling.options["logprobs"] = logprobs
    tools = tool_choice(fields, service.model.tokenizer.chat_template)
    schema = _schema(fields)
    if tools is not None and schema is not None:
        raise fields.unsupported("response_format", "it cannot be combined with tools, unless tool_choice is 'none'.")
    if tools is not None:
        schema, sampling = tools.schema, replace(sampling, schema_param="tools")
    if schema is not None:
        sampling.options["schema"] = schema
    template_options = fields.mapping("chat_template_kwargs") or {}
    _refuse_others(fields)
    return ChatRequest(messages, sampling, tools, template_options, logprobs)


def _refuse_others(fields: RequestFields) -> None:
    fields.refuse("use 'tools' and 'tool_choice'.", "functions", "function_call")
    fields.refuse("this server returns text only.", "audio", "web_search_options", "prediction", "moderation")
    fields.refuse("it depends on the model; see 'chat_template_kwargs'.", "reasoning_effort", "verbosity")
    modalities = fields.array("modalities")
    if modalities is not None and modalities != ["text"]:
        raise fields.unsupported("modalities", "this server returns text only.")
    fields.check_unknown()


def _token_limit(fields: RequestFields) -> int | None:
    older, newer = token_limit(fields), token_limit(fields, "max_completion_tokens")
    if older is not None and newer is not None and older != newer:
        raise invalid("'max_tokens' and 'max_completion_tokens' have different values.", "max_tokens")
    return older if newer is None else newer


def _logprobs(fields: RequestFields) -> int | None:
    has_logprobs, top = fields.flag("logprobs"), logprob_count(fields, "top_logprobs")
    if top is not None and not has_logprobs:
        raise invalid("The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled.", "top_logprobs")
    return (top or 0) if has_logprobs else None


def _schema(fields: RequestFields) -> dict[str, Any] | None:
    """Return the JSON schema of the answer that is asked for, or None."""
    form = fields.inner("response_format")
    if form is None:
        return None
    kind = form.choice("type", ("text", "json_object", "json_schema"))
    if kind is None:
        raise form.missing("type")
    if kind != "json_schema":
        form.check_unknown()
        return {"type": "object"} if kind == "json_object" else None
    described = form.inner("json_schema")
    if described is None:
        raise form.missing("json_schema")
    described.required_text("name")
    described.text("description")
    described.flag("strict")  # every answer follows the schema
    schema = described.mapping("schema")
    if schema is None:
        raise described.missing("schema")
    described.check_unknown()
    form.check_unknown()
    return schema


def answer(request: ChatRequest, service: ModelService, job: Job) -> Generator[bytes]:
    """Yield the answer: one JSON object, or the events of a stream after an empty piece.

    Raises:
        RequestError: The template refuses the messages, they do not fit into the context, or an option is not supported.
    """
    usage = TokenUsage()
    tokens = _tokens(request, service)
    parts = _parts(request, service, job, tokens, usage)
    is_stream = request.sampling.is_stream
    head = service.head("chat.completion.chunk" if is_stream else "chat.completion", "chatcmpl")
    if is_stream:
        first = next(parts)  # before the answer begins: options may be refused here
        yield b""
        yield from _events(request, head, first, parts, usage)
        return
    choices: list[list[ChatPart]] = [[] for _ in range(request.sampling.choices)]
    for part in parts:
        choices[part.index].append(part)
    listed = [_choice(request, choice) for choice in choices]
    yield json_bytes({**head, "choices": listed, "usage": usage.body()})


def _tokens(request: ChatRequest, service: ModelService) -> list[int]:
    """Return the prompt for the messages."""
    tokenizer = service.model.tokenizer
    tools = None if request.tools is None else request.tools.tools
    variables = {name: value for name, value in request.template_options.items() if name.isidentifier()}
    reserved = (RESERVED_VARIABLES | {"add_generation_prompt"}) & variables.keys()
    if reserved or len(variables) != len(request.template_options):
        raise invalid("Invalid 'chat_template_kwargs': a name is reserved or not valid.", "chat_template_kwargs")
    try:
        text = tokenizer.apply_chat_template(request.messages, tools=tools, **variables)
    except Error as problem:
        raise invalid(problem.message, "messages") from None
    return service.encode(text, "messages", add_special_tokens=False)


def _parts(
    request: ChatRequest, service: ModelService, job: Job, tokens: list[int], usage: TokenUsage
) -> Iterator[ChatPart]:
    """Yield the parts of all choices. Those of choices that are computed together alternate."""
    group = service.start(job, [tokens], request.sampling)
    choices = [_ChatChoice(request, service, index) for index in range(request.sampling.choices)]
    is_counted = False
    for index, chunk in service.chunks(job, group, usage, request.sampling):
        if not is_counted:
            service.count_prompt(usage, len(tokens), chunk.cached_tokens)
            is_counted = True
        yield from choices[index].parts(chunk)
        if choices[index].is_ended:  # by a call of a tool
            group.end(index)


class _ChatChoice:
    """Divides one text into parts: content and calls of tools.

    Args:
        request: The request.
        service: The model.
        index: The number of the choice.

    Attributes:
        is_ended: Whether the answer is complete.
    """

    def __init__(self, request: ChatRequest, service: ModelService, index: int):
        tools = request.tools
        self._request, self._tokenizer, self._index = request, service.model.tokenizer, index
        self._parser = None if tools is None else ToolCallParser(tools.format, tools.names)
        self._marker = None if tools is None else self._tokenizer.vocabulary.ids.get(tools.format.begin)
        self._pending: list[dict[str, Any]] = []
        self.is_ended = False

    def parts(self, chunk: Chunk) -> Iterator[ChatPart]:
        """Yield the parts that are complete with the next part of the text; none after the end of the answer.

        Tokens that were computed before the text was ended may still arrive.
        """
        if self.is_ended:
            return
        most, tools = self._request.logprobs, self._request.tools
        if chunk.logprobs is not None and most is not None:
            self._pending += chat_logprobs(self._tokenizer, chunk.tokens, chunk.logprobs, most)
        text = chunk.text
        if tools is not None and self._marker in chunk.tokens and tools.format.begin not in text:
            text = tools.format.begin + text  # a control token, which has no text
        for content in [text] if self._parser is None else self._parser.push(text):
            if content:
                yield ChatPart(self._index, content, self._pending if most is not None else None)
                self._pending = []
            if isinstance(content, ToolCall) and tools is not None and tools.is_single:
                self.is_ended = True
                yield ChatPart(self._index, "", None, "tool_calls")
                return
        if chunk.finish_reason is not None:
            self.is_ended = True
            yield from self._last(chunk.finish_reason)

    def _last(self, reason: str) -> Iterator[ChatPart]:
        for content in () if self._parser is None else self._parser.flush():
            yield ChatPart(self._index, content)
        if self._parser is not None and self._parser.count and reason == "stop":
            reason = "tool_calls"
        yield ChatPart(self._index, "", self._pending or None, reason)


def _choice(request: ChatRequest, parts: list[ChatPart]) -> dict[str, Any]:
    calls = [part.content.body() for part in parts if isinstance(part.content, ToolCall)]
    content = "".join(part.content for part in parts if isinstance(part.content, str))
    message: dict[str, Any] = {
        "role": "assistant",
        "content": None if calls and not content.strip() else content,
        "refusal": None,
        "annotations": [],
    }
    if calls:
        message["tool_calls"] = calls
    logprobs = None
    if request.logprobs is not None:
        logprobs = {"content": [entry for part in parts for entry in part.logprobs or ()], "refusal": None}
    return {
        "index": parts[0].index,
        "message": message,
        "logprobs": logprobs,
        "finish_reason": parts[-1].finish_reason,
    }


def _events(
    request: ChatRequest, head: dict[str, Any], first: ChatPart, parts: Iterator[ChatPart], usage: TokenUsage
) -> Iterator[bytes]:
    pending = {"usage": None} if request.sampling.has_usage else {}

    def event(index: int, delta: dict[str, Any], part: ChatPart | None = None) -> bytes:
        entries = None if part is None or part.logprobs is None else {"content": part.logprobs, "refusal": None}
        reason = None if part is None else part.finish_reason
        choice = {"index": index, "delta": delta, "logprobs": entries, "finish_reason": reason}
        return event_bytes({**head, "choices": [choice], **pending})

    calls: dict[int, int] = {}
    for part in chain([first], parts):
        if part.index not in calls:
            calls[part.index] = 0
            yield event(part.index, {"role": "assistant", "content": "", "refusal": None})
        delta: dict[str, Any] = {"content": part.content} if part.content else {}
        if isinstance(part.content, ToolCall):
            delta = {"tool_calls": [{"index": calls[part.index], **part.content.body()}]}
            calls[part.index] += 1
        yield event(part.index, delta, part)
    if request.sampling.has_usage:
        yield event_bytes({**head, "choices": [], "usage": usage.body()})
    yield DONE

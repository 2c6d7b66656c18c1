"""Parameters of a generation: from the names of OpenAI's interface to those of `LLM.stream`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rlx.serve.json_text import type_name
from rlx.serve.request_error import invalid
from rlx.serve.request_fields import RequestFields

_SEEDS = 2**64
_MOST_STOPS = 16
_MOST_CHOICES = 128
_MOST_LOGPROBS = 20
# Parameters of OpenAI's interface that never change a result here.
_IGNORED_TEXTS = ("user", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention")


@dataclass(frozen=True)
class SamplingRequest:
    """The parameters of a generation.

    Attributes:
        options: Keywords of `LLM.stream`, without `seed` and `n`.
        seed: The seed of the first choice, or None.
        choices: The number of choices for each prompt.
        is_stream: Whether the answer is a stream of events.
        has_usage: Whether a stream ends with the numbers of tokens.
        schema_param: The parameter that the option `schema` comes from, for messages.
    """

    options: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    choices: int = 1
    is_stream: bool = False
    has_usage: bool = False
    schema_param: str = "response_format"

    def keywords(self) -> Iterator[dict[str, Any]]:
        """Yield the keywords for each choice: they have the seeds `seed`, `seed + 1`, …."""
        for number in range(self.choices):
            seed = {} if self.seed is None else {"seed": (self.seed + number) % _SEEDS}
            yield {**self.options, **seed}


def sampling_request(fields: RequestFields, vocab_size: int) -> SamplingRequest:
    """Return the parameters that completions and chats share, except `max_tokens`, `logprobs` and formats of the text.

    Args:
        fields: The request.
        vocab_size: The number of tokens of the model.

    Raises:
        RequestError: A value is not valid.
    """
    temperature = fields.number("temperature", 0, 2)
    # OpenAI's default. That of `LLM.generate` is 0.
    options: dict[str, Any] = {"temperature": 1.0 if temperature is None else temperature}
    top_k = fields.integer("top_k", -1)
    repetition = fields.number("repetition_penalty", 1e-3, 100)
    if repetition is None:
        repetition = fields.number("repeat_penalty", 1e-3, 100)
    optional = {
        "top_p": fields.number("top_p", 0, 1),
        "presence_penalty": fields.number("presence_penalty", -2, 2),
        "frequency_penalty": fields.number("frequency_penalty", -2, 2),
        "min_p": fields.number("min_p", 0, 1),
        "top_k": None if top_k is None else max(top_k, 0),  # -1 is off for some clients, and 0 for others
        "repetition_penalty": repetition,
        "ignore_eos": fields.flag("ignore_eos"),
        "grammar": fields.text("grammar", least=1),
        "logit_bias": _biases(fields, vocab_size),
        "stop": _stops(fields),
    }
    fields.take("repeat_penalty")
    options |= {name: value for name, value in optional.items() if value is not None}
    for name in _IGNORED_TEXTS:
        fields.text(name)
    fields.flag("store")
    fields.mapping("metadata")
    is_stream = bool(fields.flag("stream"))
    return SamplingRequest(
        options,
        fields.integer("seed", 0, _SEEDS - 1),
        fields.integer("n", 1, _MOST_CHOICES) or 1,
        is_stream,
        _has_usage(fields, is_stream),
    )


def token_limit(fields: RequestFields, name: str = "max_tokens") -> int | None:
    """Return a largest number of tokens, or None."""
    return fields.integer(name, 0)


def logprob_count(fields: RequestFields, name: str) -> int | None:
    """Return the number of likeliest tokens that are asked for, or None."""
    return fields.integer(name, 0, _MOST_LOGPROBS)


def _has_usage(fields: RequestFields, is_stream: bool) -> bool:
    options = fields.inner("stream_options")
    if options is None:
        return False
    if not is_stream:
        name = fields.path("stream_options")
        raise invalid("The 'stream_options' parameter is only allowed when 'stream' is enabled.", name)
    has_usage = bool(options.flag("include_usage"))
    options.refuse("events have no obfuscation here.", "include_obfuscation")
    options.check_unknown()
    return has_usage


def _stops(fields: RequestFields) -> list[str] | None:
    value = fields.take("stop")
    if value is None:
        return None
    texts = [value] if isinstance(value, str) else fields.array("stop", most=_MOST_STOPS)
    assert texts is not None
    for i, text in enumerate(texts):
        name = "stop" if isinstance(value, str) else f"stop[{i}]"
        if not isinstance(text, str):
            raise fields.wrong_type(name, "a string", text)
        if not text:
            raise invalid(f"Invalid '{fields.path(name)}': it must not be empty.", fields.path(name), "empty_string")
    return texts


def _biases(fields: RequestFields, vocab_size: int) -> dict[int, float] | None:
    values = fields.mapping("logit_bias")
    if values is None:
        return None
    biases: dict[int, float] = {}
    for token, bias in values.items():
        name = f"logit_bias.{token[:20]}"
        if not re.fullmatch(r"[0-9]{1,9}", token) or int(token) >= vocab_size:
            expected = f"Expected a token id from 0 to {vocab_size - 1}"
            raise invalid(f"Invalid key in 'logit_bias': {token[:20]!r}. {expected}.", "logit_bias", "invalid_value")
        if type(bias) not in (int, float):
            raise fields.wrong_type(name, "a decimal", bias)
        if not -100 <= bias <= 100:
            message = f"Invalid '{name}': Expected a value from -100 to 100, but got {type_name(bias)} outside."
            raise invalid(message, name, "decimal_out_of_range")
        biases[int(token)] = float(bias)
    return biases

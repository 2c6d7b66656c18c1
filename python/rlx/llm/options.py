"""`GenerationOptions`: the parameters of a generation, checked."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, SupportsFloat, SupportsIndex, TypedDict

from rlx.llm.grammar import constraint_source
from rlx.support.errors import Error
from rlx.support.options import described
from rlx.support.short import short_repr
from rlx.support.suggestions import suggestion

_LARGEST_SEED = 2**64
_LARGEST_COUNT = 1 << 31


@dataclass(frozen=True)
class GenerationOptions:
    """The parameters of a generation.

    A new one is a field here, the same name in `GenerationKeywords`, and a check.

    Raises:
        Error: A value is not valid.
        UnsupportedError: A part of `schema` or `grammar` cannot be enforced.
    """

    max_tokens: int | None = field(
        default=None,
        metadata=described(
            "The largest number of tokens to generate; None ends with the turn or the context, 0 generates none."
        ),
    )
    temperature: float = field(
        default=0.0,
        metadata=described(
            "The divisor of the logits; 0 takes the likeliest token, of equal ones that of the lower id."
        ),
    )
    top_k: int = field(default=0, metadata=described("Keep this number of likeliest tokens; 0 keeps all."))
    top_p: float = field(
        default=1.0, metadata=described("Keep the likeliest tokens whose probabilities add up to this; 1 keeps all.")
    )
    min_p: float = field(
        default=0.0, metadata=described("Drop tokens less likely than this fraction of the likeliest one; 0 keeps all.")
    )
    repetition_penalty: float = field(
        default=1.0,
        metadata=described(
            "Divides positive logits, and multiplies negative ones, of tokens in the prompt or the output; 1 is off."
        ),
    )
    presence_penalty: float = field(
        default=0.0, metadata=described("Subtracted from the logits of tokens in the output.")
    )
    frequency_penalty: float = field(
        default=0.0, metadata=described("Subtracted from the logits of tokens, for each time they are in the output.")
    )
    logit_bias: Mapping[int, float] | None = field(
        default=None, metadata=described("Numbers added to the logits of tokens, by id; minus infinity excludes one.")
    )
    seed: int | None = field(
        default=None, metadata=described("The same seed gives the same text for the same arguments; None draws one.")
    )
    stop: str | Sequence[str] = field(
        default=(), metadata=described("Texts that end the generation; they are not part of the result.")
    )
    n: int = field(default=1, metadata=described("The number of results, with the seeds `seed`, `seed + 1`, …."))
    logprobs: int | None = field(
        default=None,
        metadata=described("Return the log-probabilities of this number of likeliest tokens, and of the one taken."),
    )
    ignore_eos: bool = field(default=False, metadata=described("Continue after tokens that end a generation."))
    schema: Any = field(
        default=None,
        metadata=described(
            "A JSON schema that the text follows: a dictionary, True, or JSON text; `rlx[llm]` is needed."
        ),
    )
    grammar: str | None = field(
        default=None,
        metadata=described("A grammar that the text follows, in GBNF (`root ::= …`) or Lark (`start: …`)."),
    )

    def __post_init__(self) -> None:
        if self.max_tokens is not None:
            self._set("max_tokens", _count("max_tokens", self.max_tokens, 0))
        self._set("temperature", _number("temperature", self.temperature, 0.0, math.inf))
        self._set("top_k", _count("top_k", self.top_k, 0))
        self._set("top_p", _number("top_p", self.top_p, 0.0, 1.0))
        self._set("min_p", _number("min_p", self.min_p, 0.0, 1.0))
        self._set("repetition_penalty", _number("repetition_penalty", self.repetition_penalty, 0.0, math.inf))
        if self.repetition_penalty == 0:
            raise Error("repetition_penalty must be more than 0")
        for name in ("presence_penalty", "frequency_penalty"):
            self._set(name, _number(name, getattr(self, name), -math.inf, math.inf))
        self._set("logit_bias", _biases(self.logit_bias))
        if self.seed is not None:
            self._set("seed", _count("seed", self.seed, 0, _LARGEST_SEED))
        self._set("stop", _stops(self.stop))
        self._set("n", _count("n", self.n, 1))
        if self.seed is not None and self.seed + self.n > _LARGEST_SEED:
            raise Error(f"the seeds of {self.n} results must be less than 2**64, and the first is {self.seed}")
        if self.logprobs is not None:
            self._set("logprobs", _count("logprobs", self.logprobs, 0))
        if type(self.ignore_eos) is not bool:
            raise Error(f"ignore_eos must be True or False, got {short_repr(self.ignore_eos)}")
        has_grammar = self.schema is not None or self.grammar is not None
        # Once: to check a large schema takes longer than to generate a token.
        self._set("_constraint", constraint_source(self.schema, self.grammar) if has_grammar else None)
        if has_grammar and self.ignore_eos:
            raise Error("ignore_eos cannot be used with a schema or a grammar, which define where a text ends")

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @property
    def stops(self) -> tuple[str, ...]:
        """The texts that end the generation."""
        assert isinstance(self.stop, tuple)
        return self.stop

    @property
    def constraint(self) -> str | None:
        """The grammar that the text follows, for `GrammarConstraint`, or None."""
        return self.__dict__["_constraint"]


def checked_options(options: Mapping[str, Any]) -> GenerationOptions:
    """Return the keywords of a call as options.

    Raises:
        Error: A name or a value is not valid.
    """
    names = [option.name for option in fields(GenerationOptions)]
    for name in options:
        if name not in names:
            raise Error(
                f"there is no option '{name}'{suggestion(name, names)}", hint=f"the options are {', '.join(names)}"
            )
    return GenerationOptions(**options)


class GenerationKeywords(TypedDict, total=False):
    """The fields of `GenerationOptions` as keywords of a call, for `**options: Unpack[GenerationKeywords]`."""

    max_tokens: int | None
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float] | None
    seed: int | None
    stop: str | Sequence[str]
    n: int
    logprobs: int | None
    ignore_eos: bool
    schema: Any
    grammar: str | None


def _count(name: str, value: SupportsIndex, least: int, most: int = _LARGEST_COUNT) -> int:
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or not least <= number < most:
        bounds = f"from {least} to {most - 1}" if number is not None and number >= most else f"of at least {least}"
        raise Error(f"{name} must be an integer {bounds}, got {short_repr(value)}")
    return number


def _number(name: str, value: SupportsFloat, least: float, most: float) -> float:
    try:
        number = math.nan if isinstance(value, (bool, str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if math.isinf(number) or not least <= number <= most:
        bounds = f" from {least:g} to {most:g}" if math.isfinite(most) else f" of at least {least:g}"
        raise Error(f"{name} must be a number{bounds if math.isfinite(least) else ''}, got {short_repr(value)}")
    return number


def _biases(value: Any) -> dict[int, float]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise Error(f"logit_bias must be a mapping of token ids to numbers, got {short_repr(value)}")
    biases: dict[int, float] = {}
    for token, bias in value.items():
        is_excluded = isinstance(bias, float) and bias == -math.inf
        number = bias if is_excluded else _number(f"logit_bias of {token!r:.40}", bias, -math.inf, math.inf)
        biases[_count("a token id in logit_bias", token, 0)] = float(number)
    return biases


def _stops(value: Any) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) else value
    if isinstance(texts, (list, tuple)) and all(isinstance(text, str) and text for text in texts):
        return tuple(texts)
    raise Error(f"stop must be a text or a list of texts that are not empty, got {short_repr(value)}")

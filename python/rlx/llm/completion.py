"""Results of a generation: `Completion`, and `Chunk`, a part of one."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Completion:
    """A generated text. `str(completion)` is the text.

    Attributes:
        text: The text, without control tokens and the stop text.
        tokens: The ids, without the one that ended the generation.
        finish_reason: `"stop"` for an end-of-generation token or a stop text, `"length"` for `max_tokens` or the end of the
            context.
        prompt_tokens: The number of tokens of the prompt.
        cached_tokens: The number of tokens of the prompt that were still in the cache.
        logprobs: For each of `tokens`, log-probabilities by id, in descending order; None if they were not asked for.
        proposed_tokens: The number of tokens that `draft=` proposed and the model verified; 0 without a draft.
        accepted_tokens: The number of these that were right. `accepted_tokens / proposed_tokens` is the acceptance rate.
    """

    text: str
    tokens: list[int]
    finish_reason: str
    prompt_tokens: int
    cached_tokens: int
    logprobs: list[dict[int, float]] | None = field(default=None, repr=False)
    proposed_tokens: int = field(default=0, repr=False)
    accepted_tokens: int = field(default=0, repr=False)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Chunk:
    """A part of a generated text. The texts of all chunks joined are the text of the completion.

    Attributes:
        text: The next characters.
        tokens: The ids since the last chunk.
        finish_reason: None, or for the last chunk the reason as in `Completion`.
        logprobs: Log-probabilities of `tokens`, as in `Completion`.
        cached_tokens: As in `Completion`.
        proposed_tokens: As in `Completion`, since the beginning of the text.
        accepted_tokens: As in `Completion`, since the beginning of the text.
    """

    text: str
    tokens: list[int]
    finish_reason: str | None = None
    logprobs: list[dict[int, float]] | None = field(default=None, repr=False)
    cached_tokens: int = field(default=0, repr=False)
    proposed_tokens: int = field(default=0, repr=False)
    accepted_tokens: int = field(default=0, repr=False)

    def __str__(self) -> str:
        return self.text

"""`ModelService`: a model with its name, its queue and its measurements, as the routes use it."""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Generator, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlx.serve.metrics import ServerMetrics
from rlx.serve.request_error import RequestError, context_exceeded, invalid, text_too_long
from rlx.serve.request_fields import RequestFields
from rlx.serve.work_queue import Job, WorkQueue
from rlx.support.cached_property import cached_property
from rlx.support.errors import Error
from rlx.version import __version__

if TYPE_CHECKING:
    from rlx.llm import LLM, Chunk
    from rlx.llm.generation import TextGroup
    from rlx.serve.sampling_fields import SamplingRequest
    from rlx.serve.settings import ServerSettings

_SPACES = f"a{'a'.rjust(40)}"
_PART = re.compile(r"-\d{5}-of-\d{5}$")  # of a split GGUF file


@dataclass
class TokenUsage:
    """Numbers of tokens of a request."""

    prompt: int = 0
    cached: int = 0
    generated: int = 0

    def body(self) -> dict[str, Any]:
        """Return the entry `usage` of an answer."""
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.generated,
            "total_tokens": self.prompt + self.generated,
            "prompt_tokens_details": {"cached_tokens": self.cached, "audio_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": 0,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        }


class ModelService:
    """A model that answers requests.

    Args:
        model: The model.
        settings: The settings of the server.

    Attributes:
        name: The name of the model for clients.
        fingerprint: A text that changes with the model and the version of RLX.
        created: When the service was started, in seconds since 1970.
    """

    def __init__(self, model: LLM, settings: ServerSettings):
        self.model, self.settings = model, settings
        self.metrics = ServerMetrics()
        self.queue = WorkQueue(settings.parallel, settings.queue, self.metrics)
        origin = str(model.weights.origin)
        self._stem = _PART.sub("", Path(origin).name.removesuffix(".gguf"))
        self.name = settings.alias or self._stem
        self.created = int(time.time())
        facts = f"{__version__} {origin} {model.architecture} {model.context}"
        self.fingerprint = f"fp_{hashlib.sha256(facts.encode('utf-8', 'replace')).hexdigest()[:10]}"

    def check_model(self, fields: RequestFields) -> None:
        """Check the parameter `model` of a request.

        Raises:
            RequestError: It is missing (400), or another model (404).
        """
        name = fields.text("model")
        if not name:
            raise invalid("You must provide a model parameter.", "model", "missing_required_parameter")
        if not self.has_model(name):
            raise unknown_model(name)

    def has_model(self, name: str) -> bool:
        """Return whether a name is that of the model: its alias, or the name of its file."""
        return name in (self.name, self._stem)

    def head(self, kind: str, prefix: str) -> dict[str, Any]:
        """Return the entries that all objects of an answer share."""
        return {
            "id": f"{prefix}-{secrets.token_hex(12)}",
            "object": kind,
            "created": int(time.time()),
            "model": self.name,
            "system_fingerprint": self.fingerprint,
        }

    def check_length(self, tokens: list[int], param: str) -> list[int]:
        """Return the tokens of a prompt.

        Raises:
            RequestError: They do not fit into the context, or there are none.
        """
        if len(tokens) > self.model.context:
            raise context_exceeded(len(tokens), self.model.context, param)
        if not tokens:
            raise invalid(f"Invalid '{param}': it has no tokens.", param, "empty_string")
        return tokens

    def encode(self, text: str, param: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the tokens of a prompt.

        A text that is certainly too long is not encoded: some tokenizers need much time and memory for it.

        Raises:
            RequestError: They do not fit into the context, or the tokenizer refuses the text.
        """
        most = self._longest_text
        if len(text) > most and (self._keeps_spaces or len(" ".join(text.split())) > most):
            raise text_too_long(len(text), self.model.context, param)
        try:
            tokens = self.model.tokenizer.encode(text, add_special_tokens)
        except Error as problem:
            raise invalid(problem.message, param) from None
        return self.check_length(tokens, param)

    @cached_property
    def _longest_text(self) -> int:
        """The number of characters of a context whose tokens all are the longest one."""
        return self.model.context * max(map(len, self.model.tokenizer.vocabulary.tokens))

    @cached_property
    def _keeps_spaces(self) -> bool:
        """Whether the tokenizer encodes each space. Others drop them, so that any number is few tokens."""
        tokenizer = self.model.tokenizer
        try:
            return tokenizer.decode(tokenizer.encode(_SPACES, add_special_tokens=False)) == _SPACES
        except Error:  # the vocabulary lacks the letter
            return True

    def start(self, job: Job, prompts: Iterable[list[int]], sampling: SamplingRequest) -> TextGroup:
        """Return the texts of a request: the choices for each prompt, one prompt after the other.

        They are computed together as far as the model has rows for them. They end when the job is cancelled.
        """
        requests = ((prompt, options) for prompt in prompts for options in sampling.keywords())
        group = self.model.stream_together(requests)
        job.stop_with(group.cancel)
        return group

    def chunks(
        self, job: Job, group: TextGroup, usage: TokenUsage, sampling: SamplingRequest
    ) -> Generator[tuple[int, Chunk]]:
        """Yield the parts of texts with their numbers.

        Args:
            job: The job of the request.
            group: The texts.
            usage: The generated tokens are counted here.
            sampling: The parameters, for messages.

        Raises:
            RequestError: An option is not valid or not supported.
            JobCancelled: The job was cancelled.
        """
        # Options whose mistakes are found when a text begins, and the parameters that they come from.
        late = {"schema": sampling.schema_param, "grammar": "grammar", "logit_bias": "logit_bias"}
        param = next((param for name, param in late.items() if sampling.options.get(name)), None)
        count, has_begun = 0, False
        last: dict[int, Chunk] = {}  # of each text
        try:
            job.check()
            with closing(group):
                for number, chunk in group:
                    has_begun, last[number] = True, chunk
                    if not usage.generated and chunk.tokens:
                        self.metrics.first_tokens.observe(time.monotonic() - job.created)
                    count += len(chunk.tokens)
                    usage.generated += len(chunk.tokens)
                    yield number, chunk
                    job.check()
            job.check()
        except Error as problem:
            if has_begun:
                raise
            raise invalid(problem.message, param) from None
        finally:
            self.metrics.generated_tokens.add(count)
            self.metrics.proposed_tokens.add(sum(chunk.proposed_tokens for chunk in last.values()))
            self.metrics.accepted_tokens.add(sum(chunk.accepted_tokens for chunk in last.values()))

    def count_prompt(self, usage: TokenUsage, prompt: int, cached: int) -> None:
        """Count the tokens of a prompt."""
        usage.prompt += prompt
        usage.cached += cached
        self.metrics.prompt_tokens.add(prompt)
        self.metrics.cached_tokens.add(cached)


def unknown_model(name: str) -> RequestError:
    """Return the error for a model that this server does not have (404)."""
    shown = name if len(name) <= 200 else f"{name[:200]}…"
    return RequestError(
        404, f"The model '{shown}' does not exist or you do not have access to it.", code="model_not_found"
    )

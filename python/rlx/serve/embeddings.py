"""`/v1/embeddings`: vectors of texts."""

from __future__ import annotations

import base64
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.serve.completions import token_ids
from rlx.serve.json_text import json_bytes
from rlx.serve.model_service import ModelService
from rlx.serve.request_error import invalid
from rlx.serve.request_fields import RequestFields
from rlx.serve.work_queue import Job
from rlx.support.errors import Error

_MOST_INPUTS = 2048


@dataclass(frozen=True)
class EmbeddingRequest:
    """A request of `/v1/embeddings`.

    Attributes:
        inputs: Texts and lists of token ids.
        is_packed: Whether the vectors are little-endian f32 in base64, not arrays of numbers.
    """

    inputs: list[str | list[int]]
    is_packed: bool


def embedding_request(fields: RequestFields, service: ModelService) -> EmbeddingRequest:
    """Return a request.

    Raises:
        RequestError: A parameter is not valid or not supported.
    """
    service.check_model(fields)
    inputs = _inputs(fields, service)
    form = fields.choice("encoding_format", ("float", "base64"))
    dimensions, width = fields.integer("dimensions", 1), service.model.config.hidden_size
    if dimensions not in (None, width):
        raise fields.unsupported("dimensions", f"the vectors of this model have {width} dimensions.")
    fields.text("user")  # it changes nothing
    fields.check_unknown()
    return EmbeddingRequest(inputs, form == "base64")


def _inputs(fields: RequestFields, service: ModelService) -> list[str | list[int]]:
    value = fields.take("input")
    if value is None:
        raise fields.missing("input")
    if isinstance(value, str):
        entries: list[Any] = [value]
    else:
        entries = fields.array("input", least=1) or []
        if type(entries[0]) is int:
            return [token_ids(fields, "input", entries, service)]
        fields.array("input", most=_MOST_INPUTS)
    inputs: list[str | list[int]] = []
    for i, entry in enumerate(entries):
        if entry == "" or entry == []:
            raise invalid("Invalid 'input': it must not be empty.", "input", "empty_string")
        if isinstance(entry, list):
            inputs.append(token_ids(fields, f"input[{i}]", entry, service))
        elif isinstance(entry, str):
            inputs.append(entry)
        else:
            raise fields.wrong_type(f"input[{i}]", "a string or an array of token ids", entry)
    return inputs


def embed(request: EmbeddingRequest, service: ModelService, job: Job) -> Generator[bytes]:
    """Yield the answer, one JSON object.

    Raises:
        RequestError: An input does not fit into the context, or the model does not support embeddings.
    """
    tokens: list[list[int]] = []
    for entry in request.inputs:
        job.check()
        tokens.append(service.encode(entry, "input") if isinstance(entry, str) else entry)
    data: list[dict[str, Any]] = []
    for index, ids in enumerate(tokens):
        job.check()
        data.append({"object": "embedding", "index": index, "embedding": _vector(request, service, ids)})
    count = sum(map(len, tokens))
    service.metrics.prompt_tokens.add(count)
    usage = {"prompt_tokens": count, "total_tokens": count}
    yield json_bytes({"object": "list", "data": data, "model": service.name, "usage": usage})


def _vector(request: EmbeddingRequest, service: ModelService, tokens: list[int]) -> list[float] | str:
    inputs: Any = [tokens]  # `embed` takes token ids as it takes texts
    try:
        vector = service.model.embed(inputs)[0]
    except Error as problem:
        raise invalid(problem.message, "model") from None
    if not np.isfinite(vector).all():
        raise ValueError("the embedding has NaN or infinity")
    if request.is_packed:
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return vector.tolist()

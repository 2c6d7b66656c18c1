"""Small random models with recurrent layers in GGUF files, with the tokenizer of `tiny_model.py`.

They have the sizes of the references of transformers in `tests/models`, and a table of its tokens.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.llm.tiny_model import packed, tokenizer_metadata, tokens
from tests.models.gguf_files import write_gguf
from tests.models.numpy_prediction_head import tensors_with_head, write_gguf_with_head
from tests.models.references import reference, weights

_NOT_PACKED = ("ffn_gate_inp", "ssm_conv1d", "ssm_a", "ssm_d", "norm")


def write_recurrent_model(
    path: Path, name: str, *, context: int = 1024, scheme: str | None = None, has_head: bool = False
) -> Path:
    """Write a model.

    Args:
        path: The file.
        name: The reference: `"mamba"`, `"mamba2"` or `"qwen3_next"`.
        context: The number of positions.
        scheme: The format of the matrices whose rows have whole blocks of 32 elements; None for f32.
        has_head: Whether a `"qwen3_next"` has a head that predicts further tokens.
    """
    content = reference(name)

    def change(metadata: dict[str, Any], tensors: dict[str, Any]) -> None:
        for number, table in enumerate(("token_embd.weight", "output.weight")):
            if table in tensors:
                tensors[table] = table_of_tokens(number, tensors[table].shape[1])
        metadata[f"{metadata['general.architecture']}.context_length"] = context
        metadata.update(tokenizer_metadata())
        for tensor, values in tensors.items() if scheme is not None else ():
            if values.ndim == 2 and not values.shape[1] % 32 and not any(part in tensor for part in _NOT_PACKED):
                assert scheme is not None
                tensors[tensor] = packed(tensor, values, scheme)

    if has_head:
        return write_gguf_with_head(path, tensors_with_head(), change)
    return write_gguf(path, content["config"], weights(content["tensors"]), change)


def table_of_tokens(number: int, width: int) -> np.ndarray:
    """Return the embedding of the tokens (0), or the head (1)."""
    return np.random.default_rng(number).standard_normal((len(tokens()), width)).astype(np.float32)

"""Small random models with recurrent layers in GGUF files, with the tokenizer of `tiny_model.py`.

They have the sizes of the references of transformers in `tests/models`, and a table of its tokens.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.llm.tiny_model import packed, tokenizer_metadata, tokens
from tests.models.gguf_files import write_gguf
from tests.models.references import reference, weights

_NOT_PACKED = ("ffn_gate_inp", "ssm_conv1d", "ssm_a", "ssm_d", "norm")


def write_recurrent_model(path: Path, name: str, *, context: int = 1024, scheme: str | None = None) -> Path:
    """Write a model.

    Args:
        path: The file.
        name: The reference: `"mamba"`, `"mamba2"` or `"qwen3_next"`.
        context: The number of positions.
        scheme: The format of the matrices whose rows have whole blocks of 32 elements; None for f32.
    """
    content = reference(name)

    def change(metadata: dict[str, Any], tensors: dict[str, Any]) -> None:
        rng = np.random.default_rng(0)
        for table in ("token_embd.weight", "output.weight"):
            if table in tensors:
                shape = len(tokens()), tensors[table].shape[1]
                tensors[table] = rng.standard_normal(shape).astype(np.float32)
        metadata[f"{metadata['general.architecture']}.context_length"] = context
        metadata.update(tokenizer_metadata())
        for tensor, values in tensors.items() if scheme is not None else ():
            if values.ndim == 2 and not values.shape[1] % 32 and not any(part in tensor for part in _NOT_PACKED):
                assert scheme is not None
                tensors[tensor] = packed(tensor, values, scheme)

    return write_gguf(path, content["config"], weights(content["tensors"]), change)

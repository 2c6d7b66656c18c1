"""A small random language model in a GGUF file, with a byte-level tokenizer and a chat template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rlx.schemes import SCHEMES
from rlx.weights import PackedBlocks, Weight, save_gguf

WIDTH, LAYERS, HEADS, KV_HEADS, CONTEXT = 64, 2, 4, 2, 128
TEMPLATE = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}<|assistant|>"
SPECIAL = ("<s>", "</s>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>")
_MERGES = ("t h", "th e", "i n", "a n", "e r", "Ġ the", "an d")


def tokens() -> list[str]:
    """Return the vocabulary: special tokens, single bytes, and merges."""
    from tokenizers.pre_tokenizers import ByteLevel

    return [*SPECIAL, *sorted(ByteLevel.alphabet()), *(merge.replace(" ", "") for merge in _MERGES)]


def tokenizer_metadata() -> dict[str, Any]:
    """Return the metadata of the tokenizer, with the template."""
    names = tokens()
    kinds = [3] * len(SPECIAL) + [1] * (len(names) - len(SPECIAL))
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": names,
        "tokenizer.ggml.token_type": np.array(kinds, np.int32),
        "tokenizer.ggml.merges": list(_MERGES),
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.chat_template": TEMPLATE,
    }


def write_model(
    path: Path, *, seed: int = 0, scheme: str | None = None, rows: int = 0, lanes: int = 0, **changes: Any
) -> Path:
    """Write the model.

    Args:
        path: The file.
        seed: The seed of the weights.
        scheme: The format of the matrices; None for f32.
        rows: The rows of the embedding; 0 for one for each token.
        lanes: The elements of a head; 0 for 16, or 64 with large blocks.
        **changes: Pairs of metadata that are added or replaced; None removes one.
    """
    rng, names = np.random.default_rng(seed), tokens()
    width = WIDTH if scheme is None or SCHEMES[scheme].block == 32 else 256
    width = lanes * HEADS or width
    lanes, inner = width // HEADS, 2 * width
    shapes = dict.fromkeys(("token_embd", "output"), (rows or len(names), width))
    for i in range(LAYERS):
        block = {"attn_q": (width, width), "attn_k": (KV_HEADS * lanes, width), "attn_v": (KV_HEADS * lanes, width)}
        block |= {"attn_output": (width, width), "ffn_gate": (inner, width), "ffn_up": (inner, width)}
        block |= {"ffn_down": (width, inner)}
        shapes |= {f"blk.{i}.{name}": shape for name, shape in block.items()}
    tensors: dict[str, Any] = {}
    for name, shape in shapes.items():
        values = (rng.standard_normal(shape) / np.sqrt(shape[1])).astype(np.float32)
        # Clear differences between logits, so that the likeliest token does not depend on rounding.
        values = values * np.float32(4) if name in ("token_embd", "output") else values
        tensors[f"{name}.weight"] = values if scheme is None else packed(f"{name}.weight", values, scheme)
    norms = ["output_norm", *(f"blk.{i}.{n}" for i in range(LAYERS) for n in ("attn_norm", "ffn_norm"))]
    tensors |= {f"{name}.weight": np.ones(width, np.float32) for name in norms}
    pairs: dict[str, Any] = {
        "general.architecture": "llama",
        "llama.block_count": LAYERS,
        "llama.context_length": CONTEXT,
        "llama.embedding_length": width,
        "llama.feed_forward_length": inner,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        **tokenizer_metadata(),
    }
    pairs = {key: value for key, value in (pairs | changes).items() if value is not None}
    save_gguf(path, tensors, pairs)
    return path


def packed(name: str, values: np.ndarray, scheme: str) -> Weight:
    """Return a tensor in the blocks of a scheme."""
    packing = SCHEMES[scheme]
    assert packing.encode is not None
    stored = packing.encode(values).tobytes()
    return Weight(name, values.shape, PackedBlocks(packing), len(stored), "memory", lambda: stored)

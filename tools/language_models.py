"""Files of language models with the sizes of published ones and random weights, for measurements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

# The vocabularies have all words of two and three of these letters.
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class Shape:
    """The sizes of a model.

    Attributes:
        name: The published model.
        architecture: GGUF's name of the family.
        letters: The number of letters in the words of the vocabulary.
        splits: Whether all pairs of tokens that give a word are merges, or only the last split of each word.
    """

    name: str
    architecture: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    vocabulary: int
    letters: int
    splits: bool
    rope_base: float


QWEN3_600M = Shape("Qwen3-0.6B", "qwen3", 28, 1024, 16, 8, 128, 3072, 151936, 52, False, 1e6)
LLAMA_1B = Shape("Llama-3.2-1B", "llama", 16, 2048, 32, 8, 64, 8192, 128256, 49, True, 5e5)
SHAPES = (QWEN3_600M, LLAMA_1B)


def write_model(path: Path, shape: Shape, scheme: str) -> None:
    """Write a model as a GGUF file, its matrices packed in one format."""
    import rlx
    from rlx.weights import PackedBlocks, Weight

    packing, rng = rlx.weights.schemes[scheme], np.random.default_rng(0)
    encode = packing.encode
    assert encode is not None
    tensors: dict[str, Any] = {}
    for name, (rows, *columns) in _tensors(shape):
        if not columns:
            tensors[name] = np.ones(rows, np.float32)
            continue
        few = encode((rng.standard_normal((64, *columns)) * 0.02).astype(np.float32))
        data = np.resize(few, (rows, few.shape[1])).tobytes()
        tensors[name] = Weight(
            name, (rows, *columns), PackedBlocks(packing), len(data), str(path), lambda data=data: data
        )
    rlx.weights.save_gguf(path, tensors, _metadata(shape))


def _tensors(shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the name and the shape of each tensor."""
    width, inner = shape.width, shape.heads * shape.head_dim
    yield "token_embd.weight", (shape.vocabulary, width)
    yield "output_norm.weight", (width,)
    for number in range(shape.layers):
        sizes: dict[str, tuple[int, ...]] = {
            "attn_norm": (width,),
            "attn_q": (inner, width),
            "attn_k": (shape.kv_heads * shape.head_dim, width),
            "attn_v": (shape.kv_heads * shape.head_dim, width),
            "attn_output": (width, inner),
            "ffn_norm": (width,),
            "ffn_gate": (shape.feed_forward, width),
            "ffn_up": (shape.feed_forward, width),
            "ffn_down": (width, shape.feed_forward),
        }
        if shape.architecture == "qwen3":
            sizes |= {"attn_q_norm": (shape.head_dim,), "attn_k_norm": (shape.head_dim,)}
        for name, size in sizes.items():
            yield f"blk.{number}.{name}.weight", size


def _metadata(shape: Shape) -> dict[str, Any]:
    tokens, merges = _vocabulary(shape)
    sizes = {
        "block_count": shape.layers,
        "context_length": 4096,
        "embedding_length": shape.width,
        "feed_forward_length": shape.feed_forward,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "attention.key_length": shape.head_dim,
        "attention.value_length": shape.head_dim,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": shape.rope_base,
        "rope.dimension_count": shape.head_dim,
    }
    return {
        "general.architecture": shape.architecture,
        **{f"{shape.architecture}.{name}": value for name, value in sizes.items()},
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "llama-bpe" if shape.architecture == "llama" else "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array([3 if token[0] == "<" else 1 for token in tokens], np.int32),
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": shape.vocabulary - 2,
        "tokenizer.ggml.eos_token_id": shape.vocabulary - 1,
    }


def _vocabulary(shape: Shape) -> tuple[list[str], list[str]]:
    """Return about as many tokens and merges as the published model has: bytes, words, and special tokens."""
    from rlx.llm.tokenizer.byte_level import CHARACTER_OF

    letters = _LETTERS[: shape.letters]
    pairs = ["".join(pair) for pair in product(letters, repeat=2)]
    triples = ["".join(triple) for triple in product(letters, repeat=3)]
    tokens = [*CHARACTER_OF.values(), *pairs, *triples]
    tokens += [f"<{number}>" for number in range(shape.vocabulary - len(tokens))]
    merges = [f"{pair[0]} {pair[1]}" for pair in pairs] + [f"{word[:2]} {word[2]}" for word in triples]
    if shape.splits:
        merges += [f"{word[0]} {word[1:]}" for word in triples]
    return tokens, merges

"""A small random BERT in a directory, in the format of published models. It needs no network and little time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from rlx.ir.graph.graph import Graph
from rlx.models.encoder import EncoderConfig
from rlx.models.sentence import sentence_encoder

CONFIG: dict[str, Any] = {
    "model_type": "bert",
    "vocab_size": 40,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 16,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "position_embedding_type": "absolute",
}
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
WORDS = ["the", "a", "man", "woman", "cat", "dog", "eats", "drinks", "sleeps", "red", "big", "food", "water"]


def encoder(batch: Any = 2, length: Any = 8) -> Graph:
    """Return the model as a graph of blocks."""
    fields = {name: value for name, value in CONFIG.items() if name in EncoderConfig.__dataclass_fields__}
    return sentence_encoder(EncoderConfig(**fields), batch, length)


def write_model(directory: Path, seed: int = 0, layers: int = CONFIG["num_hidden_layers"]) -> Path:
    """Write `config.json`, `tokenizer.json` and `model.safetensors` into a directory, and return it."""
    from safetensors.numpy import save_file

    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": layers}))
    save_file(random_weights(seed, layers), directory / "model.safetensors")
    tokenizer().save(str(directory / "tokenizer.json"))
    return directory


def random_weights(seed: int, layers: int = CONFIG["num_hidden_layers"]) -> dict[str, np.ndarray]:
    """Return weights with the names of the checkpoints, large enough for every part of the model to affect the result."""
    rng = np.random.default_rng(seed)
    e, f = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (CONFIG["vocab_size"], e),
        "embeddings.position_embeddings.weight": (CONFIG["max_position_embeddings"], e),
        "embeddings.token_type_embeddings.weight": (CONFIG["type_vocab_size"], e),
        "embeddings.LayerNorm.weight": (e,),
        "embeddings.LayerNorm.bias": (e,),
    }
    for i in range(layers):
        layer = f"encoder.layer.{i}"
        parts = ("self.query", "self.key", "self.value", "output.dense")
        dense = {f"{layer}.attention.{part}": (e, e) for part in parts}
        dense |= {f"{layer}.intermediate.dense": (f, e), f"{layer}.output.dense": (e, f)}
        for name, shape in dense.items():
            shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes |= {f"{layer}.{name}.weight": (e,), f"{layer}.{name}.bias": (e,)}
    weights = {name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
    for name in weights:
        if name.endswith("LayerNorm.weight"):
            weights[name] += 1
    return weights


def tokenizer() -> Any:
    """Return a WordPiece tokenizer with a few words. It pads and truncates by default, like published ones."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    vocabulary = {word: i for i, word in enumerate((*SPECIAL, *WORDS))}
    result = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))
    result.normalizer = normalizers.BertNormalizer()
    result.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    result.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[(word, vocabulary[word]) for word in ("[CLS]", "[SEP]")]
    )
    result.enable_truncation(6)
    result.enable_padding(length=6)
    return result

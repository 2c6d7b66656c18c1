"""The graph of a sentence encoder: a text encoder, the mean over its tokens, and L2 normalisation."""

from __future__ import annotations

from typing import Any

from rlx.ir.graph.graph import Graph
from rlx.ir.shape import DimLike
from rlx.models.checkpoint import ParameterPrefix
from rlx.models.encoder import EncoderConfig
from rlx.models.model import FAMILIES


def sentence_encoder(config: EncoderConfig, batch: DimLike, length: DimLike, name: str = "sentence_encoder") -> Graph:
    """Return a graph from token ids to unit vectors.

    Args:
        config: Sizes. Parameters are f32, and have the names of the published checkpoints without the prefix of the
            base model.
        batch: The number of sentences.
        length: The number of tokens of a (padded) sentence.
        name: The name of the function.

    Returns:
        A graph with inputs `input_ids` and `attention_mask` `[batch, length]` i32, and output `embedding`
        `[batch, hidden_size]` f32. (Reimers and Gurevych, Sentence-BERT, §3: mean pooling.)
    """
    encode = FAMILIES[config.model_type].encode
    assert encode is not None
    g: Any = Graph(name, stage="hir")
    ids = g.input("input_ids", (batch, length), "i32")
    mask = g.input("attention_mask", (batch, length), "i32")
    tokens = encode(ParameterPrefix(g), config, ids, mask)
    with g.named("pooling"):
        keep = g.cast(mask, "f32")
        total = g.dot_general(keep, tokens, [1], [1], [0], [0])
        mean = total / g.maximum(g.sum(keep, 1, keep_dims=True), 1e-9)
        norm = g.sqrt(g.sum(mean * mean, -1, keep_dims=True))
        g.set_outputs({"embedding": mean / g.maximum(norm, 1e-12)})
    return g

"""MPNet (Song et al., 2020): a RoBERTa with a relative attention bias.

The bias of two tokens depends only on their distance. Distances up to 7 have separate buckets; larger ones share
buckets that grow by a constant factor (Raffel et al., T5, 2020, §2.1). All layers share the bias.
"""

from __future__ import annotations

from rlx.ir.graph.builder import Tensor
from rlx.models.checkpoint import ParameterPrefix
from rlx.models.encoder import EncoderConfig, LayerNames, embeddings, encoder_family, layers
from rlx.models.encoder_heads import ROBERTA_HEADS
from rlx.models.fields import Fields
from rlx.models.relative_bias import biases, distance_buckets, distances

_NAMES = LayerNames(
    "encoder.layer.",
    "attention.attn.q",
    "attention.attn.k",
    "attention.attn.v",
    "attention.attn.o",
    "attention.LayerNorm",
    "intermediate.dense",
    "output.dense",
    "output.LayerNorm",
)
_FARTHEST = 128  # from this distance on, all are in one bucket


def _read(fields: Fields) -> EncoderConfig:
    buckets = fields.size("relative_attention_num_buckets", 32, least=4, most=4 * _FARTHEST)
    if buckets % 4:
        raise fields.refusal("relative_attention_num_buckets", "a multiple of 4")
    padding = fields.size("pad_token_id", 1, least=0)
    return EncoderConfig.read(fields, "mpnet", pad_token_id=padding, num_buckets=buckets)


def _bias(scope: ParameterPrefix, config: EncoderConfig, ids: Tensor, mask: Tensor) -> Tensor:
    """Return the bias of the scores: `[B, H, S, S]`, with -inf at padding."""
    g, heads = scope.g, config.num_attention_heads
    batch, length = ids.shape.dims
    table = scope.table("encoder.relative_attention_bias", config.num_buckets, heads)
    distance = distances(g, 0, length, length)
    bias = biases(g, table, distance_buckets(config.num_buckets, _FARTHEST), distance)
    keep = g.reshape(g.ne(mask, 0), (batch, 1, 1, length))
    return g.where(keep, g.reshape(bias, (1, heads, length, length)), float("-inf"))


def _encode(
    scope: ParameterPrefix, config: EncoderConfig, ids: Tensor, mask: Tensor, types: Tensor | None = None
) -> Tensor:
    x = embeddings(scope, config, ids, None)
    with scope.g.named("relative_attention_bias"):
        bias = _bias(scope, config, ids, mask)
    return layers(scope, config, _NAMES, x, bias, "bias")


FAMILIES = (encoder_family("mpnet", _read, _encode, _NAMES.layers, ("mpnet.",), ROBERTA_HEADS),)

"""DistilBERT (Sanh et al., 2019): a BERT without token types and pooler, with different parameter names."""

from __future__ import annotations

from rlx.ir.graph.builder import Tensor
from rlx.models.checkpoint import ParameterPrefix
from rlx.models.encoder import EncoderConfig, LayerNames, embeddings, encoder_family, layers
from rlx.models.encoder_heads import DISTILBERT_HEADS
from rlx.models.fields import Fields

_NAMES = LayerNames(
    "transformer.layer.",
    "attention.q_lin",
    "attention.k_lin",
    "attention.v_lin",
    "attention.out_lin",
    "sa_layer_norm",
    "ffn.lin1",
    "ffn.lin2",
    "output_layer_norm",
)


def _read(fields: Fields) -> EncoderConfig:
    fields.only(pruned_heads={})  # sinusoidal positions are stored like learned ones
    heads, width = fields.size("n_heads"), fields.size("dim")
    fields.divided("n_heads", width, heads)
    return EncoderConfig(
        "distilbert",
        vocab_size=fields.size("vocab_size"),
        hidden_size=width,
        num_hidden_layers=fields.size("n_layers"),
        num_attention_heads=heads,
        intermediate_size=fields.size("hidden_dim"),
        max_position_embeddings=fields.size("max_position_embeddings"),
        hidden_act=fields.activation("activation", "gelu"),
    )


def _encode(
    scope: ParameterPrefix, config: EncoderConfig, ids: Tensor, mask: Tensor, types: Tensor | None = None
) -> Tensor:
    return layers(scope, config, _NAMES, embeddings(scope, config, ids, None), mask, "custom")


FAMILIES = (encoder_family("distilbert", _read, _encode, _NAMES.layers, ("distilbert.",), DISTILBERT_HEADS),)

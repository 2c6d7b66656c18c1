"""BERT (Devlin et al., 2018): absolute positions and two token types."""

from __future__ import annotations

from rlx.ir.graph.builder import Tensor
from rlx.models.checkpoint import ParameterPrefix
from rlx.models.encoder import BERT_NAMES, EncoderConfig, embeddings, encoder_family, layers
from rlx.models.encoder_heads import BERT_HEADS
from rlx.models.fields import Fields


def read(fields: Fields) -> EncoderConfig:
    """Return the configuration."""
    return EncoderConfig.read(fields, "bert", type_vocab_size=fields.size("type_vocab_size", 2))


def encode(
    scope: ParameterPrefix, config: EncoderConfig, ids: Tensor, mask: Tensor, types: Tensor | None = None
) -> Tensor:
    """Return token representations `[B, S, E]`."""
    return layers(scope, config, BERT_NAMES, embeddings(scope, config, ids, types), mask, "custom")


FAMILIES = (encoder_family("bert", read, encode, BERT_NAMES.layers, ("bert.",), BERT_HEADS),)

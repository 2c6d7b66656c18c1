"""RoBERTa (Liu et al., 2019), CamemBERT and XLM-RoBERTa: a BERT whose positions do not count padding tokens."""

from __future__ import annotations

from functools import partial

from rlx.models.bert import encode
from rlx.models.encoder import BERT_NAMES, EncoderConfig, encoder_family
from rlx.models.encoder_heads import ROBERTA_HEADS
from rlx.models.fields import Fields


def _read(fields: Fields, model_type: str) -> EncoderConfig:
    kinds, padding = fields.size("type_vocab_size", 2), fields.size("pad_token_id", 1, least=0)
    return EncoderConfig.read(fields, model_type, type_vocab_size=kinds, pad_token_id=padding)


FAMILIES = tuple(
    encoder_family(name, partial(_read, model_type=name), encode, BERT_NAMES.layers, ("roberta.",), ROBERTA_HEADS)
    for name in ("roberta", "camembert", "xlm-roberta")
)

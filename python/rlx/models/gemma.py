"""Gemma (2024) and Gemma 2 (2024), with windows in every other layer, soft caps, and norms after each part."""

from __future__ import annotations

from functools import partial
from typing import Any

from rlx.models.decoder import DecoderConfig, decoder_family, read_layer_types
from rlx.models.fields import Fields


def _read(fields: Fields, model_type: str, **more: Any) -> DecoderConfig:
    fields.only(use_bidirectional_attention=False)
    biases = frozenset({"qkv", "o"} if fields.flag("attention_bias", False) else ())
    return DecoderConfig.read(
        fields,
        model_type,
        head_dim=256,
        tied=True,
        act="gelu_pytorch_tanh",
        positions=8192,
        biases=biases,
        offset_norm=True,
        **more,
    )


def _gemma(fields: Fields) -> DecoderConfig:
    return _read(fields, "gemma")


def _gemma2(fields: Fields) -> DecoderConfig:
    caps = {
        name: fields.optional(name, partial(fields.number, least=1e-6), default)
        for name, default in (("attn_logit_softcapping", 50.0), ("final_logit_softcapping", 30.0))
    }
    return _read(
        fields,
        "gemma2",
        post_norms=True,
        sliding_window=fields.size("sliding_window", 4096),
        layer_types=read_layer_types(fields, lambda i: "full_attention" if i % 2 else "sliding_attention"),
        score_scale=fields.number("query_pre_attn_scalar", 256.0, least=1e-6) ** -0.5,
        **caps,
    )


FAMILIES = (decoder_family("gemma", _gemma), decoder_family("gemma2", _gemma2))

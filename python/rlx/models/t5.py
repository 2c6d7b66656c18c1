"""T5 and mT5 (Raffel et al., 2020; Xue et al., 2021): relative biases, RMS norms before each part, no other biases."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rlx.models.encoder_decoder import EncoderDecoderConfig, StackConfig, encoder_decoder_family, read_token
from rlx.models.fields import Fields
from rlx.weights import Weight

_BLOCK = re.compile(r"(encoder|decoder)\.block\.(\d{1,6})\.layer\.(\d)\.(.+)")
_ATTENTIONS = {"SelfAttention": "self_attn", "EncDecAttention": "encoder_attn"}
_NETWORK = {"wi": "fc1", "wi_0": "fc1", "wi_1": "fc1_up", "wo": "fc2"}
_FEED_FORWARDS = {"relu": ("relu", False), "gated-gelu": ("gelu_new", True), "gated-silu": ("silu", True)}


def _read(fields: Fields, model_type: str) -> EncoderDecoderConfig:
    width, inner = fields.size("d_model"), fields.size("d_ff")
    layers, heads = fields.size("num_layers"), fields.size("num_heads")
    decoder_layers = fields.size("num_decoder_layers") if fields.has("num_decoder_layers") else layers
    default = "relu" if model_type == "t5" else "gated-gelu"
    activation, is_gated = _FEED_FORWARDS[fields.choice("feed_forward_proj", tuple(_FEED_FORWARDS), default)]
    buckets = fields.size("relative_attention_num_buckets", 32, least=4, most=512)
    distance = fields.size("relative_attention_max_distance", 128, least=2, most=1 << 16)
    if buckets % 4 or distance <= buckets // 2:
        raise fields.refusal("relative_attention_num_buckets", "a multiple of 4, and less than twice the distance")
    # The first T5 scales the states before the logits. Later versions and mT5 have logits of their own, and do not.
    is_scaled = fields.flag("scale_decoder_outputs", fields.flag("tie_word_embeddings", True)) and model_type == "t5"
    return EncoderDecoderConfig(
        model_type,
        fields.size("vocab_size"),
        width,
        StackConfig(layers, heads, inner),
        StackConfig(decoder_layers, heads, inner),
        fields.size("d_kv", 64, most=4096),
        activation,
        fields.number("layer_norm_epsilon", 1e-6),
        norm="rms",
        norms_first=True,
        has_final_norm=True,
        biases=frozenset(),
        output_scale=width**-0.5 if is_scaled else 1.0,
        num_buckets=buckets,
        max_distance=distance,
        is_gated=is_gated,
        decoder_start_token_id=read_token(fields, "decoder_start_token_id"),
        eos_token_id=read_token(fields, "eos_token_id"),
        pad_token_id=read_token(fields, "pad_token_id"),
    )


def _name(name: str) -> str | None:
    """Return the name of a tensor in graphs; None for one that is not used."""
    match = _BLOCK.fullmatch(name)
    if match is None:
        return name.replace(".final_layer_norm.", ".layer_norm.")
    part, number, place, rest = match.groups()
    is_last = place == ("2" if part == "decoder" else "1")
    kind, _, inner = rest.partition(".")
    layer = f"{part}.layers.{number}"
    if inner == "relative_attention_bias.weight":  # all layers share that of the first
        return f"{part}.relative_attention_bias.weight" if kind == "SelfAttention" and number == "0" else None
    if kind == "layer_norm":
        norm = "final_layer_norm" if is_last else ("self_attn_layer_norm", "encoder_attn_layer_norm")[int(place) % 2]
        return f"{layer}.{norm}.{inner}"
    matrix, _, suffix = inner.partition(".")
    if kind in _ATTENTIONS:
        return f"{layer}.{_ATTENTIONS[kind]}.{'out' if matrix == 'o' else matrix}_proj.{suffix}"
    return f"{layer}.{_NETWORK.get(matrix, matrix)}.{suffix}"


def _adapted(tensors: Mapping[str, Weight], config: Any) -> dict[str, Weight]:
    return {new: weight for name, weight in tensors.items() if (new := _name(name)) is not None}


def _family(model_type: str) -> Any:
    return encoder_decoder_family(model_type, lambda fields: _read(fields, model_type), _adapted)


FAMILIES = (_family("t5"), _family("mt5"))

"""Encoder–decoder models with tables of positions and layer norms.

BART (Lewis et al., 2020), mBART (Liu et al., 2020), Marian (Junczys-Dowmunt et al., 2018), Pegasus (Zhang et al., 2020) and
Whisper (Radford et al., 2022).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlx.models.encoder_decoder import EncoderDecoderConfig, StackConfig, encoder_decoder_family, read_token
from rlx.models.fields import Fields
from rlx.models.weight_views import reshaped
from rlx.weights import Weight


def _read(fields: Fields, model_type: str) -> EncoderDecoderConfig:
    width = fields.size("d_model")
    positions = 0 if model_type == "whisper" else fields.size("max_position_embeddings", 1024)

    def stack(kind: str, rows: int) -> StackConfig:
        heads = fields.size(f"{kind}_attention_heads")
        fields.divided(f"{kind}_attention_heads", width, heads)
        return StackConfig(fields.size(f"{kind}_layers"), heads, fields.size(f"{kind}_ffn_dim"), rows)

    encoder, decoder = stack("encoder", positions), stack("decoder", positions)
    if encoder.heads != decoder.heads:
        raise fields.refusal("decoder_attention_heads", f"{encoder.heads}, as in the encoder")
    lanes = width // decoder.heads
    return EncoderDecoderConfig(
        model_type,
        fields.size("vocab_size"),
        width,
        encoder,
        decoder,
        lanes,
        fields.activation("activation_function", "gelu"),
        1e-5,
        has_embedding_norm=True,
        first_position=2,
        embedding_scale=width**0.5 if fields.flag("scale_embedding", False) else 1.0,
        score_scale=lanes**-0.5,
        decoder_start_token_id=read_token(fields, "decoder_start_token_id"),
        eos_token_id=read_token(fields, "eos_token_id"),
        pad_token_id=read_token(fields, "pad_token_id"),
    )


def _bart(fields: Fields) -> EncoderDecoderConfig:
    return _read(fields, "bart")


def _mbart(fields: Fields) -> EncoderDecoderConfig:
    return replace(_read(fields, "mbart"), norms_first=True, has_final_norm=True)


def _with_sines(fields: Fields, model_type: str) -> EncoderDecoderConfig:
    fields.only(share_encoder_decoder_embeddings=True)
    return replace(_read(fields, model_type), has_embedding_norm=False, has_sines=True, first_position=0)


def _marian(fields: Fields) -> EncoderDecoderConfig:
    return _with_sines(fields, "marian")


def _pegasus(fields: Fields) -> EncoderDecoderConfig:
    return replace(_with_sines(fields, "pegasus"), norms_first=True, has_final_norm=True)


def _whisper(fields: Fields) -> EncoderDecoderConfig:
    config = _read(fields, "whisper")
    return replace(
        config,
        encoder=replace(config.encoder, positions=fields.size("max_source_positions", 1500)),
        decoder=replace(config.decoder, positions=fields.size("max_target_positions", 448)),
        norms_first=True,
        has_embedding_norm=False,
        has_final_norm=True,
        biases=config.biases - {"k"},
        first_position=0,
        mel_bins=fields.size("num_mel_bins", 80),
    )


def _adapted(tensors: Mapping[str, Weight], config: Any) -> dict[str, Weight]:
    """Return the tensors without the prefix of the base model. The shared table has the name of BART."""
    result = {name.removeprefix("model."): weight for name, weight in tensors.items()}
    for name in ("decoder.embed_tokens.weight", "encoder.embed_tokens.weight"):
        if "shared.weight" not in result and name in result:
            result["shared.weight"] = result.pop(name)
    if "proj_out.weight" in result:
        result["lm_head.weight"] = result.pop("proj_out.weight")
    bias = result.get("final_logits_bias")
    if bias is not None and len(bias.shape) == 2 and bias.shape[0] == 1:
        result["final_logits_bias"] = reshaped(bias, bias.shape[1:])
    return result


FAMILIES = (
    encoder_decoder_family("bart", _bart, _adapted),
    encoder_decoder_family("mbart", _mbart, _adapted),
    encoder_decoder_family("marian", _marian, _adapted),
    encoder_decoder_family("pegasus", _pegasus, _adapted),
    encoder_decoder_family("whisper", _whisper, _adapted),
)

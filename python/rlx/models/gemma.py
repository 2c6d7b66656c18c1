"""Gemma (2024), Gemma 2 (2024), with windows, soft caps and norms after each part, and Gemma 3 (2025).

Gemma 3 has norms of queries and keys instead of soft caps, and other rotary positions in layers with a window.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from rlx.models.decoder import decoder_family
from rlx.models.decoder_config import DecoderConfig, read_layer_types
from rlx.models.fields import Fields
from rlx.models.rope import RotaryTables
from rlx.models.rope_fields import read_rope

# Fields that published files of Gemma 3 leave out.
_GEMMA3 = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262_208}
_GEMMA3_POSITIONS = 131_072


def _read(fields: Fields, model_type: str, positions: int = 8192, **more: Any) -> DecoderConfig:
    fields.only(use_bidirectional_attention=False)
    biases = frozenset({"qkv", "o"} if fields.flag("attention_bias", False) else ())
    return DecoderConfig.read(
        fields,
        model_type,
        head_dim=256,
        tied=True,
        act="gelu_pytorch_tanh",
        positions=positions,
        biases=biases,
        offset_norm=True,
        embedding_scale=fields.size("hidden_size") ** 0.5,
        **more,
    )


def _gemma(fields: Fields) -> DecoderConfig:
    return _read(fields, "gemma")


def _caps(fields: Fields, attention: float | None, final: float | None) -> dict[str, Any]:
    defaults = {"attn_logit_softcapping": attention, "final_logit_softcapping": final}
    return {n: fields.optional(n, partial(fields.number, least=1e-6), value) for n, value in defaults.items()}


def _gemma2(fields: Fields) -> DecoderConfig:
    return _read(
        fields,
        "gemma2",
        norm_places="around",
        sliding_window=fields.size("sliding_window", 4096),
        layer_types=read_layer_types(fields, lambda i: "full_attention" if i % 2 else "sliding_attention"),
        score_scale=fields.number("query_pre_attn_scalar", 256.0, least=1e-6) ** -0.5,
        **_caps(fields, 50.0, 30.0),
    )


def _gemma3_ropes(fields: Fields) -> tuple[RotaryTables, RotaryTables]:
    """Return the rotary positions of layers without a window and with one. Older files scale only the former."""
    lanes, positions = fields.size("head_dim"), fields.size("max_position_embeddings", _GEMMA3_POSITIONS)
    full = read_rope(fields, lanes, positions, 1_000_000.0, "full_attention")
    if fields.has("rope_parameters"):
        return full, read_rope(fields, lanes, positions, 10_000.0, "sliding_attention")
    return full, RotaryTables(full.lanes, fields.number("rope_local_base_freq", 10_000.0, least=1))


def _gemma3(fields: Fields, model_type: str = "gemma3_text") -> DecoderConfig:
    fields = fields.with_defaults(**_GEMMA3)
    pattern = fields.size("sliding_window_pattern") if fields.has("sliding_window_pattern") else 6
    rope, local_rope = _gemma3_ropes(fields)
    windows: dict[str, Any] = {}
    if fields.optional("sliding_window", partial(fields.size, least=0), 4096):
        kinds = read_layer_types(fields, lambda i: "sliding_attention" if (i + 1) % pattern else "full_attention")
        windows = {"sliding_window": fields.size("sliding_window", 4096), "layer_types": kinds}
    return _read(
        fields,
        model_type,
        positions=_GEMMA3_POSITIONS,
        norm_places="around",
        qk_norm="head",
        rope=rope,
        local_rope=local_rope,
        score_scale=fields.number("query_pre_attn_scalar", 256.0, least=1e-6) ** -0.5,
        **_caps(fields, None, None),
        **windows,
    )


def _gemma3_with_images(fields: Fields) -> DecoderConfig:
    """Return the configuration of the text model. The tensors of the image encoder are unused."""
    text = fields.within("text_config")
    if text is None:
        raise fields.refusal("text_config", "an object")
    return _gemma3(text, "gemma3")


FAMILIES = (
    decoder_family("gemma", _gemma),
    decoder_family("gemma2", _gemma2),
    decoder_family("gemma3_text", _gemma3),
    decoder_family("gemma3", _gemma3_with_images, prefixes=("language_model.model.", "model.language_model.")),
)

"""Llama 1 to 3 (Touvron et al., 2023) and families that differ from it in few places.

Mistral (Jiang et al., 2023) adds a window. SmolLM3 (2025) does not rotate every fourth layer. Granite (IBM, 2024) scales
embeddings, residuals and logits. OLMo 2 (2025) has its norms after attention and feed-forward networks, and OLMo 3
(2025) also windows.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from rlx.models.decoder import decoder_family
from rlx.models.decoder_config import (
    DecoderConfig,
    num_layers_to_list,
    read_layer_flags,
    read_layer_types,
)
from rlx.models.fields import Fields
from rlx.models.rope import RotaryTables
from rlx.models.rope_fields import read_rope


def _biases(fields: Fields) -> frozenset[str]:
    parts = {"attention_bias": ("qkv", "o"), "mlp_bias": ("mlp",)}
    return frozenset(part for name, parts_of in parts.items() if fields.flag(name, False) for part in parts_of)


def _llama(fields: Fields) -> DecoderConfig:
    return DecoderConfig.read(fields, "llama", biases=_biases(fields))


def _mistral(fields: Fields) -> DecoderConfig:
    # A file without the field belongs to the first release, which had a window. In later releases the field is null.
    window = fields.optional("sliding_window", fields.size, 4096)
    return DecoderConfig.read(fields, "mistral", positions=4096 * 32, sliding_window=window)


def _smollm3(fields: Fields) -> DecoderConfig:
    interval = fields.size("no_rope_layer_interval", 4)
    is_rotated = read_layer_flags(fields, "no_rope_layers")  # the field is 1 where positions are rotated
    if is_rotated is None:
        is_rotated = tuple((i + 1) % interval != 0 for i in range(num_layers_to_list(fields)))
    windows = {}
    if fields.flag("use_sliding_window", False) and fields.has("sliding_window"):
        windows = {
            "sliding_window": fields.size("sliding_window"),
            "layer_types": read_layer_types(
                fields, lambda i: "sliding_attention" if is_rotated[i] else "full_attention"
            ),
        }
    return DecoderConfig.read(
        fields.with_defaults(num_key_value_heads=4),
        "smollm3",
        tied=True,
        positions=32768,
        theta=2_000_000.0,
        biases=_biases(fields),
        unrotated_layers=frozenset(i for i, rotated in enumerate(is_rotated) if not rotated),
        **windows,
    )


def _granite(fields: Fields) -> DecoderConfig:
    number = partial(fields.number, default=1.0, least=1e-9)
    return DecoderConfig.read(
        fields,
        "granite",
        biases=_biases(fields),
        embedding_scale=number("embedding_multiplier"),
        residual_scale=number("residual_multiplier"),
        score_scale=number("attention_multiplier"),
        logit_scale=1 / number("logits_scaling"),
    )


def _olmo(fields: Fields, model_type: str, **more: Any) -> DecoderConfig:
    return DecoderConfig.read(
        fields,
        model_type,
        biases=_biases(fields),
        norm_eps=fields.number("rms_norm_eps", 1e-5),
        norm_places="after",
        qk_norm="width",
        **more,
    )


def _olmo2(fields: Fields) -> DecoderConfig:
    return _olmo(fields, "olmo2")


def _olmo3(fields: Fields) -> DecoderConfig:
    """Return the configuration. In files that do not name the layers, positions are scaled in those without a window."""
    kinds = read_layer_types(fields, lambda i: "sliding_attention" if (i + 1) % 4 else "full_attention")
    config = _olmo(fields, "olmo3", sliding_window=fields.size("sliding_window", 4096), layer_types=kinds)
    given = fields.within("rope_parameters")
    assert config.rope is not None
    if given is None or not given.has("full_attention"):
        theta = fields.number("rope_local_base_freq", config.rope.rope_theta, least=1)
        return replace(config, local_rope=RotaryTables(config.rope.lanes, theta))
    positions = config.max_position_embeddings
    full, local = (
        read_rope(fields, config.head_dim, positions, part=part) for part in ("full_attention", "sliding_attention")
    )
    return replace(config, rope=full, local_rope=local)


FAMILIES = (
    decoder_family("llama", _llama),
    decoder_family("mistral", _mistral),
    decoder_family("smollm3", _smollm3),
    decoder_family("granite", _granite),
    decoder_family("olmo2", _olmo2),
    decoder_family("olmo3", _olmo3),
)

"""Qwen2 (2024), with biases of queries, keys and values, and Qwen3 (2025), with norms of queries and keys instead."""

from __future__ import annotations

from typing import Any

from rlx.models.decoder import DecoderConfig, decoder_family, read_layer_types
from rlx.models.fields import Fields


def _windows(fields: Fields, max_window_layers: int) -> dict[str, Any]:
    """Return the window fields. If windows are used at all, layers from `max_window_layers` on have one."""
    window = fields.optional("sliding_window", fields.size, 4096)
    if not fields.flag("use_sliding_window", False) or window is None:
        return {}
    first = fields.size("max_window_layers", max_window_layers, least=0)
    kinds = read_layer_types(fields, lambda i: "sliding_attention" if i >= first else "full_attention")
    return {"sliding_window": window, "layer_types": kinds}


def _qwen2(fields: Fields) -> DecoderConfig:
    windows = _windows(fields, 28)
    return DecoderConfig.read(fields, "qwen2", positions=32768, biases=frozenset({"qkv"}), **windows)


def _qwen3(fields: Fields) -> DecoderConfig:
    biases = frozenset({"qkv", "o"} if fields.flag("attention_bias", False) else ())
    windows = _windows(fields, 28)
    return DecoderConfig.read(fields, "qwen3", head_dim=128, positions=32768, biases=biases, qk_norm=True, **windows)


FAMILIES = (decoder_family("qwen2", _qwen2), decoder_family("qwen3", _qwen3))

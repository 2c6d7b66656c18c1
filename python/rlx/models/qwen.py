"""Qwen2 (2024), with biases of queries, keys and values, and Qwen3 (2025), with norms of queries and keys instead.

Both also exist with a mixture of experts. Qwen3-Next (2025) also replaces attention in three of four layers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlx.models.decoder import decoder_family
from rlx.models.decoder_config import (
    DecoderConfig,
    ExpertsConfig,
    LinearAttentionConfig,
    num_layers_to_list,
    read_layer_types,
)
from rlx.models.family import ModelFamily
from rlx.models.fields import Fields
from rlx.models.linear_attention import split_linear
from rlx.models.prediction_head import build_prediction_head, head_of_folder
from rlx.models.tensor_names import TensorNames
from rlx.weights import Weight


def _windows(fields: Fields, max_window_layers: int) -> dict[str, Any]:
    """Return the window fields. If windows are used at all, layers from `max_window_layers` on have one."""
    if not fields.flag("use_sliding_window", False):
        return {}
    window = fields.optional("sliding_window", fields.size, 4096)
    if window is None:
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
    return DecoderConfig.read(fields, "qwen3", head_dim=128, positions=32768, biases=biases, qk_norm="head", **windows)


def _experts(fields: Fields, *, is_normalized: bool, **more: Any) -> ExpertsConfig:
    """Return the mixture of experts. It replaces the feed-forward network in every layer that is not listed."""
    step = fields.size("decoder_sparse_step", 1)
    listed: Any = fields.data.get("mlp_only_layers") or []
    if not isinstance(listed, list) or any(type(i) is not int for i in listed):
        raise fields.refusal("mlp_only_layers", "a list of layers")
    dense = {i for i in range(num_layers_to_list(fields)) if i in listed or (i + 1) % step}
    count = "num_experts" if fields.has("num_experts") else "num_local_experts"
    return ExpertsConfig.read(
        fields,
        count,
        "num_experts_per_tok",
        "moe_intermediate_size",
        is_normalized=fields.flag("norm_topk_prob", is_normalized),
        dense_layers=frozenset(dense),
        **more,
    )


def _qwen2_moe(fields: Fields) -> DecoderConfig:
    width = fields.size("shared_expert_intermediate_size")
    experts = _experts(fields, is_normalized=False, shared_width=width, has_shared_gate=True)
    biases = frozenset({"qkv"} if fields.flag("qkv_bias", True) else ())
    windows = _windows(fields, 28)
    return DecoderConfig.read(fields, "qwen2_moe", positions=32768, biases=biases, experts=experts, **windows)


def _qwen3_moe(fields: Fields) -> DecoderConfig:
    fields.only(use_sliding_window=False)
    biases = frozenset({"qkv", "o"} if fields.flag("attention_bias", False) else ())
    experts = _experts(fields, is_normalized=False)
    return DecoderConfig.read(
        fields, "qwen3_moe", head_dim=128, positions=32768, biases=biases, qk_norm="head", experts=experts
    )


def _recurrent_layers(fields: Fields) -> frozenset[int]:
    num_layers = fields.size("num_hidden_layers")
    if not fields.has("layer_types"):
        interval = fields.size("full_attention_interval", 4)
        return frozenset(i for i in range(num_layers_to_list(fields)) if (i + 1) % interval)
    kinds: Any = fields.data["layer_types"]
    known = ("linear_attention", "full_attention")
    if not isinstance(kinds, list) or len(kinds) != num_layers or any(kind not in known for kind in kinds):
        raise fields.refusal("layer_types", f"a list of {num_layers} of {', '.join(known)}")
    return frozenset(i for i, kind in enumerate(kinds) if kind == "linear_attention")


def _qwen3_next(fields: Fields) -> DecoderConfig:
    key_heads, value_heads = fields.size("linear_num_key_heads", 16), fields.size("linear_num_value_heads", 32)
    lanes, value_lanes = fields.size("linear_key_head_dim", 128), fields.size("linear_value_head_dim", 128)
    if value_heads % key_heads:
        raise fields.refusal("linear_num_value_heads", f"a multiple of the {key_heads} heads of keys")
    if lanes != value_lanes:
        raise fields.refusal("linear_value_head_dim", f"{lanes}, as that of keys")
    kernel = fields.size("linear_conv_kernel_dim", 4, least=2, most=64)
    biases = frozenset({"qkv", "o"} if fields.flag("attention_bias", False) else ())
    width = fields.size("shared_expert_intermediate_size")
    return DecoderConfig.read(
        fields,
        "qwen3_next",
        head_dim=256,
        positions=32768,
        fraction=0.25,
        biases=biases,
        qk_norm="head",
        offset_norm=True,
        experts=_experts(fields, is_normalized=True, shared_width=width, has_shared_gate=True),
        linear_attention=LinearAttentionConfig(_recurrent_layers(fields), key_heads, value_heads, lanes, kernel),
        has_query_gate=True,
    )


_LINEAR = {f"linear_attn.{name}": f"linear_attn.{name}" for name in ("A_log", "dt_bias")}


def _next_family() -> ModelFamily:
    family = decoder_family("qwen3_next", _qwen3_next, TensorNames(layer=_LINEAR))
    adapted: Any = family.adapted

    def split(tensors: Any, config: Any) -> dict[str, Weight]:
        return head_of_folder(split_linear(adapted(tensors, config), config), config)

    return replace(family, adapted=split, prediction_head=build_prediction_head)


FAMILIES = (
    decoder_family("qwen2", _qwen2),
    decoder_family("qwen3", _qwen3),
    decoder_family("qwen2_moe", _qwen2_moe, TensorNames()),
    decoder_family("qwen3_moe", _qwen3_moe, TensorNames()),
    _next_family(),
)

"""DeepSeek-V2 and DeepSeek-V3 (2024): latent keys and values, and a mixture of experts with shared experts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlx.models.decoder import decoder_family
from rlx.models.decoder_config import DecoderConfig, ExpertsConfig, LatentConfig, num_layers_to_list
from rlx.models.family import ModelFamily
from rlx.models.fields import Fields
from rlx.models.rope_fields import read_rope, yarn_mscale
from rlx.models.tensor_names import TensorNames
from rlx.models.weight_views import reshaped, split_groups
from rlx.weights import Weight

_NAMES = TensorNames(
    layer={f"mlp.shared_experts.{n}_proj": f"mlp.shared_expert.{n}_proj" for n in ("gate", "up", "down")}
)
_FUSED = ".self_attn.kv_b_proj.weight"


def _experts(fields: Fields, is_v3: bool) -> ExpertsConfig | None:
    if not fields.has("n_routed_experts"):
        return None
    first = fields.size("first_k_dense_replace", 0, least=0)
    shared = fields.size("n_shared_experts", 0, least=0) if fields.has("n_shared_experts") else 0
    experts = ExpertsConfig.read(
        fields,
        "n_routed_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
        is_normalized=fields.flag("norm_topk_prob", is_v3),
        scoring=fields.choice("scoring_func", ("softmax", "sigmoid"), "sigmoid" if is_v3 else "softmax"),
        scale=fields.number("routed_scaling_factor", 2.5 if is_v3 else 1.0),
        has_selection_bias=is_v3,
        dense_layers=frozenset(range(min(first, num_layers_to_list(fields)))),
    )
    experts = replace(experts, shared_width=shared * experts.width)
    has_groups = is_v3 or fields.data.get("topk_method") == "group_limited_greedy"
    if not has_groups or not fields.has("n_group"):
        return experts
    groups, chosen = fields.size("n_group"), fields.size("topk_group", 1)
    if experts.count % groups:
        raise fields.refusal("n_group", f"a divisor of the {experts.count} experts")
    if chosen > groups or chosen * (experts.count // groups) < experts.per_token:
        raise fields.refusal("topk_group", f"at most {groups} and enough for {experts.per_token} experts")
    return replace(experts, groups=groups, groups_per_token=chosen)


def _deepseek(fields: Fields, model_type: str) -> DecoderConfig:
    is_v3 = model_type == "deepseek_v3"
    rotated, plain = fields.size("qk_rope_head_dim", 64), fields.size("qk_nope_head_dim", 128)
    rank = fields.size("kv_lora_rank", 512)
    q_rank = fields.size("q_lora_rank") if fields.has("q_lora_rank") else None
    latent = LatentConfig(q_rank, rank, plain, rotated, fields.size("v_head_dim", 128))
    positions = fields.size("max_position_embeddings", 4096)
    scale = (plain + rotated) ** -0.5
    scaling = fields.within("rope_parameters") or fields.within("rope_scaling")
    if scaling is not None and scaling.has("mscale_all_dim"):
        weight = scaling.number("mscale_all_dim")
        scale *= yarn_mscale(scaling.number("factor", 1.0, least=1), weight) ** 2 if weight else 1.0
    biases = frozenset({"qkv", "o"} if fields.flag("attention_bias", False) else ())
    return DecoderConfig.read(
        fields.replaced(num_key_value_heads=1, head_dim=rank + rotated),
        model_type,
        biases=biases,
        rope=read_rope(fields, rotated, positions),
        rope_style="gptj",
        score_scale=scale,
        experts=_experts(fields, is_v3),
        latent=latent,
    )


def _deepseek_v2(fields: Fields) -> DecoderConfig:
    return _deepseek(fields, "deepseek_v2")


def _deepseek_v3(fields: Fields) -> DecoderConfig:
    return _deepseek(fields, "deepseek_v3")


def split_latent(tensors: Mapping[str, Weight], config: DecoderConfig) -> dict[str, Weight]:
    """Return the tensors with matrices of keys and values split. Layers that predict further tokens are left out."""
    latent = config.latent
    assert latent is not None
    result: dict[str, Weight] = {}
    for name, weight in tensors.items():
        number = re.match(r"layers\.(\d{1,6})\.", name)
        if number is not None and int(number[1]) >= config.num_hidden_layers:
            continue
        if name.endswith(".mlp.gate.bias"):
            name = f"{name.removesuffix('bias')}e_score_correction_bias"
        elif name.endswith(".self_attn.v_b_proj.weight") and len(weight.shape) == 3:
            weight = reshaped(weight, (weight.shape[0] * weight.shape[1], weight.shape[2]))
        if name.endswith(_FUSED):
            heads = config.num_attention_heads
            keys, values = split_groups(weight, heads, [latent.plain_lanes, latent.value_lanes])
            stem = name.removesuffix("kv_b_proj.weight")
            result |= {f"{stem}k_b_proj.weight": keys, f"{stem}v_b_proj.weight": values}
        else:
            result[name] = weight
    return result


def _split(family: ModelFamily) -> ModelFamily:
    """Return the family with its latent matrices split."""
    adapted: Any = family.adapted
    return replace(family, adapted=lambda tensors, config: split_latent(adapted(tensors, config), config))


FAMILIES = (
    _split(decoder_family("deepseek_v2", _deepseek_v2, _NAMES)),
    _split(decoder_family("deepseek_v3", _deepseek_v3, _NAMES)),
)

"""Architectures of GGUF files: the families that have their graphs, the names of their tensors, and their keys.

Sources: the converter of the llama.cpp project (conversion/, gguf-py/gguf/constants.py), which writes these files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from rlx.models import deepseek, falcon, gemma, gpt2, gpt_neox, llama, llama4, mamba, mixtral, phi, qwen, stablelm
from rlx.models.decoder_config import DecoderConfig
from rlx.models.family import ModelFamily
from rlx.models.latent_attention import TRANSPOSED_KEYS
from rlx.models.linear_attention import split_linear
from rlx.models.prediction_head import head_of_gguf
from rlx.support.errors import UnsupportedError
from rlx.weights import Weight

Tensors = Mapping[str, Weight]
_EMPTY: Mapping[str, Any] = MappingProxyType({})

# Fields of config.json, and the keys of GGUF without the prefix of the architecture.
KEYS = {
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "layer_norm_eps": "attention.layer_norm_epsilon",
    "max_position_embeddings": "context_length",
    "rope_theta": "rope.freq_base",
    "rope_local_base_freq": "rope.freq_base_swa",
    "rope_lanes": "rope.dimension_count",
    "sliding_window": "attention.sliding_window",
    "sliding_window_pattern": "attention.sliding_window_pattern",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    "use_parallel_residual": "use_parallel_residual",
    "embedding_multiplier": "embedding_scale",
    "residual_multiplier": "residual_scale",
    "attention_multiplier": "attention.scale",
    "logits_scaling": "logit_scale",
}
_DEEPSEEK_KEYS = {
    "n_routed_experts": "expert_count",
    "n_shared_experts": "expert_shared_count",
    "first_k_dense_replace": "leading_dense_block_count",
    "routed_scaling_factor": "expert_weights_scale",
    "norm_topk_prob": "expert_weights_norm",
    "n_group": "expert_group_count",
    "topk_group": "expert_group_used_count",
    "q_lora_rank": "attention.q_lora_rank",
    "kv_lora_rank": "attention.kv_lora_rank",
    "qk_rope_head_dim": "rope.dimension_count",
}
_MAMBA_KEYS = {
    "intermediate_size": "ssm.inner_size",
    "state_size": "ssm.state_size",
    "conv_kernel": "ssm.conv_kernel",
    "time_step_rank": "ssm.time_step_rank",
    "num_heads": "ssm.time_step_rank",
    "n_groups": "ssm.group_count",
    "layer_norm_epsilon": "attention.layer_norm_rms_epsilon",
}
_LLAMA4_KEYS = {
    "intermediate_size_mlp": "feed_forward_length",
    "intermediate_size": "expert_feed_forward_length",
    "num_local_experts": "expert_count",
    "interleave_moe_layer_step": "interleave_moe_layer_step",
}
_NEXT_KEYS = {
    "linear_key_head_dim": "ssm.state_size",
    "linear_num_key_heads": "ssm.group_count",
    "linear_num_value_heads": "ssm.time_step_rank",
    "linear_conv_kernel_dim": "ssm.conv_kernel",
    "full_attention_interval": "full_attention_interval",
}
MODEL_NAMES = {
    "token_embd": "embed_tokens",
    "position_embd": "embed_positions",
    "output_norm": "norm",
    "output": "lm_head",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_up": "mlp.gate_up_proj",
}
_EXPERT_NAMES = {
    **_LAYER_NAMES,
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "exp_probs_b": "mlp.gate",
    "ffn_gate_up_exps": "mlp.experts.gate_up_proj",
    **{f"ffn_{n}_exps": f"mlp.experts.{n}_proj" for n in ("gate", "up", "down")},
    **{f"ffn_{n}_shexp": f"mlp.shared_expert.{n}_proj" for n in ("gate", "up", "down")},
    **{f"ffn_{n}.N": f"mlp.experts.N.{n}_proj" for n in ("gate", "up", "down")},
}
_NEXT_NAMES = _EXPERT_NAMES | {
    "attn_qkv": "linear_attn.in_proj_qkv",
    "attn_gate": "linear_attn.z_proj",
    "ssm_in": "linear_attn.in_proj_qkvz",
    "ssm_ba": "linear_attn.in_proj_ba",
    "ssm_conv1d": "linear_attn.conv1d",
    "ssm_dt": "linear_attn.dt_proj",
    "ssm_a": "linear_attn.A",
    "ssm_norm": "linear_attn.norm",
    "ssm_out": "linear_attn.out_proj",
}
# Models with norms after each part: the norm before the feed-forward network has another name there.
_AROUND_NAMES = _LAYER_NAMES | {"ffn_norm": "pre_feedforward_layernorm"}
_PHI3_NAMES = _LAYER_NAMES | {"ffn_up": "mlp.gate_up_proj"}
_LATENT_NAMES = _EXPERT_NAMES | {
    "attn_q_a": "self_attn.q_a_proj",
    "attn_q_a_norm": "self_attn.q_a_layernorm",
    "attn_q_b": "self_attn.q_b_proj",
    "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
    "attn_kv_a_norm": "self_attn.kv_a_layernorm",
    "attn_kv_b": "self_attn.kv_b_proj",
    "attn_k_b": f"self_attn.{TRANSPOSED_KEYS}",
    "attn_v_b": "self_attn.v_b_proj",
}


_MAMBA_NAMES = {
    "attn_norm": "norm",
    "ssm_in": "mixer.in_proj",
    "ssm_conv1d": "mixer.conv1d",
    "ssm_x": "mixer.x_proj",
    "ssm_dt": "mixer.dt_proj",
    "ssm_a": "mixer.A",
    "ssm_d": "mixer.D",
    "ssm_norm": "mixer.norm",
    "ssm_out": "mixer.out_proj",
}


@dataclass(frozen=True)
class GgufArchitecture:
    """An architecture of GGUF files.

    Attributes:
        family: The family of models that has its graphs.
        names: The names of the tensors of a layer.
        rope_style: The pairs of lanes in its files: the converter reorders the rows of some architectures.
        keys: Fields with other keys than `KEYS`.
        derived: Returns fields whose keys are not in its files, from the values by key and the tensors of the file.
        adapted: Returns the configuration with the changes that the converter makes to the weights.
        split: Returns the tensors, after renaming, with further changes.
    """

    family: ModelFamily
    names: Mapping[str, str] = field(default_factory=lambda: MappingProxyType(_LAYER_NAMES))
    rope_style: str = "neox"
    keys: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    derived: Callable[[Mapping[str, Any], Tensors], Mapping[str, Any]] = lambda values, tensors: _EMPTY
    adapted: Callable[[DecoderConfig], DecoderConfig] = lambda config: config
    split: Callable[[Tensors, DecoderConfig], Tensors] = lambda tensors, config: tensors

    def file_names(self, config: DecoderConfig | mamba.MambaConfig) -> dict[str, str]:
        """Return the names of the parts of a layer in files, by those of graphs. Names of single experts are left out.

        Models whose norms are after each part have no `ffn_norm`.
        """
        places = config.norm_places if isinstance(config, DecoderConfig) else "after"
        parts: dict[str, str] = {}
        for gguf, graph in self.names.items():
            is_other = gguf == "ffn_norm" and places == "after"
            if "N" not in gguf.split(".") and not is_other:
                parts.setdefault(graph, gguf)  # the first is the one of newer files
        if places not in ("after", "around"):
            parts["post_attention_layernorm"] = "ffn_norm"
        return parts


def _family(module: Any, model_type: str) -> ModelFamily:
    return next(family for family in module.FAMILIES if family.model_type == model_type)


def _with_plain_norms(config: DecoderConfig) -> DecoderConfig:
    """The converter has added 1 to the weights of norms."""
    return replace(config, offset_norm=False)


def _gemma_scores(num_layers: int) -> Callable[[DecoderConfig], DecoderConfig]:
    """Files have no key for the factor of scores. In the largest model, known by its layers, it depends on the width."""

    def adapted(config: DecoderConfig) -> DecoderConfig:
        is_largest = config.num_hidden_layers == num_layers
        lanes = config.hidden_size // config.num_attention_heads if is_largest else config.head_dim
        return replace(config, offset_norm=False, score_scale=lanes**-0.5)

    return adapted


def _qwen_moe(values: Mapping[str, Any], tensors: Tensors) -> Mapping[str, Any]:
    """Return the layers without experts. The weights of experts are normalised in the models without a shared expert."""
    dense = [int(name.split(".")[1]) for name in tensors if re.fullmatch(r"blk\.\d{1,6}\.ffn_up\.weight", name)]
    has_shared = any("ffn_up_shexp" in name for name in tensors)
    return {"mlp_only_layers": dense, "norm_topk_prob": not has_shared}


def _qwen3_next(values: Mapping[str, Any], tensors: Tensors) -> Mapping[str, Any]:
    """Return sizes, without the layers at the end that predict further tokens."""
    result: dict[str, Any] = {"norm_topk_prob": True}
    blocks, extra = values.get("block_count"), values.get("nextn_predict_layers", 0)
    if type(blocks) is int and type(extra) is int and 0 < extra < blocks:
        result["num_hidden_layers"] = blocks = blocks - extra
    inner, heads = values.get("ssm.inner_size"), values.get("ssm.time_step_rank")
    if type(inner) is int and type(heads) is int and heads > 0:
        result["linear_value_head_dim"] = inner // heads
    recurrent = values.get("attention.recurrent_layers")
    if isinstance(recurrent, tuple):
        kinds = ["linear_attention" if flag else "full_attention" for flag in recurrent[:blocks]]
        result["layer_types"] = kinds
    return result


def _stablelm(values: Mapping[str, Any], tensors: Tensors) -> Mapping[str, Any]:
    has_own_norm = "blk.0.ffn_norm.weight" in tensors
    return {"use_parallel_residual": not has_own_norm, "qk_layernorm": "blk.0.attn_q_norm.weight" in tensors}


def _falcon(values: Mapping[str, Any], tensors: Tensors) -> Mapping[str, Any]:
    is_new = "blk.0.attn_norm_2.weight" in tensors
    return {"new_decoder_architecture": is_new, "num_kv_heads": values.get("attention.head_count_kv", 1)}


def _deepseek(values: Mapping[str, Any], tensors: Tensors) -> Mapping[str, Any]:
    """Return the sizes of heads. Newer files have those of the shared latent head in the usual keys."""
    rotated = values.get("rope.dimension_count")
    lanes = values.get("attention.key_length_mla", values.get("attention.key_length"))
    result: dict[str, Any] = {"topk_method": "group_limited_greedy"}
    if type(rotated) is int and type(lanes) is int:
        result["qk_nope_head_dim"] = lanes - rotated
    value_lanes = values.get("attention.value_length_mla", values.get("attention.value_length"))
    if value_lanes is not None:
        result["v_head_dim"] = value_lanes
    scoring = {1: "softmax", 2: "sigmoid"}.get(values.get("expert_gating_func", 0))
    return result if scoring is None else {**result, "scoring_func": scoring}


def _llama4(values: Mapping[str, Any], tensors: Tensors) -> Mapping[str, Any]:
    """Return properties without keys. Readers know the model with 128 experts, which does not normalise queries and keys.

    Raises:
        UnsupportedError: Attention is not within chunks, which readers interpret in different ways.
    """
    for key, known in (("attention.sliding_window", range(1, 1 << 31)), ("attention.sliding_window_pattern", (4,))):
        if key in values and values[key] not in known:
            raise UnsupportedError(f"'llama4.{key}' {values[key]!r:.60} is not supported")
    experts = values.get("expert_count", 0)
    result: dict[str, Any] = {"use_qk_norm": experts != 128, "sliding_window_pattern": None}
    return result if experts else {**result, "moe_layers": ()}


_DEEPSEEK2 = GgufArchitecture(
    _family(deepseek, "deepseek_v2"),
    _LATENT_NAMES,
    "gptj",
    _DEEPSEEK_KEYS,
    derived=_deepseek,
    split=deepseek.split_latent,
)
_FALCON = GgufArchitecture(_family(falcon, "falcon"), derived=_falcon)
_FALCON_NEW_NAMES = _LAYER_NAMES | {"attn_norm_2": "input_layernorm", "attn_norm": "post_attention_layernorm"}

ARCHITECTURES: Mapping[str, GgufArchitecture] = {
    "llama": GgufArchitecture(_family(llama, "llama"), rope_style="gptj"),
    "llama4": GgufArchitecture(_family(llama4, "llama4_text"), _EXPERT_NAMES, "gptj", _LLAMA4_KEYS, derived=_llama4),
    "smollm3": GgufArchitecture(_family(llama, "smollm3"), rope_style="gptj"),
    "granite": GgufArchitecture(_family(llama, "granite"), rope_style="gptj"),
    "olmo2": GgufArchitecture(_family(llama, "olmo2")),
    "qwen2": GgufArchitecture(_family(qwen, "qwen2")),
    "qwen3": GgufArchitecture(_family(qwen, "qwen3")),
    "qwen2moe": GgufArchitecture(_family(qwen, "qwen2_moe"), _EXPERT_NAMES, derived=_qwen_moe),
    "qwen3moe": GgufArchitecture(_family(qwen, "qwen3_moe"), _EXPERT_NAMES, derived=_qwen_moe),
    "qwen3next": GgufArchitecture(
        _family(qwen, "qwen3_next"),
        _NEXT_NAMES,
        keys=_NEXT_KEYS,
        derived=_qwen3_next,
        adapted=_with_plain_norms,
        split=lambda tensors, config: head_of_gguf(split_linear(tensors, config), config),
    ),
    "gemma": GgufArchitecture(_family(gemma, "gemma"), adapted=_with_plain_norms),
    "gemma2": GgufArchitecture(_family(gemma, "gemma2"), _AROUND_NAMES, adapted=_gemma_scores(46)),
    "gemma3": GgufArchitecture(_family(gemma, "gemma3_text"), _AROUND_NAMES, adapted=_gemma_scores(62)),
    "phi2": GgufArchitecture(_family(phi, "phi")),
    "phi3": GgufArchitecture(_family(phi, "phi3"), _PHI3_NAMES),
    "stablelm": GgufArchitecture(_family(stablelm, "stablelm"), derived=_stablelm),
    "gpt2": GgufArchitecture(_family(gpt2, "gpt2")),
    "gptneox": GgufArchitecture(_family(gpt_neox, "gpt_neox")),
    "falcon": _FALCON,
    "deepseek2": _DEEPSEEK2,
    "mamba": GgufArchitecture(_family(mamba, "mamba"), _MAMBA_NAMES, keys=_MAMBA_KEYS),
    "mamba2": GgufArchitecture(_family(mamba, "mamba2"), _MAMBA_NAMES, keys=_MAMBA_KEYS),
}
_MIXTRAL = replace(ARCHITECTURES["llama"], family=_family(mixtral, "mixtral"), names=_EXPERT_NAMES)


def architecture_of(name: str, values: Mapping[str, Any], tensors: Tensors) -> GgufArchitecture:
    """Return the architecture of a file. Some names have several families, known by a key or a tensor.

    Args:
        name: The name in the file, a key of `ARCHITECTURES`.
        values: The metadata by the keys without the name.
        tensors: The tensors of the file.
    """
    architecture = ARCHITECTURES[name]
    if name == "llama" and values.get("expert_count", 0):
        return _MIXTRAL
    if name == "olmo2" and values.get("attention.sliding_window", 0):
        return replace(architecture, family=_family(llama, "olmo3"))
    if name == "falcon" and "blk.0.attn_norm_2.weight" in tensors:
        return replace(architecture, names=_FALCON_NEW_NAMES)
    if name == "deepseek2" and any(".exp_probs_b" in tensor for tensor in tensors):
        return replace(architecture, family=_family(deepseek, "deepseek_v3"))
    return architecture


# Families whose files have the architecture of another one.
_SHARED = {
    "mistral": "llama",
    "mixtral": "llama",
    "olmo3": "olmo2",
    "llama4": "llama4",
    "gemma3": "gemma3",
    "deepseek_v3": "deepseek2",
}


def architecture_name(model_type: str) -> str | None:
    """Return the name of the architecture that GGUF files of a family have; None if files of it are not known."""
    known = (name for name, own in ARCHITECTURES.items() if own.family.model_type == model_type)
    return _SHARED.get(model_type) or next(known, None)


def order_of_rows(count: int, heads: int, to_pairs: bool) -> np.ndarray:
    """Return the rows of queries or keys in the other order, by their numbers.

    Rotary positions turn pairs of lanes: in folders lane `i` and `i + lanes/2`, in files of some architectures adjacent lanes.

    Args:
        count: The number of rows, a multiple of `2·heads`.
        heads: The number of heads.
        to_pairs: Whether the lanes of a pair become adjacent; otherwise they are adjacent.
    """
    dims = (heads, 2, -1) if to_pairs else (heads, -1, 2)
    return np.arange(count).reshape(dims).swapaxes(1, 2).reshape(-1)

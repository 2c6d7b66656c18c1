"""GGUF files of the references, written as the converter of llama.cpp writes them: names, keys, and changed weights.

The tables are separate from those of the package, so that a mistake there is found.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlx.weights import save_gguf

Arrays = dict[str, np.ndarray]
Config = Mapping[str, Any]

ARCHITECTURES = {
    "llama": "llama",
    "mistral": "llama",
    "mixtral": "llama",
    "llama4_text": "llama4",
    "smollm3": "smollm3",
    "granite": "granite",
    "olmo2": "olmo2",
    "olmo3": "olmo2",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen2_moe": "qwen2moe",
    "qwen3_moe": "qwen3moe",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3_text": "gemma3",
    "phi": "phi2",
    "phi3": "phi3",
    "stablelm": "stablelm",
    "gpt2": "gpt2",
    "gpt_neox": "gptneox",
    "falcon": "falcon",
    "deepseek_v2": "deepseek2",
    "deepseek_v3": "deepseek2",
    "mamba": "mamba",
    "mamba2": "mamba2",
    "qwen3_next": "qwen3next",
}
_PERMUTED = ("llama", "smollm3", "granite")
_MODEL = {
    "embed_tokens": "token_embd",
    "embed_in": "token_embd",
    "word_embeddings": "token_embd",
    "wte": "token_embd",
    "embeddings": "token_embd",
    "norm_f": "output_norm",
    "wpe": "position_embd",
    "norm": "output_norm",
    "final_layernorm": "output_norm",
    "final_layer_norm": "output_norm",
    "ln_f": "output_norm",
    "lm_head": "output",
    "embed_out": "output",
}
_LAYER = {
    "input_layernorm": "attn_norm",
    "ln_1": "attn_norm",
    "ln_attn": "attn_norm_2",
    "ln_mlp": "attn_norm",
    "ln_2": "ffn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.dense": "attn_output",
    "attention.dense": "attn_output",
    "self_attention.dense": "attn_output",
    "attn.c_proj": "attn_output",
    "self_attn.qkv_proj": "attn_qkv",
    "attention.query_key_value": "attn_qkv",
    "self_attention.query_key_value": "attn_qkv",
    "attn.c_attn": "attn_qkv",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.q_layernorm": "attn_q_norm",
    "self_attn.k_layernorm": "attn_k_norm",
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": "attn_kv_b",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
    "mlp.dense_h_to_4h": "ffn_up",
    "mlp.dense_4h_to_h": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "norm": "attn_norm",
    "mixer.in_proj": "ssm_in",
    "mixer.conv1d": "ssm_conv1d",
    "mixer.x_proj": "ssm_x",
    "mixer.dt_proj": "ssm_dt",
    "mixer.norm": "ssm_norm",
    "mixer.out_proj": "ssm_out",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.in_proj_ba": "ssm_ba",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
    "block_sparse_moe.gate": "ffn_gate_inp",
    "feed_forward.router": "ffn_gate_inp",
    "feed_forward.gate_proj": "ffn_gate",
    "feed_forward.up_proj": "ffn_up",
    "feed_forward.down_proj": "ffn_down",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}
_AROUND = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_EXPERTS = {"w1": "gate", "w2": "down", "w3": "up", "gate_proj": "gate", "up_proj": "up", "down_proj": "down"}
_EXPERT = re.compile(r"(?:mlp|block_sparse_moe)\.experts\.(\d+)\.(\w+)")
_SHARED = re.compile(r"(?:mlp|feed_forward)\.shared_experts?\.(gate|up|down)_proj")
_HEAD_NORM = re.compile(r"self_attn\.([qk])_layernorm\.norms\.(\d+)")
_LAYERS = re.compile(r"(?:layers|h)\.(\d+)\.(.+)")
# Fields of config.json, and the keys for them.
_KEYS = {
    "num_hidden_layers": "block_count",
    "n_layer": "block_count",
    "max_position_embeddings": "context_length",
    "n_positions": "context_length",
    "hidden_size": "embedding_length",
    "n_embd": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "ffn_hidden_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "n_head": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "layer_norm_eps": "attention.layer_norm_epsilon",
    "layer_norm_epsilon": "attention.layer_norm_epsilon",
    "num_local_experts": "expert_count",
    "num_experts": "expert_count",
    "n_routed_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "attention_multiplier": "attention.scale",
    "embedding_multiplier": "embedding_scale",
    "residual_multiplier": "residual_scale",
    "logits_scaling": "logit_scale",
    "use_parallel_residual": "use_parallel_residual",
    "kv_lora_rank": "attention.kv_lora_rank",
    "q_lora_rank": "attention.q_lora_rank",
    "n_shared_experts": "expert_shared_count",
    "first_k_dense_replace": "leading_dense_block_count",
    "routed_scaling_factor": "expert_weights_scale",
    "n_group": "expert_group_count",
    "topk_group": "expert_group_used_count",
    "linear_conv_kernel_dim": "ssm.conv_kernel",
    "linear_key_head_dim": "ssm.state_size",
    "linear_num_key_heads": "ssm.group_count",
    "linear_num_value_heads": "ssm.time_step_rank",
}
_MAMBA_KEYS = {
    "conv_kernel": "ssm.conv_kernel",
    "state_size": "ssm.state_size",
    "intermediate_size": "ssm.inner_size",
    "layer_norm_epsilon": "attention.layer_norm_rms_epsilon",
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
}
_DIVISORS = "rope_freqs.weight"


def write_gguf(path: Path, config: Config, tensors: Arrays, change: Callable[[dict[str, Any], Arrays], None]) -> Path:
    """Write a reference as a GGUF file, after a change of its metadata and tensors."""
    architecture = ARCHITECTURES[config["model_type"]]
    arrays = converted(config, tensors, architecture)
    values = metadata(config, arrays, architecture)
    change(values, arrays)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_gguf(path, arrays, values)
    return path


def metadata(config: Config, arrays: Arrays, architecture: str) -> dict[str, Any]:
    """Return the metadata, and add the tensors of rotary positions."""
    if architecture.startswith("mamba"):
        return {"general.architecture": architecture} | {
            f"{architecture}.{key}": value for key, value in _mamba_values(config).items()
        }
    values = {key: config[field] for field, key in _KEYS.items() if config.get(field) is not None}
    if architecture != "gptneox":
        values.pop("use_parallel_residual", None)
    if architecture == "falcon":
        is_new = config["new_decoder_architecture"]
        values |= {"context_length": 2048, "attention.head_count_kv": config["num_kv_heads"] if is_new else 1}
    if architecture == "llama4":
        values |= {"expert_feed_forward_length": config["intermediate_size"]}
        values |= {"feed_forward_length": config["intermediate_size_mlp"]}
        values |= {"interleave_moe_layer_step": config["interleave_moe_layer_step"]}
    if architecture == "gpt2":
        values["feed_forward_length"] = 4 * config["n_embd"]
    if architecture == "qwen3next":
        values["ssm.inner_size"] = config["linear_value_head_dim"] * config["linear_num_value_heads"]
        values["attention.recurrent_layers"] = [kind == "linear_attention" for kind in config["layer_types"]]
    if architecture == "deepseek2":
        plain, rotated, own = (config[f"{n}_head_dim"] for n in ("qk_nope", "qk_rope", "v"))
        latent = config["kv_lora_rank"]
        values |= {"attention.key_length": latent + rotated, "attention.value_length": latent}
        values |= {"attention.key_length_mla": plain + rotated, "attention.value_length_mla": own}
        values |= {"rope.dimension_count": rotated, "attention.head_count_kv": 1}
        values["expert_weights_norm"] = config.get("norm_topk_prob", False)
    window = config.get("sliding_window") if config["model_type"] != "mistral" else None
    if window and config.get("use_sliding_window", True):
        values["attention.sliding_window"] = window
        if "layer_types" in config and architecture != "qwen2":
            values["attention.sliding_window_pattern"] = [kind == "sliding_attention" for kind in config["layer_types"]]
    values |= _rope(config, arrays, architecture)
    return {"general.architecture": architecture} | {f"{architecture}.{key}": value for key, value in values.items()}


def _mamba_values(config: Config) -> dict[str, Any]:
    values = {key: config[field] for field, key in _MAMBA_KEYS.items() if field in config}
    values |= {"context_length": 1 << 20, "feed_forward_length": 0, "attention.head_count": 0}
    inner, is_second = 2 * config["hidden_size"], config["model_type"] == "mamba2"
    values |= {"ssm.inner_size": inner, "ssm.time_step_rank": config["num_heads" if is_second else "time_step_rank"]}
    return values | ({"ssm.group_count": config["n_groups"]} if is_second else {"ssm.dt_b_c_rms": False})


def _rope(config: Config, arrays: Arrays, architecture: str) -> dict[str, Any]:
    ropes = config.get("rope_parameters") or {}
    rope = ropes.get("full_attention", ropes)
    values: dict[str, Any] = {"rope.freq_base": rope["rope_theta"]} if "rope_theta" in rope else {}
    if "sliding_attention" in ropes:
        values["rope.freq_base_swa"] = ropes["sliding_attention"]["rope_theta"]
    lanes = config.get("head_dim") or config.get("hidden_size", 0) // config.get("num_attention_heads", 1)
    if rope.get("partial_rotary_factor", 1.0) != 1 and architecture != "deepseek2":
        lanes = int(lanes * rope["partial_rotary_factor"])
        values["rope.dimension_count"] = lanes
    kind = rope.get("rope_type")
    if kind in ("linear", "yarn"):
        values |= {"rope.scaling.type": kind, "rope.scaling.factor": rope["factor"]}
    if kind == "yarn":
        values["rope.scaling.original_context_length"] = rope["original_max_position_embeddings"]
        if "mscale_all_dim" in rope:
            values["rope.scaling.yarn_log_multiplier"] = 0.1 * rope["mscale_all_dim"]
    if kind == "longrope":
        original = rope["original_max_position_embeddings"]
        values["rope.scaling.original_context_length"] = original
        scale = config["max_position_embeddings"] / original
        values["rope.scaling.attn_factor"] = math.sqrt(1 + math.log(scale) / math.log(original))
        for length in ("long", "short"):
            arrays[f"rope_factors_{length}.weight"] = np.array(rope[f"{length}_factor"], np.float32)
    if kind == "llama3":
        arrays[_DIVISORS] = _llama3_divisors(rope, lanes)
    return values


def _llama3_divisors(rope: Mapping[str, Any], lanes: int) -> np.ndarray:
    frequencies = rope["rope_theta"] ** (-np.arange(0, lanes, 2) / lanes)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    rotations = rope["original_max_position_embeddings"] * frequencies / (2 * np.pi)
    smooth = np.clip((rotations - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / rope["factor"] + smooth)).astype(np.float32)


def converted(config: Config, tensors: Arrays, architecture: str) -> Arrays:
    """Return the tensors under the names of GGUF, changed as the converter changes them."""
    result: Arrays = {}
    lists: dict[str, dict[int, np.ndarray]] = {}
    for name, array in tensors.items():
        stem, _, suffix = re.sub(r"^(model|transformer|gpt_neox|backbone)\.", "", name).rpartition(".")
        match = _LAYERS.fullmatch(stem)
        if match is None:
            result[f"{_MODEL[stem]}.{suffix}"] = array + _shift(architecture, stem)
            continue
        block, part = f"blk.{match[1]}.", match[2]
        expert, norm = _EXPERT.fullmatch(part), _HEAD_NORM.fullmatch(part)
        if expert is not None:
            lists.setdefault(f"{block}ffn_{_EXPERTS[expert[2]]}_exps.weight", {})[int(expert[1])] = array
        elif norm is not None:
            lists.setdefault(f"{block}attn_{norm[1]}_norm.weight", {})[int(norm[2])] = array
        else:
            result |= _layer_tensor(config, architecture, block, part, suffix, array)
    return result | {name: np.stack([list_[i] for i in range(len(list_))]) for name, list_ in lists.items()}


def _shift(architecture: str, part: str) -> float:
    has_shift = architecture.startswith("gemma") or architecture == "qwen3next"
    return 1.0 if has_shift and part.endswith("norm") and part != "linear_attn.norm" else 0.0


def _layer_tensor(config: Config, architecture: str, block: str, part: str, suffix: str, array: np.ndarray) -> Arrays:
    if suffix == "e_score_correction_bias":
        return {f"{block}exp_probs_b.bias": array}
    if part == "feed_forward.experts":  # Llama 4 stores [experts, in, out], also without the suffix `weight`
        parts = ("gate", "up") if suffix == "gate_up_proj" else ("down",)
        split = np.split(array.transpose(0, 2, 1), len(parts), 1)
        return {f"{block}ffn_{n}_exps.weight": np.ascontiguousarray(a) for n, a in zip(parts, split, strict=True)}
    if part in ("mixer", "linear_attn"):  # tensors without the suffix `weight`
        return _state_tensor(config, block, suffix, array)
    if part == "linear_attn.in_proj_qkvz":
        return _regrouped_states(config, block, array)
    if part.endswith(".conv1d"):
        array = array.reshape(array.shape[0], array.shape[-1]) if suffix == "weight" else array
    if part == "mixer.norm":
        array = array.reshape(config["n_groups"], -1)
    shared = _SHARED.fullmatch(part)
    if shared is not None:
        return {f"{block}ffn_{shared[1]}_shexp.{suffix}": array}
    around = "gemma2", "gemma3", "olmo2"
    if architecture == "qwen3next" and part == "post_attention_layernorm":
        return {f"{block}post_attention_norm.weight": array + np.float32(1)}
    names = _LAYER | _AROUND if architecture in around else _LAYER
    if part == "self_attn.kv_b_proj":
        heads, plain = config["num_attention_heads"], config["qk_nope_head_dim"]
        split = array.reshape(heads, -1, array.shape[1])
        keys = np.ascontiguousarray(split[:, :plain].transpose(0, 2, 1))
        return {f"{block}attn_k_b.weight": keys, f"{block}attn_v_b.weight": np.ascontiguousarray(split[:, plain:])}
    if part in ("self_attn.q_proj", "self_attn.k_proj") and architecture in _PERMUTED:
        array = permuted(array, config["num_attention_heads" if "q_" in part else "num_key_value_heads"])
    if part.endswith("query_key_value"):
        array = _regrouped(config, array)
    if architecture == "gpt2" and suffix == "weight" and ".c_" in part:
        array = np.ascontiguousarray(array.T)
    return {f"{block}{names[part]}.{suffix}": array + np.float32(_shift(architecture, part))}


def _state_tensor(config: Config, block: str, name: str, array: np.ndarray) -> Arrays:
    if name == "dt_bias":
        return {f"{block}ssm_dt.bias": array}
    array = array.reshape(-1, 1) if config["model_type"] == "mamba2" else array
    return {f"{block}ssm_a": -np.exp(array)} if name == "A_log" else {f"{block}ssm_d": array}


def _regrouped_states(config: Config, block: str, array: np.ndarray) -> Arrays:
    """Return all queries, keys and values, and all gates, of rows that are grouped by head of keys."""
    heads, lanes = config["linear_num_key_heads"], config["linear_key_head_dim"]
    own = config["linear_num_value_heads"] // heads * config["linear_value_head_dim"]
    split = array.reshape(heads, -1, array.shape[1])
    ends = np.cumsum([lanes, lanes, own])
    q, k, v, z = (part.reshape(-1, array.shape[1]) for part in np.split(split, ends, 1))
    return {f"{block}attn_qkv.weight": np.concatenate([q, k, v]), f"{block}attn_gate.weight": np.ascontiguousarray(z)}


def permuted(array: np.ndarray, heads: int) -> np.ndarray:
    """Return rows of heads with pairs of lanes next to each other, instead of in halves."""
    rows = array.reshape(heads, 2, array.shape[0] // heads // 2, *array.shape[1:])
    return np.ascontiguousarray(rows.swapaxes(1, 2)).reshape(array.shape)


def _regrouped(config: Config, array: np.ndarray) -> np.ndarray:
    """Return all queries, then all keys, then all values, of rows that are grouped by head of keys."""
    heads = config["num_attention_heads"]
    groups = heads if config["model_type"] == "gpt_neox" else 1
    if config.get("new_decoder_architecture"):
        groups = config["num_kv_heads"]
    lanes = config["hidden_size"] // heads
    split = array.reshape(groups, heads // groups + 2, lanes, *array.shape[1:])
    parts = (split[:, :-2], split[:, -2], split[:, -1])
    return np.concatenate([part.reshape(-1, *array.shape[1:]) for part in parts])

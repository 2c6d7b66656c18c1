"""The metadata of GGUF files for the configurations of `rlx.models`.

Source: llama.cpp, conversion/. Files have no keys for some properties: a configuration that differs from the value that
readers assume is rejected, unless readers ignore the property (windows of some families).
"""

from __future__ import annotations

import math
from typing import Any

from rlx.models.decoder_config import DecoderConfig, ExpertsConfig, QueryTemperature
from rlx.models.fields import ACTIVATIONS
from rlx.models.gguf_architectures import KEYS, architecture_name
from rlx.models.rope import RotaryTables
from rlx.models.rope_fields import yarn_mscale
from rlx.support.errors import UnsupportedError

# The types of models that are written.
_WRITTEN = frozenset(
    [
        "falcon",
        "gemma",
        "gemma2",
        "gemma3",
        "gemma3_text",
        "gpt2",
        "gpt_neox",
        "granite",
        "llama",
        "llama4",
        "llama4_text",
        "mistral",
        "mixtral",
        "olmo2",
        "olmo3",
        "phi",
        "phi3",
        "qwen2",
        "qwen2_moe",
        "qwen3",
        "qwen3_moe",
        "smollm3",
        "stablelm",
    ]
)
# Architectures whose queries, keys and values are one tensor.
FUSED = frozenset(("phi3", "gpt2", "gptneox", "falcon"))
_ACTIVATIONS = {
    **dict.fromkeys(("gemma", "gemma2", "gemma3", "phi2", "gpt2"), "gelu_approx"),
    **dict.fromkeys(("gptneox", "falcon"), "gelu"),
}
# The number of layers of the models whose scores are scaled by the width, which have no key for it.
_SCALED_BY_WIDTH = {"gemma2": 46, "gemma3": 62}
# Properties of Llama 4 that files have no keys for: the size of chunks, and the model whose queries are not normalised.
_CHUNK, _UNNORMALISED = 8192, 128
_DEFAULT_BETAS = (32.0, 1.0)


def architecture_of_folder(model_type: str, config: object, path: str) -> str:
    """Return the name of the architecture in GGUF files.

    Raises:
        UnsupportedError: There is none, or it computes something else.
    """
    name = architecture_name(model_type) if model_type in _WRITTEN else None
    if name is None or not isinstance(config, DecoderConfig):
        known = ", ".join(sorted(_WRITTEN))
        raise UnsupportedError(f"{path} has a model of type {model_type}; GGUF files are written for {known}")
    problem = _problem(config, name)
    if problem:
        raise UnsupportedError(f"{path} cannot be written as a GGUF file of the architecture {name}: {problem}")
    return name


def _problem(config: DecoderConfig, name: str) -> str:
    """Return a property that files of an architecture cannot represent, or ""."""
    layers = range(config.num_hidden_layers)
    unrotated = {i for i in layers if (i + 1) % 4 == 0} if name in ("smollm3", "llama4") else set[int]()
    activation, own = _ACTIVATIONS.get(name, "silu"), ACTIVATIONS[config.hidden_act]
    if config.unrotated_layers != unrotated:
        return f"layers {sorted(config.unrotated_layers)} have no positions, and readers assume {sorted(unrotated)}"
    if own != activation and (name, own) != ("gemma", "gelu"):  # the first release names the wrong one
        return f"the activation is {config.hidden_act}, and readers assume {activation}"
    if name == "gemma2" and any((config.window(i) is None) != bool(i % 2) for i in layers):
        return "readers assume windows in every other layer, beginning with the first"
    if name in ("gemma2", "gemma3"):
        lanes = config.head_dim
        if config.num_hidden_layers == _SCALED_BY_WIDTH[name]:
            lanes = config.hidden_size // config.num_attention_heads
        if config.score_scale is not None and not math.isclose(config.score_scale, lanes**-0.5, rel_tol=1e-6):
            return f"scores are multiplied by {config.score_scale:.6g}, and readers assume {lanes**-0.5:.6g}"
    if name == "llama4":
        if problem := _problem_of_llama4(config):
            return problem
    elif config.experts is not None:
        if config.experts.is_normalized != (name != "qwen2moe"):
            return f"norm_topk_prob is {str(config.experts.is_normalized).lower()}, and readers assume the opposite"
        if config.experts.dense_layers:
            return "some of its layers have no experts"
    ropes = [rope for rope in (config.rope, config.local_rope) if rope is not None]
    if any(rope.rope_type == "dynamic" for rope in ropes):
        return "files have no rotary positions of the type 'dynamic'"
    if any(rope.rope_type == "yarn" and not rope.truncate for rope in ropes):
        return "files have no rotary positions of the type 'yarn' with 'truncate' false"
    if any(rope.rope_type == "longrope" for rope in ropes) and name != "phi3":
        return "readers know rotary positions of the type 'longrope' only for phi3"
    return ""


def _problem_of_llama4(config: DecoderConfig) -> str:
    """Return a property of a Llama 4 that files cannot represent, or ""."""
    experts, layers = config.experts, range(config.num_hidden_layers)
    if experts is None:
        return "it has no experts"
    if not _interleave_step(experts, config.num_hidden_layers):
        return f"layers {sorted(set(layers) - experts.dense_layers)} have experts, and readers assume every n-th layer"
    if any(config.chunk(i) != (None if i in config.unrotated_layers else _CHUNK) for i in layers):
        return f"readers assume chunks of {_CHUNK} tokens in all layers with positions, and only there"
    if config.query_temperature != QueryTemperature(_CHUNK, 0.1):
        return f"readers assume that queries have the factors of the floor {_CHUNK} and the scale 0.1"
    if (config.qk_norm is None) != (experts.count == _UNNORMALISED):
        return f"readers assume norms of queries and keys, except with {_UNNORMALISED} experts"
    return ""


def _interleave_step(experts: ExpertsConfig, num_layers: int) -> int:
    """Return n if every n-th layer has experts; 0 if other layers have."""
    own = [i for i in range(num_layers) if i not in experts.dense_layers]
    step = own[0] + 1
    return step if own == list(range(step - 1, num_layers, step)) else 0


def model_pairs(config: DecoderConfig, name: str, title: str, remarks: list[str]) -> dict[str, Any]:
    """Return the metadata of a model. Properties that readers ignore are added to the remarks."""
    pairs: dict[str, Any] = {
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_hidden_layers,
        "intermediate_size": config.intermediate_size,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "rms_norm_eps" if config.norm == "rms" else "layer_norm_eps": config.norm_eps,
        "max_position_embeddings": config.max_position_embeddings,
        "attn_logit_softcapping": config.attn_logit_softcapping,
        "final_logit_softcapping": config.final_logit_softcapping,
    }
    if config.experts is not None:
        pairs |= _experts(config.experts, name)
    if name == "llama4" and config.experts is not None:
        pairs["interleave_moe_layer_step"] = _interleave_step(config.experts, config.num_hidden_layers)
    if name in ("gptneox", "stablelm"):
        pairs["use_parallel_residual"] = config.norm_places in ("shared", "parallel")
    if name == "granite":
        pairs |= {
            "embedding_multiplier": config.embedding_scale,
            "residual_multiplier": config.residual_scale,
            "attention_multiplier": config.score_scale,
            "logits_scaling": None if config.logit_scale is None else 1 / config.logit_scale,
        }
    result = {KEYS.get(field, field): value for field, value in pairs.items() if value is not None}
    result |= {"attention.value_length": config.head_dim, "vocab_size": config.vocab_size}
    result |= _windows(config, name, remarks)
    if config.rope is not None:
        result |= _rope(config.rope, name, config.local_rope)
    general = {"general.architecture": name, "general.type": "model", "general.name": title}
    return general | {f"{name}.{key}": value for key, value in result.items()}


def _experts(experts: ExpertsConfig, name: str) -> dict[str, Any]:
    pairs: dict[str, Any] = {"num_experts": experts.count, "num_experts_per_tok": experts.per_token}
    if name != "llama":  # in Mixtral, it is the width of the feed-forward network
        pairs["moe_intermediate_size"] = experts.width
    if experts.shared_width and name != "llama4":  # there it is that of the other experts
        pairs["shared_expert_intermediate_size"] = experts.shared_width
    return pairs


def _windows(config: DecoderConfig, name: str, remarks: list[str]) -> dict[str, Any]:
    """Return the keys of windows."""
    key, pattern_key = KEYS["sliding_window"], KEYS["sliding_window_pattern"]
    if name == "phi3":
        return {key: config.sliding_window or 0}
    if config.sliding_window is None:
        return {}
    has_window = [config.window(i) is not None for i in range(config.num_hidden_layers)]
    if name == "gemma2":
        return {key: config.sliding_window}
    if name == "gemma3" and has_window == [bool((i + 1) % 6) for i in range(len(has_window))]:
        return {key: config.sliding_window}
    if name in ("gemma3", "olmo2"):
        return {key: config.sliding_window, pattern_key: has_window}
    if any(has_window) and config.sliding_window < config.max_position_embeddings:
        remarks.append(
            f"GGUF files of the architecture {name} have no sliding windows: each token attends to all tokens before it, "
            f"instead of {config.sliding_window}"
        )
    return {}


def _rope(rope: RotaryTables, name: str, local: RotaryTables | None) -> dict[str, Any]:
    """Return the keys of rotary positions."""
    pairs: dict[str, Any] = {"rope.dimension_count": rope.lanes, "rope.freq_base": rope.rope_theta}
    if name in ("gemma3", "olmo2") and local is not None:
        pairs["rope.freq_base_swa"] = local.rope_theta
    if rope.rope_type in ("linear", "yarn"):
        pairs |= {"rope.scaling.type": rope.rope_type, "rope.scaling.factor": rope.factor}
    if rope.rope_type in ("yarn", "longrope") or name == "phi3":
        original = rope.original_length
        if original > 1:
            pairs["rope.scaling.original_context_length"] = original
    if rope.rope_type == "longrope":
        pairs["rope.scaling.attn_factor"] = rope.attention_factor
    if rope.rope_type == "yarn":
        if not math.isclose(rope.attention_factor, yarn_mscale(rope.factor), rel_tol=1e-6):
            pairs["rope.scaling.yarn_attn_factor"] = rope.attention_factor
        if (rope.high, rope.low) != _DEFAULT_BETAS:
            pairs |= {"rope.scaling.yarn_beta_fast": rope.high, "rope.scaling.yarn_beta_slow": rope.low}
    return pairs

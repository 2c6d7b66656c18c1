"""Write `tests/models/references`: the results of the transformers package for small models of each family, in f64.

`python -m tools.model_references [NAME …]` needs PyTorch and transformers, which are not in an extra (CONTRIBUTING.md,
Tests).
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.models.references import FOLDER, weight

_SIZES = {
    "vocab_size": 40,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 24,
}
_GROUPED = {**_SIZES, "num_key_value_heads": 2, "head_dim": 8}
_DISTILBERT = {
    "vocab_size": 40,
    "dim": 32,
    "n_layers": 2,
    "n_heads": 4,
    "hidden_dim": 48,
    "max_position_embeddings": 24,
}
_SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
_VIT = {"image_size": 16, "patch_size": 4, **{n: _SIZES[n] for n in list(_SIZES)[1:5]}}


def _rope(rope_type: str, **more: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": rope_type, "rope_theta": 10000.0, **more}}


@dataclass(frozen=True)
class Case:
    """A model, and its inputs.

    Attributes:
        model: The class, without `Model` or the name of a head.
        config: Fields of the configuration that are not the defaults.
        head: The suffix of the class name.
        kinds: Whether the model has token types.
        masked: Whether the second row has padding.
        padding: The padding token.
        length: The number of tokens.
    """

    model: str
    config: Mapping[str, Any]
    head: str = "Model"
    kinds: bool = False
    masked: bool = True
    padding: int = 0
    length: int = 7
    output: str = "last_hidden_state"
    options: Mapping[str, Any] = field(default_factory=dict)


def _decoder(model: str, config: Mapping[str, Any], masked: bool = False) -> Case:
    return Case(model, config, "ForCausalLM", masked=masked, output="logits", options={"attention_mask": masked})


def _headed(model: str, config: Mapping[str, Any], head: str, output: str = "logits", **more: Any) -> Case:
    return Case(model, config, head, output=output, **more)


def _long_rope(original: int, pairs: int, fraction: float = 1.0) -> dict[str, Any]:
    factors = {"short_factor": [1.0, 1.25, 1.5, 2.0][:pairs], "long_factor": [1.5, 2.0, 4.0, 8.0][:pairs]}
    more = {"partial_rotary_factor": fraction, "original_max_position_embeddings": original}
    return {"original_max_position_embeddings": original, **_rope("longrope", **factors, **more)}


_LONG = {"factor": 4.0, "original_max_position_embeddings": 8}
_FUSED = {n: value for n, value in _GROUPED.items() if n != "head_dim"}
_NO_PADDING = {"pad_token_id": None}
_EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
_MULTIPLIERS = {
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.5,
    "attention_multiplier": 0.2,
    "logits_scaling": 2.0,
}
_LATENT = {
    **_SIZES,
    "num_key_value_heads": 4,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 12,
    "q_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
    "n_routed_experts": 6,
    "n_shared_experts": 2,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "routed_scaling_factor": 1.5,
}
_LLAMA4 = {
    **_GROUPED,
    "num_hidden_layers": 4,
    "intermediate_size": 16,
    "intermediate_size_mlp": 48,
    "num_local_experts": 6,
    "interleave_moe_layer_step": 2,
}
_MAMBA = {"vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 2}
_MSCALE = _rope("yarn", **_LONG, beta_fast=32.0, beta_slow=1.0, mscale=0.7, mscale_all_dim=0.7)
_LLAMA3 = _rope("llama3", **_LONG, low_freq_factor=1.0, high_freq_factor=4.0)
CASES = {
    "bert": Case("Bert", _SIZES, kinds=True),
    "bert_masked_lm": _headed("Bert", {**_SIZES, "hidden_act": "relu"}, "ForMaskedLM", kinds=True),
    "bert_sequence": _headed("Bert", {**_SIZES, "num_labels": 3}, "ForSequenceClassification", kinds=True),
    "roberta": Case("Roberta", {**_SIZES, "type_vocab_size": 1, "layer_norm_eps": 1e-5}, padding=1),
    "distilbert": Case("DistilBert", _DISTILBERT),
    "distilbert_answer": _headed("DistilBert", _DISTILBERT, "ForQuestionAnswering", output="end_logits"),
    "mpnet": Case("MPNet", _SIZES, padding=1),
    "mpnet_long": Case("MPNet", {**_SIZES, "hidden_size": 8, "max_position_embeddings": 160}, padding=1, length=150),
    "modernbert": Case("ModernBert", {**_SIZES, **_SPECIAL, "num_hidden_layers": 4, "local_attention": 4}),
    "modernbert_sequence": _headed(
        "ModernBert", {**_SIZES, **_SPECIAL, "classifier_pooling": "mean"}, "ForSequenceClassification"
    ),
    "vit": Case("ViT", _VIT),
    "vit_classifier": Case(
        "ViT", {**_VIT, "qkv_bias": False, "num_labels": 5}, "ForImageClassification", output="logits"
    ),
    "llama": _decoder("Llama", _GROUPED, masked=True),
    "llama_sequence": _headed(
        "Llama",
        {**_GROUPED, "pad_token_id": 0, "num_labels": 3},
        "ForSequenceClassification",
        options={"attention_mask": True},
    ),
    "llama_biases": _decoder(
        "Llama", {**_GROUPED, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}
    ),
    "llama_linear": _decoder("Llama", {**_GROUPED, **_rope("linear", factor=2.5)}),
    "llama_dynamic": _decoder("Llama", {**_GROUPED, "max_position_embeddings": 4, **_rope("dynamic", factor=2.0)}),
    "llama_yarn": _decoder("Llama", {**_GROUPED, **_rope("yarn", **_LONG)}),
    "llama_llama3": _decoder("Llama", {**_GROUPED, **_LLAMA3}),
    "llama4": _decoder("Llama4", _LLAMA4),
    # Texts of several chunks, and queries with several factors.
    "llama4_chunks": _decoder(
        "Llama4",
        {
            **_LLAMA4,
            **_LLAMA3,
            "attention_chunk_size": 3,
            "floor_scale": 2,
            "attn_scale": 0.5,
            "num_experts_per_tok": 2,
            "moe_layers": [0, 3],
            "attention_bias": True,
        },
        masked=True,
    ),
    "mistral": _decoder("Mistral", {**_GROUPED, "sliding_window": 3}, masked=True),
    "qwen2": _decoder("Qwen2", {**_GROUPED, "use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1}),
    "qwen3": _decoder("Qwen3", {**_GROUPED, "head_dim": 16}),
    "gemma": _decoder("Gemma", {**_GROUPED, "head_dim": 16}),
    "gemma2": _decoder("Gemma2", {**_GROUPED, "sliding_window": 3, "query_pre_attn_scalar": 12}),
    "gemma3": _decoder(
        "Gemma3",
        {
            **_GROUPED,
            "num_hidden_layers": 3,
            "sliding_window": 3,
            "query_pre_attn_scalar": 12,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 4.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
        },
    ),
    "phi": _decoder("Phi", {**_SIZES, "num_key_value_heads": 4}),
    "phi3": _decoder("Phi3", {**_FUSED, **_NO_PADDING, "sliding_window": 3, "original_max_position_embeddings": 24}),
    "phi3_short": _decoder("Phi3", {**_FUSED, **_NO_PADDING, **_long_rope(8, 4)}),
    "phi3_long": _decoder("Phi3", {**_FUSED, **_NO_PADDING, "tie_word_embeddings": True, **_long_rope(4, 2, 0.5)}),
    "mixtral": _decoder("Mixtral", {**_GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen2_moe": _decoder(
        "Qwen2Moe", {**_GROUPED, **_EXPERTS, "shared_expert_intermediate_size": 24, "mlp_only_layers": [0]}
    ),
    "qwen3_moe": _decoder("Qwen3Moe", {**_GROUPED, **_EXPERTS, "norm_topk_prob": True}),
    "smollm3": _decoder("SmolLM3", {**_GROUPED, **_NO_PADDING, "num_hidden_layers": 4}),
    "granite": _decoder("Granite", {**_GROUPED, **_MULTIPLIERS}),
    "olmo2": _decoder("Olmo2", _FUSED),
    "olmo3": _decoder("Olmo3", {**_FUSED, "sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"]}),
    "stablelm": _decoder("StableLm", {**_FUSED, "use_qkv_bias": True, "partial_rotary_factor": 0.5}),
    "stablelm_parallel": _decoder(
        "StableLm", {**_FUSED, "qk_layernorm": True, "use_parallel_residual": True, "partial_rotary_factor": 0.5}
    ),
    "gpt2": Case(
        "GPT2",
        {"vocab_size": 40, "n_positions": 24, "n_embd": 32, "n_layer": 2, "n_head": 4},
        "LMHeadModel",
        masked=False,
        output="logits",
    ),
    "gpt_neox": _decoder("GPTNeoX", {**_SIZES, "rotary_pct": 0.5}),
    "gpt_neox_sequential": _decoder("GPTNeoX", {**_SIZES, "rotary_pct": 1.0, "use_parallel_residual": False}),
    "falcon": _decoder("Falcon", _SIZES),
    "falcon_new": _decoder("Falcon", {**_SIZES, "num_kv_heads": 2, "new_decoder_architecture": True}),
    "deepseek_v2": _decoder("DeepseekV2", {**_LATENT, "n_group": 1, "topk_group": 1, **_MSCALE}),
    "deepseek_v2_groups": _decoder(
        "DeepseekV2",
        {**_LATENT, "q_lora_rank": None, "topk_method": "group_limited_greedy", "n_group": 3, "topk_group": 2},
    ),
    "deepseek_v3": _decoder("DeepseekV3", {**_LATENT, "n_group": 3, "topk_group": 1}),
    "mamba": Case(
        "Mamba", {**_MAMBA, "state_size": 6, "time_step_rank": 3}, "ForCausalLM", masked=False, output="logits"
    ),
    "mamba2": Case(
        "Mamba2",
        {**_MAMBA, "state_size": 6, "num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 4},
        "ForCausalLM",
        masked=False,
        output="logits",
    ),
    "qwen3_next": _decoder(
        "Qwen3Next",
        {
            **_GROUPED,
            **_EXPERTS,
            "num_hidden_layers": 4,
            "shared_expert_intermediate_size": 24,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
        },
    ),
}


def compute(case: Case) -> dict[str, Any]:
    """Return the content of a reference file."""
    torch, transformers = importlib.import_module("torch"), importlib.import_module("transformers")
    config_class = f"{case.model}TextConfig" if case.model in ("Gemma3", "Llama4") else f"{case.model}Config"
    config = getattr(transformers, config_class)(**case.config)
    config._attn_implementation = config._experts_implementation = "eager"
    model = getattr(transformers, f"{case.model}{case.head}")(config).double().eval()
    saved = _saved(model)
    state = {n: torch.from_numpy(weight(n, tuple(shape)).astype(np.float64)) for n, shape in saved.items()}
    loaded = type(model).from_pretrained(None, config=config, state_dict=state, dtype=torch.float64).eval()
    inputs = _inputs(case)
    with torch.no_grad():
        given = {
            n: torch.tensor(np.asarray(a), dtype=None if a.dtype.kind == "i" else torch.float64)
            for n, a in inputs.items()
        }
        result = loaded(**given)
    names = [
        case.output,
        *(["pooler_output"] if case.head == "Model" and getattr(result, "pooler_output", None) is not None else []),
    ]
    outputs = {name: result[name].numpy() for name in names}
    return {
        "config": json.loads(config.to_json_string(use_diff=False)) | {"architectures": [type(model).__name__]},
        "tensors": saved,
        "inputs": {n: a.tolist() for n, a in inputs.items()},
        "options": dict(case.options),
        "outputs": {
            n: np.array([float(f"{x:.9g}") for x in a.ravel()]).reshape(a.shape).tolist() for n, a in outputs.items()
        },
    }


def _saved(model: Any) -> dict[str, list[int]]:
    """Return names and shapes of the saved tensors. In memory, some models have others."""
    import tempfile

    from safetensors import safe_open

    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        with safe_open(f"{folder}/model.safetensors", "np") as file:
            return {name: list(file.get_slice(name).get_shape()) for name in sorted(file.keys())}


def _inputs(case: Case) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(case.length)
    if case.model == "ViT":
        return {"pixel_values": rng.normal(size=(2, 3, 16, 16)).astype(np.float32).round(3)}
    ids = rng.integers(3, 40, (2, case.length))
    inputs = {"input_ids": ids}
    if case.masked:
        mask = np.ones_like(ids)
        mask[1, -2:] = 0
        inputs["input_ids"] = np.where(mask == 1, ids, case.padding)
        inputs["attention_mask"] = mask
    if case.kinds:
        inputs["token_type_ids"] = (np.arange(case.length) > 3) * np.ones_like(ids)
    return inputs


def main() -> None:
    """Write the named files, or all."""
    for name in sys.argv[1:] or CASES:
        (FOLDER / f"{name}.json").write_text(json.dumps(compute(CASES[name])) + "\n")


if __name__ == "__main__":
    main()

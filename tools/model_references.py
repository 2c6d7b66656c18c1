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


_LONG = {"factor": 4.0, "original_max_position_embeddings": 8}
_LLAMA3 = _rope("llama3", **_LONG, low_freq_factor=1.0, high_freq_factor=4.0)
CASES = {
    "bert": Case("Bert", _SIZES, kinds=True),
    "bert_masked_lm": Case("Bert", {**_SIZES, "hidden_act": "relu"}, "ForMaskedLM", kinds=True),
    "roberta": Case("Roberta", {**_SIZES, "type_vocab_size": 1, "layer_norm_eps": 1e-5}, padding=1),
    "distilbert": Case("DistilBert", _DISTILBERT),
    "mpnet": Case("MPNet", _SIZES, padding=1),
    "mpnet_long": Case("MPNet", {**_SIZES, "hidden_size": 8, "max_position_embeddings": 160}, padding=1, length=150),
    "modernbert": Case("ModernBert", {**_SIZES, **_SPECIAL, "num_hidden_layers": 4, "local_attention": 4}),
    "vit": Case("ViT", _VIT),
    "vit_classifier": Case(
        "ViT", {**_VIT, "qkv_bias": False, "num_labels": 5}, "ForImageClassification", output="logits"
    ),
    "llama": _decoder("Llama", _GROUPED, masked=True),
    "llama_biases": _decoder(
        "Llama", {**_GROUPED, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}
    ),
    "llama_linear": _decoder("Llama", {**_GROUPED, **_rope("linear", factor=2.5)}),
    "llama_dynamic": _decoder("Llama", {**_GROUPED, "max_position_embeddings": 4, **_rope("dynamic", factor=2.0)}),
    "llama_yarn": _decoder("Llama", {**_GROUPED, **_rope("yarn", **_LONG)}),
    "llama_llama3": _decoder("Llama", {**_GROUPED, **_LLAMA3}),
    "mistral": _decoder("Mistral", {**_GROUPED, "sliding_window": 3}, masked=True),
    "qwen2": _decoder("Qwen2", {**_GROUPED, "use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1}),
    "qwen3": _decoder("Qwen3", {**_GROUPED, "head_dim": 16}),
    "gemma": _decoder("Gemma", {**_GROUPED, "head_dim": 16}),
    "gemma2": _decoder("Gemma2", {**_GROUPED, "sliding_window": 3, "query_pre_attn_scalar": 12}),
}


def compute(case: Case) -> dict[str, Any]:
    """Return the content of a reference file."""
    torch, transformers = importlib.import_module("torch"), importlib.import_module("transformers")
    config = getattr(transformers, f"{case.model}Config")(**case.config)
    config._attn_implementation = "eager"
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
        base = getattr(loaded, loaded.base_model_prefix) if case.head == "ForMaskedLM" else loaded
        result = base(**given)
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

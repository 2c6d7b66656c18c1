"""Configurations: older forms are equivalent, and invalid fields are refused with an `Error`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlx import Error
from rlx.models import load
from tests.drawing import drawn
from tests.models.references import NAMES, reference, weights, write_model

DECODERS = [name for name in NAMES if "num_key_value_heads" in reference(name)["config"]]


def folder_of(path: Path, name: str, **config: Any) -> Path:
    """Write the folder of a reference, with some fields of the configuration changed; `...` removes one."""
    content = reference(name)
    fields = {n: v for n, v in (content["config"] | config).items() if v is not Ellipsis}
    return write_model(path / name, fields, weights(content["tensors"]))


@pytest.mark.parametrize("name", [*DECODERS, "modernbert"])
def test_older_configurations_mean_the_same(tmp_path: Path, name: str) -> None:
    """Before version 5 of transformers, files had `rope_theta` and `rope_scaling`, and no `layer_types`."""
    ropes = reference(name)["config"]["rope_parameters"]
    older: dict[str, Any] = {"rope_parameters": ..., "layer_types": ...}
    if name == "modernbert":
        full, local = ropes["full_attention"], ropes["sliding_attention"]
        older |= {"global_rope_theta": full["rope_theta"], "local_rope_theta": local["rope_theta"]}
    else:
        if "full_attention" in ropes:
            older["rope_local_base_freq"] = ropes["sliding_attention"]["rope_theta"]
            ropes = ropes["full_attention"]
            del older["layer_types"]  # these are not those of published models
        outside = ("rope_theta", "rope_type", "partial_rotary_factor")
        scaling = {n: v for n, v in ropes.items() if n not in outside}
        older["rope_theta"] = ropes["rope_theta"]
        older["partial_rotary_factor"] = ropes.get("partial_rotary_factor")
        older["rope_scaling"] = {"type": ropes["rope_type"], **scaling} if scaling else None
    new, old = load(folder_of(tmp_path / "new", name)), load(folder_of(tmp_path / "old", name, **older))
    assert new.config == old.config


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("llama", {"num_key_value_heads": 3}, "'num_key_value_heads' must be a divisor of the 4 heads, got 3"),
        ("llama", {"head_dim": 7}, "'head_dim' must be even"),
        (
            "llama",
            {"rope_parameters": {"rope_type": "wide"}},
            "must be one of default, linear, dynamic, yarn, llama3, longrope",
        ),
        ("llama", {"rope_parameters": {"rope_type": "linear"}}, "has no 'rope_parameters.factor'"),
        ("llama", {"rope_parameters": 3}, "'rope_parameters' must be an object, got 3"),
        (
            "llama",
            {"rope_parameters": {"rope_theta": 0}},
            "'rope_parameters.rope_theta' must be a number of at least 1",
        ),
        ("llama", {"hidden_act": "mish"}, "'hidden_act' must be one of "),
        ("llama_yarn", {"num_hidden_layers": 3}, "'layers.2.input_layernorm.weight' (f32[32]) is missing"),
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5 is not supported; expected 1.0"),
        ("stablelm", {"rope_parameters": {"partial_rotary_factor": 1.5}}, "partial_rotary_factor' must be at most 1"),
        ("phi3_long", {"num_attention_heads": 8}, "'rope_parameters.short_factor' must be a list of 1 numbers"),
        ("mixtral", {"num_experts_per_tok": 5}, "'num_experts_per_tok' must be at most 4, the number of experts"),
        ("mixtral", {"num_local_experts": 5}, "block_sparse_moe.gate.weight' is float32[4, 32], expected f32[5, 32]"),
        ("smollm3", {"no_rope_layers": [1, 2, 0, 1]}, "'no_rope_layers' must be a list of 4 of 0 or 1"),
        ("gpt2", {"n_head": 5}, "32 lanes do not divide into 5 heads ('n_head')"),
        ("gpt2", {"n_embd": ...}, "has no 'n_embd'"),
        ("falcon", {"alibi": True}, "alibi True is not supported; expected False"),
        ("falcon", {"num_attention_heads": 2}, "tensor 'transformer.h.0.self_attention.query_key_value.weight'"),
        ("deepseek_v2_groups", {"topk_group": 4}, "'topk_group' must be at most 3"),
        ("gemma2", {"layer_types": ["full_attention"]}, "'layer_types' must be a list of 2 of full_attention"),
        ("qwen2", {"layer_types": ["full_attention", []]}, "'layer_types' must be a list of 2 of full_attention"),
        ("gemma", {"use_bidirectional_attention": True}, "use_bidirectional_attention True is not supported"),
        ("vit", {"patch_size": 5}, "images of (16, 16) pixels do not divide into patches of (5, 5)"),
        ("vit", {"image_size": [16]}, "'image_size' must be a number of pixels up to 16384, or two of them"),
        ("vit", {"image_size": 32}, "expected f32[1, 65, 32]"),
        ("mpnet", {"relative_attention_num_buckets": 6}, "must be a multiple of 4"),
        ("mpnet", {"pad_token_id": 23}, "24 positions leave none behind 'pad_token_id'"),
        ("roberta", {"is_decoder": True}, "is_decoder True is not supported; expected False"),
    ],
)
def test_configurations_that_are_refused(tmp_path: Path, name: str, config: dict[str, Any], message: str) -> None:
    with pytest.raises(Error) as caught:
        load(folder_of(tmp_path, name, **config))
    assert message in str(caught.value)


def test_dynamic_positions_need_a_length(tmp_path: Path) -> None:
    with pytest.raises(Error, match="depend on the number of tokens, which is 'sequence'"):
        load(folder_of(tmp_path, "llama_dynamic")).graph(sequence="sequence")


VALUES = (0, -1, 1 << 24, 1 << 70, 1.5, 1e-320, 1e300, float("nan"), "x", None, True, [], [1], {}, {"x": 1})


@drawn(
    "name",
    [
        *("bert", "roberta", "distilbert", "mpnet", "modernbert", "vit", "llama_yarn", "gemma2", "qwen2", "gemma3"),
        *("phi3_long", "qwen2_moe", "smollm3", "granite", "gpt2", "gpt_neox", "falcon_new", "deepseek_v2_groups"),
    ],
    of_each=2,
)
def test_fields_of_other_kinds(tmp_path: Path, name: str, seed: int) -> None:
    """For any value of a field, the folder is refused with an `Error`, or its graph can be built."""
    rng = np.random.default_rng(seed)

    def some() -> list[Any]:
        return [VALUES[i] for i in rng.permutation(len(VALUES))[:4]]

    folder, config = folder_of(tmp_path, name), reference(name)["config"]
    changed = [config | {field: value} for field in config for value in some()]
    ropes = config.get("rope_parameters", {})
    changed += [config | {"rope_parameters": ropes | {field: value}} for field in ropes for value in some()]
    refused = 0
    for content in changed:
        (folder / "config.json").write_text(json.dumps(content))
        try:
            load(folder).graph()
        except Error as problem:
            assert str(problem)
            refused += 1
    assert refused > 10

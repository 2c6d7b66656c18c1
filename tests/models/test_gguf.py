"""Models in GGUF files: the references, written under the names of GGUF, have the results of the transformers package."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import Error
from rlx.models import load
from tests.drawing import drawn
from tests.models.gguf_files import ARCHITECTURES, permuted, write_gguf
from tests.models.references import NAMES, WITH_LABELS, arrays, reference, weights

Change = Callable[[dict[str, Any], dict[str, np.ndarray]], None]

# `dynamic` has no key, and neither has the size of the chunks of Llama 4. GGUF files of Mistral lack the window, and files of
# Qwen2 the layers that have one.
_NOT_IN_GGUF = {"llama_dynamic", "mistral", "qwen2", "llama4_chunks"}
DECODERS = [
    n for n in NAMES if reference(n)["config"]["model_type"] in ARCHITECTURES and n not in _NOT_IN_GGUF | WITH_LABELS
]


def unchanged(metadata: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
    """Change nothing."""


def _scaled_queries(metadata: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
    """Move the factor of scores, which has no key, to the queries. The references have one that no published model has."""
    for name in tensors:
        if name.endswith("attn_q_norm.weight") or (
            name.endswith("attn_q.weight") and "blk.0.attn_q_norm.weight" not in tensors
        ):
            tensors[name] = tensors[name] * np.float32((8 / 12) ** 0.5)


def file_of(path: Path, name: str, change: Change = unchanged) -> Path:
    content = reference(name)
    return write_gguf(path / f"{name}.gguf", content["config"], weights(content["tensors"]), change)


def error_of(path: Path, name: str) -> float:
    """Return the largest difference from the reference, relative to the largest logit."""
    content = reference(name)
    inputs, expected = arrays(content["inputs"]), arrays(content["outputs"])["logits"]
    batch, length = inputs["input_ids"].shape
    graph = load(path).graph(batch=batch, sequence=length, **content["options"])
    (logits,) = rlx.evaluate(graph, {a.name: inputs[a.name] for a in graph.inputs})
    difference = np.abs(logits - expected)
    if "attention_mask" in inputs:
        difference = difference[inputs["attention_mask"] == 1]
    return float(difference.max() / np.abs(expected).max())


@pytest.mark.parametrize("name", DECODERS)
def test_evaluated(tmp_path: Path, name: str) -> None:
    path = file_of(tmp_path, name, _scaled_queries if name in ("gemma2", "gemma3") else unchanged)
    assert error_of(path, name) < (2e-5 if name == "qwen3_next" else 2e-6)
    assert load(path).unused == ()


def _without_permutation(metadata: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
    tensors["blk.0.attn_k.weight"] = permuted(permuted(tensors["blk.0.attn_k.weight"], 2), 2)


def _without_shift(metadata: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
    tensors["blk.1.ffn_norm.weight"] = tensors["blk.1.ffn_norm.weight"] - 1


def _swapped_experts(metadata: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
    name = "blk.1.ffn_up_exps.weight"
    tensors[name] = np.ascontiguousarray(tensors[name][::-1])


@pytest.mark.parametrize(
    ("name", "change"),
    [("llama", _without_permutation), ("gemma2", _without_shift), ("qwen3_moe", _swapped_experts)],
)
def test_other_weights_have_other_results(tmp_path: Path, name: str, change: Change) -> None:
    assert error_of(file_of(tmp_path, name, change), name) > 1e-3


def _fuse(metadata: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
    """Fuse tensors as newer converters may do."""
    for i in range(2):
        for suffix in ("weight", "bias"):
            names = [f"blk.{i}.attn_{n}.{suffix}" for n in "qkv"]
            if names[0] in tensors:
                tensors[f"blk.{i}.attn_qkv.{suffix}"] = np.concatenate([tensors.pop(name) for name in names])
        names = [f"blk.{i}.ffn_{n}_exps.weight" for n in ("gate", "up")]
        if names[0] in tensors:
            tensors[f"blk.{i}.ffn_gate_up_exps.weight"] = np.concatenate([tensors.pop(name) for name in names], 1)


def _single_experts(metadata: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
    """Store one tensor for each expert, as the oldest files do."""
    for name in [name for name in tensors if "_exps." in name]:
        for number, matrix in enumerate(tensors.pop(name)):
            tensors[name.replace("_exps.", f".{number}.")] = matrix


def _fused_latent(metadata: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
    """Store keys and values of latent attention in one tensor, and the sizes of heads, as older files do."""
    for name in [name for name in tensors if "attn_k_b" in name]:
        keys = tensors.pop(name).transpose(0, 2, 1)
        joined = np.concatenate([keys, tensors.pop(name.replace("k_b", "v_b"))], 1)
        tensors[name.replace("k_b", "kv_b")] = joined.reshape(-1, joined.shape[2])
    for kind in ("key", "value"):
        metadata[f"deepseek2.attention.{kind}_length"] = metadata.pop(f"deepseek2.attention.{kind}_length_mla")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("llama", _fuse),
        ("llama_biases", _fuse),
        ("qwen3_moe", _fuse),
        ("mixtral", _fuse),
        ("mixtral", _single_experts),
        ("deepseek_v2", _fused_latent),
    ],
)
def test_other_forms_of_the_same_file(tmp_path: Path, name: str, change: Change) -> None:
    assert error_of(file_of(tmp_path, name, change), name) < 2e-6


def _packed(tensors: dict[str, Any], parts: tuple[str, ...], is_packed: bool) -> None:
    """Pack the tensors with one of these parts in their names, or round them to the same values."""
    scheme = rlx.weights.schemes["q8_0"]
    assert scheme.encode is not None
    for name, array in tensors.items():
        if not any(part in name for part in parts):
            continue
        stored = scheme.encode(array)
        if is_packed:
            encoding = rlx.weights.PackedBlocks(scheme)
            read = stored.tobytes
            tensors[name] = rlx.weights.Weight(name, array.shape, encoding, stored.nbytes, "the test", read)
        else:
            tensors[name] = scheme.decode(stored)


@pytest.mark.parametrize(
    ("name", "form", "parts"),
    [
        ("llama", unchanged, ("attn_q.", "attn_k.", "ffn_gate", "ffn_up")),
        ("phi3", unchanged, ("attn_qkv", "ffn_up", "token_embd")),
        ("mixtral", unchanged, ("ffn_gate_exps", "ffn_up_exps")),
        ("mixtral", _single_experts, ("ffn_gate.", "ffn_up.")),
        ("qwen3_moe", _fuse, ("ffn_gate_up_exps", "attn_qkv")),
        ("llama4", unchanged, ("ffn_gate_exps", "ffn_up_exps", "ffn_gate_shexp", "attn_q.")),
    ],
)
def test_packed_weights_are_those_that_they_decode_to(
    tmp_path: Path, name: str, form: Change, parts: tuple[str, ...]
) -> None:
    logits: list[np.ndarray] = []
    ids = arrays(reference(name)["inputs"])["input_ids"]
    for is_packed in (False, True):

        def change(metadata: dict[str, Any], tensors: dict[str, Any], is_packed: bool = is_packed) -> None:
            form(metadata, tensors)
            _packed(tensors, parts, is_packed)

        model = load(file_of(tmp_path / str(is_packed), name, change))
        logits.append(rlx.evaluate(model.graph(batch=2, sequence=ids.shape[1]), {"input_ids": ids})[0])
    assert np.abs(logits[0] - logits[1]).max() < 2e-6 * np.abs(logits[0]).max()


def _set(**values: Any) -> Change:
    """Return a change of metadata; `...` removes a key."""

    def change(metadata: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
        for key, value in values.items():
            metadata[key] = value
            if value is ...:
                del metadata[key]

    return change


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("llama", {"llama.embedding_length": ...}, "has no 'llama.embedding_length'"),
        ("llama", {"llama.context_length": ...}, "has no 'llama.context_length'"),
        ("llama", {"llama.attention.layer_norm_rms_epsilon": ...}, "has no 'llama.attention.layer_norm_rms_epsilon'"),
        ("llama", {"llama.feed_forward_length": ...}, "has no 'llama.feed_forward_length'"),
        (
            "llama",
            {"llama.attention.head_count": 5},
            "'llama.attention.head_count_kv' must be a divisor of the 5 heads",
        ),
        ("llama", {"llama.attention.head_count": 0}, "'llama.attention.head_count' must be a positive integer, got 0"),
        ("llama", {"llama.attention.head_count": [4, 2]}, "'llama.attention.head_count' must be a positive integer"),
        ("llama", {"llama.block_count": 3}, "'blk.2.attn_norm.weight' (f32[32]) is missing"),
        ("llama", {"llama.block_count": 1 << 20}, "num_hidden_layers is 1048576"),
        ("llama", {"llama.attention.value_length": 16}, "'llama.attention.value_length' must be that of"),
        ("llama", {"llama.attention.causal": False}, "'llama.attention.causal' is false"),
        ("llama", {"llama.rope.dimension_count": 7}, "'llama.rope.dimension_count' must be even"),
        ("llama", {"llama.rope.dimension_count": 64}, "'llama.rope.dimension_count' must be at most 8"),
        ("llama", {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 0.5}, "'llama.rope.scaling.factor'"),
        ("llama", {"llama.rope.scaling.type": "wide", "llama.rope.scaling.factor": 2.0}, "'wide' is not supported"),
        ("llama", {"llama.rope.scaling.type": "longrope"}, "no tensor 'rope_factors_long.weight'"),
        ("llama", {"general.architecture": "cat"}, "has a model of the architecture 'cat'; known are"),
        (
            "mixtral",
            {"llama.expert_used_count": 5},
            "'llama.expert_used_count' must be at most 4, the number of experts",
        ),
        ("mixtral", {"llama.expert_used_count": 0}, "'llama.expert_used_count' must be a positive integer"),
        ("mixtral", {"llama.expert_used_count": ...}, "has no 'llama.expert_used_count'"),
        ("mixtral", {"llama.expert_count": 8}, "'blk.0.ffn_gate_inp.weight' is float32[4, 32]"),
        ("qwen2_moe", {"qwen2moe.expert_feed_forward_length": 8}, "'blk.1.ffn_up_exps.weight' is float32[6, 16, 32]"),
        (
            "deepseek_v3",
            {"deepseek2.expert_group_count": 4},
            "'deepseek2.expert_group_count' must be a divisor of the 6",
        ),
        ("llama4", {"llama4.attention.sliding_window": 0}, "'llama4.attention.sliding_window' 0 is not supported"),
        ("llama4", {"llama4.interleave_moe_layer_step": 0}, "'llama4.interleave_moe_layer_step' must be a positive"),
        ("llama4", {"llama4.expert_feed_forward_length": ...}, "has no 'llama4.expert_feed_forward_length'"),
        ("mamba", {"mamba.ssm.dt_b_c_rms": True}, "'mamba.ssm.dt_b_c_rms' is true"),
        ("mamba", {"mamba.ssm.conv_kernel": 1}, "'mamba.ssm.conv_kernel' must be an integer of at least 2"),
        ("mamba2", {"mamba2.ssm.group_count": 3}, "'mamba2.ssm.group_count' must be a divisor of the 8 heads"),
        (
            "qwen3_next",
            {"qwen3next.ssm.time_step_rank": 3},
            "'qwen3next.ssm.time_step_rank' must be a multiple of the 2",
        ),
        ("deepseek_v2", {"deepseek2.rope.dimension_count": 100}, "'deepseek2.attention.key_length' must be a positive"),
        ("phi3", {"phi3.attention.head_count_kv": 1}, "'blk.0.attn_qkv.weight'"),
        (
            "gemma3",
            {"gemma3.attention.sliding_window_pattern": [True, False]},
            "sliding_window_pattern' must be a list",
        ),
        ("phi3_long", {"phi3.rope.scaling.original_context_length": 0}, "original_context_length' must be a positive"),
        ("phi3_long", {"phi3.rope.dimension_count": 8}, "'rope_factors_short.weight' must have 4 positive numbers"),
    ],
)
def test_metadata_that_is_refused(tmp_path: Path, name: str, values: dict[str, Any], message: str) -> None:
    with pytest.raises(Error) as caught:
        load(file_of(tmp_path, name, _set(**values)))
    assert message in str(caught.value)


VALUES = (0, -1, 1 << 24, 1 << 31, 1.5, 1e-38, float("nan"), "x", True, [1, 2], ["x"], [True, False])


@drawn("name", [*dict.fromkeys(ARCHITECTURES.values()), "mixtral"], of_each=2)
def test_values_of_other_kinds(tmp_path: Path, name: str, seed: int) -> None:
    """For any value of a key, the file is refused with an `Error`, or its graph can be built."""
    names = {ARCHITECTURES[reference(n)["config"]["model_type"]]: n for n in [*DECODERS, "qwen2"]}
    content = reference("mixtral" if name == "mixtral" else names[name])
    rng, keys = np.random.default_rng(seed), list[str]()
    file_of(tmp_path, "mixtral" if name == "mixtral" else names[name], lambda metadata, tensors: keys.extend(metadata))
    refused = 0
    for key in keys:
        for i in rng.permutation(len(VALUES))[:4]:
            path = write_gguf(
                tmp_path / "changed.gguf", content["config"], weights(content["tensors"]), _set(**{key: VALUES[i]})
            )
            try:
                load(path).graph()
            except Error as problem:
                assert str(problem)
                refused += 1
    assert refused > 10


def test_an_unknown_tensor_of_a_layer_is_refused(tmp_path: Path) -> None:
    def change(metadata: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
        tensors["blk.1.attn_sinks.weight"] = np.zeros(4, np.float32)

    with pytest.raises(Error, match=r"'blk.1.attn_sinks.weight' is no tensor of this model"):
        load(file_of(tmp_path, "llama", change))


def test_one_tensor_of_long_positions_is_refused(tmp_path: Path) -> None:
    def change(metadata: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
        del tensors["rope_factors_long.weight"]

    with pytest.raises(Error, match=r"must have both rope_factors_short.weight and rope_factors_long.weight"):
        load(file_of(tmp_path, "phi3_long", change))


def test_a_head_that_classifies_is_not_lost_silently(tmp_path: Path) -> None:
    def change(metadata: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
        tensors["cls.output.weight"] = np.ones((2, 32), np.float32)

    path = file_of(tmp_path, "llama", change)
    with pytest.warns(UserWarning, match=r"has a head that classifies, 'cls\.output\.weight', which is not supported"):
        assert load(path).unused == ("cls.output.weight",)

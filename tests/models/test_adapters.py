"""LoRA adapters: the logits are those of merged weights, for all families and both formats; damaged ones are errors."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rlx
from rlx.models import PretrainedModel, load
from rlx.models.adapters import adapter_paths, with_adapters
from tests.models.adapter_samples import SampleAdapter, write_adapter_gguf, write_peft
from tests.models.gguf_files import write_gguf
from tests.models.references import arrays, reference, weights, write_model
from tests.models.test_gguf import DECODERS, unchanged


def _logits(model: PretrainedModel, name: str) -> np.ndarray:
    content = reference(name)
    inputs = arrays(content["inputs"])
    batch, length = inputs["input_ids"].shape
    graph = model.graph(batch=batch, sequence=length, **content["options"])
    return rlx.evaluate(graph, {a.name: inputs[a.name] for a in graph.inputs})[0]


def _check(model: PretrainedModel, merged: PretrainedModel, name: str, tolerance: float = 1e-5) -> None:
    got, expected = _logits(model, name), _logits(merged, name)
    assert np.abs(got - expected).max() < tolerance * np.abs(expected).max()


@pytest.mark.parametrize("name", DECODERS)
def test_every_family(tmp_path: Path, name: str, seed: int) -> None:
    """In a folder and in a GGUF file, an adapter of PEFT has the effect of merged weights."""
    content = reference(name)
    config, tensors = content["config"], weights(content["tensors"])
    adapter = SampleAdapter.drawn(config, tensors, seed)
    peft = adapter.write_peft(tmp_path / "adapter", fan_in_fan_out=adapter.is_transposed)
    base, merged = (
        load(write_model(tmp_path / n, config, t)) for n, t in (("b", tensors), ("m", adapter.merged(tensors)))
    )
    adapted = with_adapters(base, peft)
    _check(adapted, merged, name)
    assert np.abs(_logits(base, name) - _logits(adapted, name)).max() > 0.1  # the adapter has an effect
    base, merged = (
        load(write_gguf(tmp_path / f"{n}.gguf", config, t, unchanged))
        for n, t in (("b", tensors), ("m", adapter.merged(tensors)))
    )
    _check(with_adapters(base, peft), merged, name)


_GGUF_ADAPTERS = (
    "llama",
    "mistral",
    "smollm3",
    "granite",
    "qwen2",
    "qwen3",
    "phi3",
    "gemma3",
    "gpt2",
    "gpt_neox",
    "olmo2",
)


@pytest.mark.parametrize("name", _GGUF_ADAPTERS)
def test_gguf_adapters(tmp_path: Path, name: str, seed: int) -> None:
    content = reference(name)
    config, tensors = content["config"], weights(content["tensors"])
    adapter = SampleAdapter.drawn(config, tensors, seed)
    path, merged = adapter.write_gguf(tmp_path / "a.gguf", config), adapter.merged(tensors, -0.7)
    base = load(write_model(tmp_path / "base", config, tensors))
    _check(with_adapters(base, (path, -0.7)), load(write_model(tmp_path / "merged", config, merged)), name)
    base = load(write_gguf(tmp_path / "b.gguf", config, tensors, unchanged))
    expected = load(write_gguf(tmp_path / "m.gguf", config, merged, unchanged))
    _check(with_adapters(base, {path: -0.7}), expected, name)


class _Llama:
    """The reference `llama` in a folder, with an adapter."""

    def __init__(self, path: Path, seed: int, name: str = "llama"):
        self.path, content = path, reference(name)
        self.config, self.tensors = content["config"], weights(content["tensors"])
        self.adapter = SampleAdapter.drawn(self.config, self.tensors, seed)
        self.model = load(write_model(path / "base", self.config, self.tensors))

    def merged(self, tensors: dict[str, np.ndarray]) -> PretrainedModel:
        return load(write_model(self.path / "merged", self.config, tensors))


def test_several_adapters_and_factors(tmp_path: Path, seed: int) -> None:
    llama = _Llama(tmp_path, seed)
    other = SampleAdapter.drawn(llama.config, llama.tensors, seed + 1, rank=3)
    one, two = llama.adapter.write_peft(tmp_path / "a=b"), other.write_gguf(tmp_path / "b.gguf", llama.config)
    expected = llama.merged(other.merged(llama.adapter.merged(llama.tensors, 0.5), 2.0))
    (own,) = adapter_paths((one, np.float32(0.5)))
    assert own == (str(one), 0.5) and adapter_paths((one, np.int64(2))) == [(str(one), 2.0)]
    for lora in ([(one, 0.5), (two, 2)], {one: 0.5, str(two): 2.0}, ((one, 0.25), (one, 0.25), [two, 2])):
        _check(with_adapters(llama.model, lora), expected, "llama")
    twice = llama.merged(llama.adapter.merged(llama.tensors, 2.0))
    _check(with_adapters(with_adapters(llama.model, one), [one, one]), twice, "llama")
    assert with_adapters(llama.model, []) is llama.model


def test_the_factor_0_changes_no_bit(tmp_path: Path, seed: int) -> None:
    llama = _Llama(tmp_path, seed)
    path = llama.adapter.write_peft(tmp_path / "a")
    assert (_logits(with_adapters(llama.model, (path, 0.0)), "llama") == _logits(llama.model, "llama")).all()


def test_scales(tmp_path: Path, seed: int) -> None:
    """Rank-stabilised scales, and ranks and scales by layer."""
    llama = _Llama(tmp_path, seed)
    path = llama.adapter.write_peft(tmp_path / "a", use_rslora=True)
    scale = llama.adapter.alpha / math.sqrt(llama.adapter.rank)
    expected = llama.merged(llama.adapter.merged(llama.tensors, scale=scale))
    _check(with_adapters(llama.model, path), expected, "llama")
    wide = SampleAdapter.drawn(llama.config, llama.tensors, seed, rank=6)
    chosen = "model.layers.1.self_attn.q_proj.weight"
    adapter, merged = llama.adapter, llama.adapter.merged(llama.tensors)
    adapter.factors[chosen] = wide.factors[chosen]
    a, b = adapter.factors[chosen]
    merged[chosen] = llama.tensors[chosen] + np.float32(2.0 / 6) * (b @ a)
    up = "model.layers.0.mlp.up_proj.weight"
    a, b = adapter.factors[up]
    merged[up] = llama.tensors[up] + np.float32(3.0 / 4) * (b @ a)
    patterns: dict[str, Any] = {
        "rank_pattern": {"layers.1.self_attn.q_proj": 6},
        "alpha_pattern": {"^model.layers.0.mlp.up_proj": 3, "1.self_attn.q_proj": 2.0},
    }
    path = adapter.write_peft(tmp_path / "b", **patterns)
    _check(with_adapters(llama.model, path), llama.merged(merged), "llama")
    without = adapter.factors.copy()
    adapter.factors = {up: without[up]}
    path = adapter.write_gguf(tmp_path / "c.gguf", llama.config)
    values: Any = {"adapter.lora.alpha": None}
    tensors = {name: weight.numpy() for name, weight in rlx.weights.open(path).items()}
    path = write_adapter_gguf(tmp_path / "d.gguf", "llama", 0, tensors, **values)
    _check(with_adapters(llama.model, path), llama.merged(adapter.merged(llama.tensors, scale=1.0)), "llama")


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats(tmp_path: Path, seed: int, dtype: Any) -> None:
    llama = _Llama(tmp_path, seed)
    path = llama.adapter.write_peft(tmp_path / "a", dtype) if dtype is np.float16 else None
    path = path or llama.adapter.write_gguf(tmp_path / "a.gguf", llama.config, dtype)
    llama.adapter.factors = {
        n: (a.astype(dtype).astype(np.float32), b.astype(dtype).astype(np.float32))
        for n, (a, b) in llama.adapter.factors.items()
    }
    _check(with_adapters(llama.model, path), llama.merged(llama.adapter.merged(llama.tensors)), "llama")


@pytest.mark.parametrize("name", ["llama", "gemma"])
def test_embeddings_and_the_head(tmp_path: Path, seed: int, name: str) -> None:
    """The update of an embedding does not change tied logits, and that of the head does not change the embedding."""
    llama, rng = _Llama(tmp_path, seed, name), np.random.default_rng(seed)
    table = llama.tensors["model.embed_tokens.weight"]
    a, b = (rng.normal(0, 0.3, s).astype(np.float32) for s in ((3, table.shape[0]), (table.shape[1], 3)))
    head_a, head_b = (rng.normal(0, 0.3, s).astype(np.float32) for s in ((3, table.shape[1]), (table.shape[0], 3)))
    prefix = "base_model.model.model.embed_tokens.lora_embedding_"
    tensors = {f"{prefix}A": a, f"{prefix}B": b}
    head = {"base_model.model.lm_head.lora_A.weight": head_a, "base_model.model.lm_head.lora_B.weight": head_b}
    path = write_peft(tmp_path / "a", tensors | head, r=3, lora_alpha=3)
    merged = dict(llama.tensors)
    merged["lm_head.weight"] = merged.get("lm_head.weight", table) + head_b @ head_a
    merged["model.embed_tokens.weight"] = table + (b @ a).T
    config = llama.config | {"tie_word_embeddings": False}
    expected = load(write_model(tmp_path / "m", config, merged))
    _check(with_adapters(llama.model, path), expected, name)
    gguf = {"token_embd.weight.lora_a": np.ascontiguousarray(a.T), "token_embd.weight.lora_b": b}
    gguf |= {"output.weight.lora_a": head_a, "output.weight.lora_b": head_b}
    _check(with_adapters(llama.model, write_adapter_gguf(tmp_path / "a.gguf", name, 3, gguf)), expected, name)


_A = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
Parts = tuple[dict[str, np.ndarray], dict[str, Any]]


def _renamed(name: str) -> Callable[[Parts], object]:
    def change(parts: Parts) -> None:
        parts[0][name] = parts[0].pop(_A)

    return change


def _with(**config: Any) -> Callable[[Parts], None]:
    return lambda parts: parts[1].update(config)


def _array(shape: tuple[int, ...], dtype: Any = np.float32) -> Callable[[Parts], None]:
    return lambda parts: parts[0].update({_A: np.zeros(shape, dtype)})


def _value(value: float) -> Callable[[Parts], object]:
    def change(parts: Parts) -> None:
        parts[0][_A] = parts[0][_A].copy()
        parts[0][_A][1, 2] = value

    return change


def _also(name: str) -> Callable[[Parts], None]:
    return lambda parts: parts[0].update({name: parts[0][_A] + 1})


_REFUSED: dict[str, tuple[Callable[[Parts], object], str]] = {
    "DoRA": (_with(use_dora=True), "'use_dora' is True"),
    "saved modules": (_with(modules_to_save=["lm_head"]), "'modules_to_save'"),
    "biases": (_with(bias="all"), "'bias' is 'all'"),
    "lora bias": (_with(lora_bias=True), "'lora_bias'"),
    "replication": (_with(layer_replication=[[0, 2]]), "'layer_replication'"),
    "parameters": (_with(target_parameters=["mlp.experts.down_proj"]), "'target_parameters'"),
    "unknown": (_with(something_new=3), "'something_new' is 3"),
    "type": (_with(peft_type="IA3"), "must be 'LORA', got 'IA3'"),
    "changed base": (_with(init_lora_weights="pissa_niter_4"), "belongs to changed weights"),
    "rank": (_with(r=8), r"has rank 4, and 'r' of .* is 8"),
    "no rank": (_with(r="4"), "'r' must be a positive integer"),
    "rank 0": (_with(r=0), "'r' must be a positive integer"),
    "alpha": (_with(lora_alpha="16"), "'lora_alpha' must be a number"),
    "infinite alpha": (_with(lora_alpha=1e39), "'lora_alpha' must be a number"),
    "endless alpha": (_with(lora_alpha=10**400), "'lora_alpha' must be a number"),
    "stable scales": (_with(use_rslora=1), "'use_rslora' must be true or false"),
    "pattern": (_with(rank_pattern={"(a+)+b": 3}), "is not the name of a layer"),
    "patterns": (_with(rank_pattern=[3]), "must be an object"),
    "missing half": (lambda parts: parts[0].pop(_A), "without the other matrix"),
    "empty": (lambda parts: parts[0].clear(), "has no tensors"),
    "ranks": (_array((3, 24)), "has rank 3, and .* rank 4"),
    "width": (_array((4, 25)), r"do not fit 'layers.0.self_attn.q_proj' of the model"),
    "vector": (_array((4,)), "must be a matrix of f32, f16 or bf16, got float32"),
    "integers": (_array((4, 24), np.int8), "must be a matrix of f32, f16 or bf16, got int8"),
    "rank of nothing": (_array((0, 24)), "has rank 0"),
    "magnitude": (_renamed(_A.replace("lora_A.weight", "lora_magnitude_vector")), "is not a part of a low-rank update"),
    "whole weight": (_renamed("base_model.model.lm_head.weight"), "is not a part of a low-rank update"),
    "NaN": (_value(math.nan), f"'{_A}' has values that are not finite"),
    "infinite values": (_value(-math.inf), f"'{_A}' has values that are not finite"),
    "two names": (_also(_A.removesuffix(".weight")), "are not two matrices of one update"),
    "of a table": (_also(_A.replace("lora_A.weight", "lora_embedding_A")), "are not two matrices of one update"),
    "half of a table": (
        _renamed(_A.replace("lora_A.weight", "lora_embedding_A")),
        "are not two matrices of one update",
    ),
    "other prefix": (_renamed("model.layers.0.self_attn.q_proj.lora_A.weight"), "is not a part of a low-rank update"),
}


@pytest.mark.parametrize("case", _REFUSED)
def test_refused(tmp_path: Path, seed: int, case: str) -> None:
    llama, (change, message) = _Llama(tmp_path, seed), _REFUSED[case]
    (a, b), config = llama.adapter.factors["model.layers.0.self_attn.q_proj.weight"], {"r": 4, "lora_alpha": 8}
    parts: Parts = {_A: a, _A.replace("lora_A", "lora_B"): b}, config
    with_adapters(llama.model, write_peft(tmp_path / "good", parts[0], **parts[1]))
    change(parts)
    path = write_peft(tmp_path / "a", parts[0], **parts[1])
    for factor in (1.0, 0.0):
        with pytest.raises(rlx.Error, match=message):
            with_adapters(llama.model, (path, factor))


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ("model.layers.9.self_attn.q_proj", "changes no matrix"),
        ("model.layers.0.self_attn.z_proj", "changes no matrix"),
        ("model.layers.0.input_layernorm", "changes no matrix"),
        ("model.layers.0.mlp.experts.3.up_proj", "belongs to experts"),
        ("model.embed_tokens", "changes no matrix|do not fit"),
        ("x" * 5000, "changes no matrix"),
        ("\x1b[2J", "changes no matrix"),
    ],
)
def test_layers_that_the_model_lacks(tmp_path: Path, seed: int, layer: str, message: str) -> None:
    llama = _Llama(tmp_path, seed)
    a, b = llama.adapter.factors["model.layers.0.self_attn.q_proj.weight"]
    tensors = {f"base_model.model.{layer}.lora_{part}.weight": array for part, array in (("A", a), ("B", b))}
    with pytest.raises(rlx.Error, match=message) as caught:
        with_adapters(llama.model, write_peft(tmp_path / "a", tensors, r=4))
    assert "\x1b" not in str(caught.value)


_GGUF_REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "model": ({"general.type": "model"}, "is not an adapter"),
    "no type": ({"general.type": None}, "is not an adapter"),
    "kind": ({"adapter.type": "control_vector"}, "'adapter.type' must be 'lora'"),
    "architecture": ({"general.architecture": "qwen2"}, "is an adapter for 'qwen2', and the model"),
    "no architecture": ({"general.architecture": None}, "'general.architecture' must be a name, got None"),
    "alpha": ({"adapter.lora.alpha": "16"}, "'adapter.lora.alpha' must be a number"),
    "infinite": ({"adapter.lora.alpha": np.float32(np.inf)}, "'adapter.lora.alpha' must be a number"),
    "infinite values": ({"tensors": math.inf}, r"'blk\.0\.attn_v\.weight\.lora_b' has values that are not finite"),
    "NaN": ({"tensors": math.nan}, r"'blk\.0\.attn_v\.weight\.lora_b' has values that are not finite"),
    "switched on": ({"adapter.alora.invocation_tokens": [1, 2]}, "tokens switch on"),
}


@pytest.mark.parametrize("case", _GGUF_REFUSED)
def test_refused_gguf(tmp_path: Path, seed: int, case: str) -> None:
    llama, (changes, message) = _Llama(tmp_path, seed), _GGUF_REFUSED[case]
    a, b = llama.adapter.factors["model.layers.0.self_attn.v_proj.weight"]
    tensors = {"blk.0.attn_v.weight.lora_a": a, "blk.0.attn_v.weight.lora_b": b}
    with_adapters(llama.model, write_adapter_gguf(tmp_path / "good.gguf", "llama", 8, tensors))
    if "tensors" in changes:
        tensors["blk.0.attn_v.weight.lora_b"] = np.where(b == b.max(), np.float32(changes["tensors"]), b)
        changes = {}
    path = write_adapter_gguf(tmp_path / "a.gguf", "llama", 8, tensors, **changes)
    with pytest.raises(rlx.Error, match=message):
        with_adapters(llama.model, path)
    gguf = load(write_gguf(tmp_path / "b.gguf", llama.config, llama.tensors, unchanged))
    with pytest.raises(rlx.Error, match=message):
        with_adapters(gguf, path)


_ARRAYS: list[Any] = [[], [1, 2], [0.5], ["lora"], ["lora", "adapter"], [[1], [2]], np.zeros(0, np.float32), [True]]


@pytest.mark.parametrize("key", ["general.type", "general.architecture", "adapter.type", "adapter.lora.alpha"])
def test_arrays_for_texts_and_numbers(tmp_path: Path, seed: int, key: str) -> None:
    """Each value of the metadata that is read may be an array in a damaged file."""
    llama = _Llama(tmp_path, seed)
    a, b = llama.adapter.factors["model.layers.0.self_attn.v_proj.weight"]
    tensors = {"blk.0.attn_v.weight.lora_a": a, "blk.0.attn_v.weight.lora_b": b}
    for value in _ARRAYS:
        path = write_adapter_gguf(tmp_path / "a.gguf", "llama", 8, tensors, **{key: value})
        with pytest.raises(rlx.Error, match=f"'{key}'"):
            with_adapters(llama.model, path)


def test_random_damage_is_an_error_or_harmless(tmp_path: Path, seed: int) -> None:
    llama, rng = _Llama(tmp_path, seed), np.random.default_rng(seed)
    folder, file = llama.adapter.write_peft(tmp_path / "a"), llama.adapter.write_gguf(tmp_path / "a.gguf", llama.config)
    for path in (folder / "adapter_model.safetensors", folder / "adapter_config.json", file):
        content = path.read_bytes()
        for _ in range(25):
            damaged = bytearray(content)
            for place in rng.integers(0, min(len(content), 3000), 3):
                damaged[place] = rng.integers(256)
            path.write_bytes(damaged[: int(rng.integers(1, len(damaged)))] if rng.random() < 0.3 else damaged)
            with contextlib.suppress(rlx.Error):
                with_adapters(llama.model, file if path is file else folder)
        path.write_bytes(content)


def test_paths(tmp_path: Path, seed: int) -> None:
    llama = _Llama(tmp_path, seed)
    path = llama.adapter.write_peft(tmp_path / "a")
    wrong: list[Any] = [5, True, (path, "1"), [(path, 1, 2)], {path: None}, (path, math.inf), (path, True), {5: 1.0}]
    wrong += [(path, 10**400), {path: -(10**400)}, (path, np.complex64(1))]
    for lora in wrong:
        with pytest.raises(rlx.Error, match=r"lora must be|expected|no such"):
            with_adapters(llama.model, lora)
    with pytest.raises(rlx.Error, match="too large"):
        with_adapters(llama.model, (path, 1e300))
    for missing in (tmp_path / "none", tmp_path, path / "adapter_model.safetensors"):
        with pytest.raises(rlx.Error, match=r"no such|has no adapter_config|is not an adapter"):
            with_adapters(llama.model, missing)
    (path / "adapter_model.safetensors").rename(path / "adapter_model.bin")
    with pytest.raises(rlx.Error, match=r"has no adapter_model\.safetensors"):
        with_adapters(llama.model, path)
    (path / "adapter_config.json").write_text(json.dumps([1]))
    (path / "adapter_model.bin").rename(path / "adapter_model.safetensors")
    with pytest.raises(rlx.Error, match="expected an object"):
        with_adapters(llama.model, path)

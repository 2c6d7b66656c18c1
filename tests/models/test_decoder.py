"""Decoders without references: caches of keys and values, masks, the last token, and models without a head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import Error, UnsupportedError
from rlx.models import load
from tests.drawing import drawn
from tests.models.gguf_files import write_gguf
from tests.models.references import arrays, reference, weights, write_model


def folder_of(path: Path, name: str) -> Path:
    """Write the folder of a reference."""
    content = reference(name)
    return write_model(path / name, content["config"], weights(content["tensors"]))


def results(graph: Any, **inputs: np.ndarray) -> dict[str, np.ndarray]:
    return {o.name: a for o, a in zip(graph.outputs, rlx.evaluate(graph, inputs), strict=True)}


@pytest.mark.parametrize(
    "name",
    ["llama", "qwen2", "gemma2", "gemma3", "smollm3", "llama4_chunks", "gpt2", "stablelm", "qwen3_moe", "deepseek_v3"],
)
def test_with_a_cache_tokens_come_one_after_the_other(tmp_path: Path, name: str) -> None:
    model, content = load(folder_of(tmp_path, name)), reference("qwen2")
    ids = arrays(content["inputs"])["input_ids"]
    batch, length = ids.shape
    whole = results(model.graph(batch=batch, sequence=length), input_ids=ids)["logits"]
    step = results(model.graph(batch=batch, sequence=4, cache=True), input_ids=ids[:, :4])
    np.testing.assert_allclose(step["logits"], whole[:, :4], atol=1e-5)
    decode = model.graph(batch="batch", sequence=1, past="past", cache=True)
    for i in range(4, length):
        cache = {f"past_{n}": a for n, a in step.items() if n != "logits"}
        step = results(decode, input_ids=ids[:, i : i + 1], **cache)
        np.testing.assert_allclose(step["logits"][:, 0], whole[:, i], atol=1e-5)
    assert step["key_0"].shape[:2] == (batch, length)


def test_a_mask_holds_for_the_cache_as_well(tmp_path: Path) -> None:
    model = load(folder_of(tmp_path, "mistral"))
    ids, mask = np.arange(4, 10, dtype=np.int32)[None], np.array([[0, 1, 1, 1, 0, 1]], np.int32)
    options = {"cache": True, "attention_mask": True}
    whole = results(model.graph(sequence=6, **options), input_ids=ids, attention_mask=mask)
    start = results(model.graph(sequence=3, **options), input_ids=ids[:, :3], attention_mask=mask[:, :3])
    cache = {f"past_{n}": a for n, a in start.items() if n != "logits"}
    graph = model.graph(sequence=3, past=3, **options)
    end = results(graph, input_ids=ids[:, 3:], attention_mask=mask, **cache)
    np.testing.assert_allclose(end["logits"], whole["logits"][:, 3:], atol=1e-5)


def test_the_last_token_alone(tmp_path: Path) -> None:
    model, ids = load(folder_of(tmp_path, "gemma2")), np.arange(10, dtype=np.int32).reshape(2, 5)
    whole = results(model.graph(batch=2, sequence=5), input_ids=ids)["logits"]
    last = results(model.graph(batch=2, sequence=5, last=True), input_ids=ids)["logits"]
    np.testing.assert_allclose(last, whole[:, -1:], atol=1e-6)
    symbolic = results(model.graph(batch=2, sequence="sequence", last=True), input_ids=ids)["logits"]
    np.testing.assert_allclose(symbolic, last, atol=1e-6)


def test_without_a_head_the_graph_ends_with_the_last_norm(tmp_path: Path) -> None:
    content = reference("llama")
    tensors = {n.removeprefix("model."): a for n, a in weights(content["tensors"]).items() if n != "lm_head.weight"}
    config = content["config"] | {"architectures": ["LlamaModel"]}
    graph = load(write_model(tmp_path / "base", config, tensors)).graph(sequence=3)
    assert [o.name for o in graph.outputs] == ["last_hidden_state"]
    with pytest.raises(Error, match=r"'lm_head.weight' \(f32\[40, 32\]\) is missing"):
        load(write_model(tmp_path / "whole", content["config"], tensors))


_WITH_STATES = (
    "qwen3",
    "llama4_chunks",
    "gemma3",
    "phi3",
    "phi3_long",
    "qwen2_moe",
    "olmo3",
    "gpt2",
    "falcon_new",
    "deepseek_v2",
)


@drawn("name", [*_WITH_STATES, "mamba", "mamba2", "qwen3_next"], of_each=4)
def test_with_states_a_text_comes_in_parts(tmp_path: Path, name: str) -> None:
    """Each part continues at `start`, in any entry point, and for each text of a batch."""
    model, ids = load(folder_of(tmp_path, name)), np.arange(12, dtype=np.int32).reshape(2, 6) * 5 % 40
    whole = results(model.graph(batch=2, sequence=6), input_ids=ids)["logits"]
    sizes: dict[str, Any] = {"batch": 2, "context": 8}
    program = rlx.Session().compile(
        {"first": model.graph(sequence=4, **sizes), "step": model.graph(sequence=1, **sizes)}
    )
    parts = [("first", 0, 4), ("step", 4, 5), ("step", 5, 6)]
    # A second text begins with zeros.
    for entry, start, end in [*parts, *parts]:
        starts = np.full(2, start, np.int32)
        (logits,) = program[entry].run({"input_ids": ids[:, start:end], "start": starts})
        np.testing.assert_allclose(logits, whole[:, start:end], atol=2e-5 * np.abs(whole).max())


# Sizes for which the heads of the cache divide into blocks: windows, and latent keys and values.
_WIDE_HEADS: dict[str, tuple[dict[str, Any], dict[str, list[int]]]] = {
    "gemma3": (
        {"head_dim": 32},
        {
            "q_norm": [32],
            "k_norm": [32],
            "q_proj": [128, 32],
            "k_proj": [64, 32],
            "v_proj": [64, 32],
            "o_proj": [32, 128],
        },
    ),
    "deepseek_v2": (
        {"kv_lora_rank": 64, "qk_rope_head_dim": 32, "qk_head_dim": 40, "head_dim": 32},
        {
            "kv_a_layernorm": [64],
            "kv_a_proj_with_mqa": [96, 32],
            "kv_b_proj": [56, 64],
            "q_b_proj": [160, 16],
        },
    ),
}


@pytest.mark.parametrize("name", _WIDE_HEADS)
def test_packed_states_are_rounded_as_keys_and_values_are(tmp_path: Path, name: str) -> None:
    """A text in parts has the logits of the graph without states that rounds keys and values to the same blocks."""
    changed, shapes = _WIDE_HEADS[name]
    content = reference(name)
    tensors: dict[str, list[int]] = dict(content["tensors"])
    tensors |= {key: shapes[part] for key in tensors if (part := key.split(".")[-2]) in shapes}
    model = load(write_model(tmp_path / name, content["config"] | changed, weights(tensors)))
    ids = np.arange(12, dtype=np.int32).reshape(2, 6) * 5 % 40
    exact, whole = (
        results(model.graph(batch=2, sequence=6, cache_dtype=kind), input_ids=ids)["logits"] for kind in ("f32", "q8_0")
    )
    size = np.abs(exact).max()
    assert 1e-4 * size < np.abs(whole - exact).max() < 0.08 * size
    sizes: dict[str, Any] = {"batch": 2, "context": 64, "cache_dtype": "q8_0"}
    sizes |= {"pages": 2, "page_length": 64} if name == "gemma3" else {}
    program = rlx.Session().compile(
        {"first": model.graph(sequence=4, **sizes), "step": model.graph(sequence=1, **sizes)}
    )
    pages = {"pages": np.array([[1], [0]], np.int32)} if name == "gemma3" else {}
    for entry, start, end in [("first", 0, 4), ("step", 4, 5), ("step", 5, 6)]:
        inputs = {"input_ids": ids[:, start:end], "start": np.full(2, start, np.int32)}
        (logits,) = program[entry].run(inputs | pages)
        # A number in the middle between two integers may be rounded to either.
        np.testing.assert_allclose(logits, whole[:, start:end], atol=2e-3 * size)


@pytest.mark.parametrize("name", ["gemma3", "deepseek_v2", "qwen3_next"])
def test_the_bytes_of_the_cache_are_those_of_its_states(tmp_path: Path, name: str) -> None:
    """Layers with a state instead of keys and values are not counted."""
    model = load(folder_of(tmp_path, name))
    for kind in ("f16", "f32"):
        arguments = model.graph(sequence=4, context=8, cache_dtype=kind).arguments
        caches = [a.shape for a in arguments if a.name.startswith(("key_", "value_"))]
        assert sum(int(np.prod(s.static)) * s.dtype.itemsize for s in caches) == 8 * model.config.cache_bytes(kind)


def test_heads_that_do_not_divide_into_blocks_have_no_packed_cache(tmp_path: Path) -> None:
    for name, lanes in (("qwen3", 16), ("deepseek_v2", 16)):
        with pytest.raises(UnsupportedError, match=f"blocks of 32 elements, into which the heads .* of {lanes} elem"):
            load(folder_of(tmp_path, name)).graph(context=8, cache_dtype="q8_0")


@pytest.mark.parametrize(("name", "option"), [("qwen3_next", "cache"), ("qwen3_next", "attention_mask")])
def test_recurrent_layers_have_no_such_option(tmp_path: Path, name: str, option: str) -> None:
    with pytest.raises(Error, match=f"'{option}' is not supported by models with recurrent layers"):
        load(folder_of(tmp_path, name)).graph(**{option: True})


def test_long_positions_depend_on_the_length(tmp_path: Path) -> None:
    """Texts longer than in the first training have other factors, with a symbolic length as well."""
    model, ids = load(folder_of(tmp_path, "phi3_short")), np.arange(12, dtype=np.int32)[None]
    symbolic = model.graph(sequence="sequence")
    for length in (8, 9):
        fixed = results(model.graph(sequence=length), input_ids=ids[:, :length])["logits"]
        np.testing.assert_allclose(results(symbolic, input_ids=ids[:, :length])["logits"], fixed, atol=1e-5)
    short, long = (results(model.graph(sequence=n), input_ids=ids[:, :n])["logits"][:, :8] for n in (8, 9))
    assert np.abs(short - long).max() > 1e-3
    # With states, the context decides.
    inputs = {"input_ids": ids[:, :8], "start": np.zeros(1, np.int32)}
    for context, expected in ((8, short), (16, long)):
        logits = results(model.graph(sequence=8, context=context), **inputs)["logits"]
        np.testing.assert_allclose(logits, expected, atol=1e-5)


@pytest.mark.parametrize(("name", "model_type"), [("gemma3", "gemma3"), ("llama4", "llama4")])
def test_the_text_model_of_a_model_with_images(tmp_path: Path, name: str, model_type: str) -> None:
    content = reference(name)
    tensors = weights(content["tensors"])
    text = load(write_model(tmp_path / "text", content["config"], tensors))
    renamed = {f"language_model.{name}": array for name, array in tensors.items()}
    renamed["vision_tower.embeddings.weight"] = np.zeros((2, 3), np.float32)
    config = {"model_type": model_type, "text_config": content["config"]}
    whole = load(write_model(tmp_path / "whole", config, renamed))
    ids = np.arange(5, dtype=np.int32)[None]
    first, second = (results(model.graph(sequence=5), input_ids=ids)["logits"] for model in (text, whole))
    np.testing.assert_array_equal(first, second)
    assert whole.unused == ("vision_tower.embeddings.weight",)


@pytest.mark.parametrize(("chunk", "has_pages"), [(64, True), (6, True), (6, False), (200, True)])
def test_chunks_of_a_cache(tmp_path: Path, chunk: int, has_pages: bool) -> None:
    """Tokens attend to their chunk only, whether it is a number of pages or not, and longer than the context or not."""
    content = reference("llama4_chunks")
    config = content["config"] | {"attention_chunk_size": chunk, "max_position_embeddings": 256}
    model = load(write_model(tmp_path / "model", config, weights(content["tensors"])))
    ids = (np.arange(2 * 140, dtype=np.int32).reshape(2, 140) * 7) % 40
    whole = results(model.graph(batch=2, sequence=140), input_ids=ids)["logits"]
    sizes: dict[str, Any] = {"batch": 2, "context": 192}
    inputs: dict[str, np.ndarray] = {}
    if has_pages:
        sizes |= {"pages": 7, "page_length": 64}
        inputs = {"pages": np.array([[5, 0, 3], [2, 6, 1]], np.int32)}
    graphs = {n: model.graph(sequence=length, **sizes) for n, length in {"first": 32, "part": 12, "step": 1}.items()}
    program = rlx.Session().compile(graphs)
    begin = 0
    for entry, length in [("first", 32), ("first", 32), ("first", 32), ("part", 12), *[("step", 1)] * 22]:
        inputs |= {"input_ids": ids[:, begin : begin + length], "start": np.full(2, begin, np.int32)}
        (logits,) = program[entry].run(inputs)
        expected = whole[:, begin : begin + length]
        np.testing.assert_allclose(logits, expected, atol=5e-5 * np.abs(whole).max(), err_msg=f"{entry} at {begin}")
        begin += length


def test_chunks_of_llama_4_in_gguf_files(tmp_path: Path) -> None:
    """Files have no keys for sizes that all models share. The model with 128 experts does not normalise queries."""
    content = reference("llama4")
    tensors = weights(content["tensors"])
    config = load(write_gguf(tmp_path / "a.gguf", content["config"], tensors, lambda values, arrays: None)).config
    folder = load(folder_of(tmp_path, "llama4")).config
    assert config.chunk(0) == folder.chunk(0) == 8192 and config.chunk(3) is None
    assert config.query_temperature == folder.query_temperature and config.query_temperature.floor == 8192
    assert config.unrotated_layers == folder.unrotated_layers == {3}
    assert config.experts == folder.experts and config.experts.dense_layers == {0, 2}
    assert config.qk_norm == folder.qk_norm == "rotated" and config.rope_style == folder.rope_style == "gptj"


@pytest.mark.parametrize("moe_layers", [[4], ["0"], 3, [-1]])
def test_layers_with_experts_are_checked(tmp_path: Path, moe_layers: Any) -> None:
    content = reference("llama4")
    config = content["config"] | {"moe_layers": moe_layers}
    with pytest.raises(Error, match="'moe_layers' must be a list of layers from 0 to 3"):
        load(write_model(tmp_path / "model", config, weights(content["tensors"])))


@pytest.mark.parametrize("name", ["mixtral", "qwen3_moe"])
def test_narrow_experts(tmp_path: Path, name: str) -> None:
    """Experts in f16 are widened one at a time. Symbolic lengths have other blocks of rows."""
    content = reference(name)
    narrow = {
        name: array.astype(np.float16) if ".experts." in name else array
        for name, array in weights(content["tensors"]).items()
    }
    rounded = {name: array.astype(np.float32) for name, array in narrow.items()}
    ids = arrays(content["inputs"])["input_ids"]
    graphs = [
        load(write_model(tmp_path / kind, content["config"], tensors)).graph(batch=2, sequence=length)
        for kind, tensors, length in (("a", rounded, 7), ("b", narrow, 7), ("c", narrow, "sequence"))
    ]
    expected, *others = (results(graph, input_ids=ids)["logits"] for graph in graphs)
    for logits in others:
        np.testing.assert_allclose(logits, expected, atol=2e-6 * np.abs(expected).max())

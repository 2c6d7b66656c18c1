"""Decoders without references: caches of keys and values, masks, the last token, and models without a head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import Error
from rlx.models import load
from tests.models.references import arrays, reference, weights, write_model


def folder_of(path: Path, name: str) -> Path:
    """Write the folder of a reference."""
    content = reference(name)
    return write_model(path / name, content["config"], weights(content["tensors"]))


def results(graph: Any, **inputs: np.ndarray) -> dict[str, np.ndarray]:
    return {o.name: a for o, a in zip(graph.outputs, rlx.evaluate(graph, inputs), strict=True)}


@pytest.mark.parametrize("name", ["llama", "qwen2", "gemma2"])
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

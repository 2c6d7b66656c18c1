"""Language models in folders that other tools have quantised."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import rlx
from rlx.weights import PackedBlocks
from tests.models.quantized_files import FOLDERS, folder_pair

_PROMPT = "the sea"


def _write_tokenizer(folder: Path) -> None:
    """Write a tokenizer of bytes."""
    tokenizers = pytest.importorskip("tokenizers")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate(["<s>", "</s>", *alphabet])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))


@pytest.mark.parametrize("name", ["gptq_order", "mlx_4"])
def test_logits_and_texts(tmp_path: Path, name: str) -> None:
    """Logits are those of the model with weights in f32. Weights are packed."""
    quantised, plain = folder_pair(tmp_path, name)
    for folder in (quantised, plain):
        _write_tokenizer(folder)
    with rlx.llm.load(quantised, activations="f32", cache="f32", threads=1) as model:
        tokens = model.tokenizer.encode(_PROMPT)
        graph = rlx.models.load(plain).graph(sequence=len(tokens))
        (expected,) = rlx.evaluate(graph, {"input_ids": np.array([tokens], np.int32)})
        got = model.logits(tokens)
        assert np.abs(got - expected[0]).max() <= 1e-5 * np.abs(expected).max()
        greedy = model.generate(tokens, max_tokens=1, ignore_eos=True).tokens
        assert greedy == [int(got[-1].argmax())]
        weight = model.weights["model.layers.0.mlp.gate_proj.weight"]
        if name != "gptq_order":
            assert isinstance(weight.encoding, PackedBlocks) and weight.encoding.name == FOLDERS[name].scheme
        assert weight.nbytes < 0.4 * 4 * 256 * 64


def test_rounded_activations(tmp_path: Path) -> None:
    quantised, _ = folder_pair(tmp_path, "mlx_8")
    _write_tokenizer(quantised)
    graph = rlx.models.load(quantised).graph(sequence=len(_PROMPT))
    with rlx.llm.load(quantised, threads=1) as model:
        tokens = model.tokenizer.encode(_PROMPT)
        (expected,) = rlx.evaluate(graph, {"input_ids": np.array([tokens], np.int32)})
        difference = np.abs(model.logits(tokens) - expected[0]).max() / np.abs(expected).max()
        assert 0 < difference < 0.1

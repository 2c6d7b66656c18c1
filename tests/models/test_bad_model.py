"""Directories that are not a model: opening one is an error with the reason."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from rlx import Error
from rlx.models.embedder import SentenceEmbedder
from tests.models.tiny_bert import CONFIG

SIZES = [name for name, value in CONFIG.items() if type(value) is int]


@pytest.fixture
def directory(tiny_directory: Path, tmp_path: Path) -> Path:
    """Return a copy of the model, for damage."""
    return shutil.copytree(tiny_directory, tmp_path / "model")


def write_config(directory: Path, **changes: Any) -> None:
    values = {name: value for name, value in (CONFIG | changes).items() if value is not Ellipsis}
    (directory / "config.json").write_text(json.dumps(values))


def change_weights(directory: Path, changes: dict[str, np.ndarray | None]) -> None:
    path = directory / "model.safetensors"
    tensors = load_file(path) | changes
    save_file({name: array for name, array in tensors.items() if array is not None}, path)


def refusal(directory: Path, **options: Any) -> str:
    """Return the message of the error for the model."""
    with pytest.raises(Error) as caught:
        SentenceEmbedder(directory, **options)
    return str(caught.value)


def test_no_directory(tmp_path: Path) -> None:
    assert refusal(tmp_path / "nothing") == f"no such directory: {tmp_path / 'nothing'}"


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_missing_file(directory: Path, name: str) -> None:
    (directory / name).unlink()
    assert refusal(directory) == f"no such file: {directory / name}"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot read"),
        (b"{", "cannot read"),
        (b"\xff\xfe\x00", "cannot read"),
        (b"[" * 100_000, "cannot read"),
        (b"[]", "expected an object with a 'model_type', got list"),
        (b"{}", "a model of type None; known are "),
        (b'{"model_type": "gpt_bigcode"}', "a model of type 'gpt_bigcode'; known are "),
        (b'{"model_type": ["bert"]}', "a model of type ['bert']; known are "),
    ],
)
def test_a_config_that_is_none(directory: Path, content: bytes, message: str) -> None:
    (directory / "config.json").write_bytes(content)
    assert message in refusal(directory)


@pytest.mark.parametrize("field", SIZES)
@pytest.mark.parametrize("value", [0, -3, 1.5, "many", True, None, [2]])
def test_a_size_that_is_no_positive_integer(directory: Path, field: str, value: Any) -> None:
    write_config(directory, **{field: value})
    assert f"config.json: '{field}' must be a positive integer, got {value!r}" in refusal(directory)


@pytest.mark.parametrize("field", [name for name in SIZES if name != "type_vocab_size"])
def test_a_missing_size(directory: Path, field: str) -> None:
    write_config(directory, **{field: ...})
    assert f"config.json has no '{field}'" in refusal(directory)


@pytest.mark.parametrize("field", SIZES)
def test_a_size_that_is_not_that_of_the_weights(directory: Path, field: str) -> None:
    # 3 heads do not divide the width. Every other size is known from the shapes of the tensors.
    write_config(directory, **{field: 3 if field == "num_attention_heads" else CONFIG[field] * 2})
    message = refusal(directory)
    if field == "num_attention_heads":
        assert "32 lanes do not divide into 3 heads" in message
    else:
        assert "model.safetensors does not fit its configuration" in message


def test_fewer_layers_than_the_checkpoint_has(directory: Path) -> None:
    write_config(directory, num_hidden_layers=1)
    assert "there is a layer 'encoder.layer.1', but the configuration has 1" in refusal(directory)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden_act", "swish2"),
        ("hidden_act", 3),
        ("hidden_act", ["gelu"]),
        ("layer_norm_eps", "small"),
        ("layer_norm_eps", -1e-5),
        ("layer_norm_eps", float("nan")),
        ("layer_norm_eps", True),
        ("position_embedding_type", "relative_key"),
        ("position_embedding_type", 3),
    ],
)
def test_a_field_of_another_kind(directory: Path, field: str, value: Any) -> None:
    write_config(directory, **{field: value})
    message = refusal(directory)
    assert field in message
    assert repr(value) in message


def test_absent_optional_fields_have_defaults(directory: Path) -> None:
    names = ("type_vocab_size", "hidden_act", "layer_norm_eps", "position_embedding_type")
    write_config(directory, **dict.fromkeys(names, ...))
    config = SentenceEmbedder(directory).config
    assert (config.type_vocab_size, config.hidden_act, config.layer_norm_eps) == (2, "gelu", 1e-12)


@pytest.mark.parametrize("kept", [0, 5, 8, 100, 0.5, 0.999])
def test_truncated_weights(directory: Path, kept: float) -> None:
    path = directory / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[: kept if type(kept) is int else int(len(data) * kept)])
    assert "model.safetensors" in refusal(directory)


def test_a_missing_tensor(directory: Path) -> None:
    change_weights(directory, {"encoder.layer.1.output.dense.bias": None})
    assert "'encoder.layer.1.output.dense.bias' (f32[32]) is missing" in refusal(directory)


def test_a_tensor_of_another_shape(directory: Path) -> None:
    change_weights(directory, {"encoder.layer.0.output.dense.weight": np.zeros((64, 32), np.float32)})
    message = refusal(directory)
    assert "'encoder.layer.0.output.dense.weight' is float32[64, 32], expected f32[32, 64]" in message


def test_a_tensor_of_another_dtype(directory: Path) -> None:
    change_weights(directory, {"embeddings.LayerNorm.bias": np.zeros(32, np.int8)})
    assert "'embeddings.LayerNorm.bias' is int8[32], expected f32[32]" in refusal(directory)


def test_nan_weights(directory: Path) -> None:
    change_weights(directory, {"embeddings.LayerNorm.bias": np.full(32, np.nan, np.float32)})
    message = refusal(directory)
    assert "embeddings.LayerNorm.bias" in message
    assert "32 NaN values" in message


def test_tensors_that_the_encoder_does_not_use_are_no_mistake(directory: Path) -> None:
    pooler = {"pooler.dense.weight": np.zeros((32, 32), np.float32), "pooler.dense.bias": np.zeros(32, np.float32)}
    change_weights(directory, {**pooler, "classifier.weight": np.zeros((2, 32), np.float32)})
    assert "pooler.dense.weight" not in SentenceEmbedder(directory).weights


@pytest.mark.parametrize("content", [b"", b"{}", b"[1, 2]", b"\x80\x81", b'{"version": "1.0", "model": {}}'])
def test_a_tokenizer_that_is_none(directory: Path, content: bytes) -> None:
    (directory / "tokenizer.json").write_bytes(content)
    assert f"cannot read {directory / 'tokenizer.json'}" in refusal(directory)


def test_a_tokenizer_with_more_words_than_the_model(directory: Path) -> None:
    path = directory / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    tokenizer["model"]["vocab"]["zebra"] = 40
    path.write_text(json.dumps(tokenizer))
    assert "token ids up to 40, but config.json says vocab_size 40" in refusal(directory)


@pytest.mark.parametrize("length", [0, -1, 17, 2.5, "long"])
def test_a_max_length_that_the_model_does_not_have(directory: Path, length: Any) -> None:
    assert "max_length must be an integer from 1 to the model's 16 positions" in refusal(directory, max_length=length)


@pytest.mark.parametrize("content", ["[]", "{", '{"max_seq_length": 99}'])
def test_a_damaged_sentence_bert_config(directory: Path, content: str) -> None:
    (directory / "sentence_bert_config.json").write_text(content)
    assert refusal(directory)

"""Folders that `rlx.models.load` refuses, and older or unusual forms that it accepts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import Error
from rlx.ir.dtype import DTYPES
from rlx.models import load
from rlx.weights.safetensors import write
from tests.models.references import reference, weights, write_model

Tensors = dict[str, np.ndarray]


def folder_of(
    path: Path, name: str = "bert", change: Callable[[Tensors], Tensors] | None = None, files: int = 1, **config: Any
) -> Path:
    """Write the folder of a reference with some changes; `...` removes a field."""
    content = reference(name)
    tensors = weights(content["tensors"])
    fields = {n: v for n, v in (content["config"] | config).items() if v is not Ellipsis}
    return write_model(path / "model", fields, change(tensors) if change else tensors, files)


def refusal(folder: Any) -> str:
    """Return the message of the error for a folder."""
    with pytest.raises(Error) as caught:
        load(folder)
    return str(caught.value)


def hidden(folder: Path) -> np.ndarray:
    graph = load(folder).graph(sequence=3)
    inputs = {a.name: np.ones((1, 3), np.int32) for a in graph.inputs}
    return rlx.evaluate(graph, inputs)[0]


def test_an_unknown_type_lists_the_known_ones(tmp_path: Path) -> None:
    message = refusal(folder_of(tmp_path, model_type="gpt_bigcode"))
    assert "of type 'gpt_bigcode'; known are " in message
    assert "bert, camembert, deepseek_v2" in message


def test_no_folder(tmp_path: Path) -> None:
    for folder in (tmp_path / "nothing", "org/name-on-a-hub", "x" * 100_000):
        assert "no such directory" in refusal(folder)
    for value in (None, 3, b"model", ["a"], {}):
        assert "expected the path of a folder" in refusal(value)
    assert "config.json" in refusal(tmp_path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5"])
def test_weights_in_other_formats(tmp_path: Path, name: str) -> None:
    folder = folder_of(tmp_path, "bert_masked_lm")
    (folder / name).touch()
    load(folder)
    (folder / "model.safetensors").unlink()
    option = ", from_tf=True" if name.startswith("tf") else ""
    message = refusal(folder)
    assert f"has its weights in '{name}'" in message
    assert f"transformers.BertForMaskedLM.from_pretrained(path{option}).save_pretrained(path)" in message


def test_weights_of_an_unknown_method(tmp_path: Path) -> None:
    assert "'quant_method' 'hqq' are not supported" in refusal(
        folder_of(tmp_path, quantization_config={"quant_method": "hqq"})
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"embeddings.LayerNorm.bias": None}, "'embeddings.LayerNorm.bias' (f32[32]) is missing"),
        ({"pooler.dense.bias": None}, "'pooler.dense.bias' (f32[32]) is missing"),
        (
            {"pooler.dense.bias": np.zeros((2, 32), np.float32)},
            "'pooler.dense.bias' is float32[2, 32], expected f32[32]",
        ),
        ({"pooler.dense.bias": np.zeros(32, np.int32)}, "'pooler.dense.bias' is int32[32], expected f32[32]"),
        ({"encoder.layer.1.adapter": np.zeros(2, np.float32)}, "'encoder.layer.1.adapter' is no tensor of this model"),
        ({"encoder.layer.2.x": np.zeros(2, np.float32)}, "a layer 'encoder.layer.2', but the configuration has 2"),
    ],
)
def test_tensors_that_do_not_fit(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    merged = lambda tensors: {n: a for n, a in (tensors | change).items() if a is not None}  # noqa: E731
    assert message in refusal(folder_of(tmp_path, change=merged))


def test_extra_tensors_of_a_base_model_under_a_prefix(tmp_path: Path) -> None:
    extra = {"bert.encoder.layer.0.output.lora_A.weight": np.zeros((2, 2), np.float32)}
    message = refusal(folder_of(tmp_path, "bert_masked_lm", lambda tensors: tensors | extra))
    assert "'bert.encoder.layer.0.output.lora_A.weight' is no tensor of this model" in message


def test_old_names_and_buffers(tmp_path: Path) -> None:
    def older(tensors: Tensors) -> Tensors:
        renamed = {
            n.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): a for n, a in tensors.items()
        }
        return renamed | {"embeddings.position_ids": np.arange(24)[None]}

    new, old = folder_of(tmp_path / "new"), folder_of(tmp_path / "old", change=older)
    np.testing.assert_array_equal(hidden(old), hidden(new))


@pytest.mark.parametrize("kind", [d for d in DTYPES if d.is_float and d.bits < 32], ids=str)
def test_narrow_floats_stay_so_and_are_widened_in_the_graph(tmp_path: Path, kind: rlx.DType) -> None:
    def narrow(tensors: Tensors) -> Tensors:
        fitting = {n: np.abs(a) + 0.01 if kind is rlx.f8e8m0fnu else a for n, a in tensors.items()}
        return {n: a.astype(kind.numpy) for n, a in fitting.items()}

    rounded = lambda tensors: {n: a.astype(np.float32) for n, a in narrow(tensors).items()}  # noqa: E731
    folder = folder_of(tmp_path / "narrow")
    write(folder / "model.safetensors", narrow(weights(reference("bert")["tensors"])), {"format": "pt"})
    assert {w.dtype for w in load(folder).weights.values()} == {kind.numpy}
    found = hidden(folder)
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(found, hidden(folder_of(tmp_path / "floats", change=rounded)))


@pytest.mark.parametrize("kind", [d for d in DTYPES if not d.is_float or d.bits > 32], ids=str)
def test_dtypes_that_f32_does_not_hold_are_refused(tmp_path: Path, kind: rlx.DType) -> None:
    folder = folder_of(tmp_path)
    tensors = weights(reference("bert")["tensors"])
    write(folder / "model.safetensors", tensors | {"pooler.dense.bias": np.ones(32).astype(kind.numpy)}, {})
    assert f"'pooler.dense.bias' is {kind.numpy_name}[32], expected f32[32]" in refusal(folder)


def test_floats_of_8_bits_of_pytorch_are_compiled(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    tensors = {n: torch.from_numpy(a) for n, a in weights(reference("bert")["tensors"]).items()}
    narrow = {n: t.to(torch.float8_e4m3fn) if t.ndim == 2 else t for n, t in tensors.items()}
    folder = folder_of(tmp_path / "narrow")
    pytest.importorskip("safetensors.torch").save_file(narrow, folder / "model.safetensors")
    graph = load(folder).graph(sequence=3)
    assert {a.shape.dtype for a in graph.params} == {rlx.f32, rlx.f8e4m3fn}
    inputs = {a.name: np.ones((1, 3), np.int32) for a in graph.inputs}
    found = rlx.Session("cpu", threads=1).compile(graph).run(inputs)[0]
    wide = {n: t.to(torch.float32).numpy() for n, t in narrow.items()}
    np.testing.assert_allclose(found, hidden(folder_of(tmp_path / "wide", change=lambda _: wide)), rtol=2e-4, atol=2e-4)


def test_weights_are_mapped(tmp_path: Path) -> None:
    model = load(folder_of(tmp_path, files=2))
    graph = model.graph(sequence=4)
    assert set(graph.weights) == set(model.weights)
    for weight in model.weights.values():
        array = weight.numpy()
        assert not array.flags.owndata
        assert not array.flags.writeable


def change_index(folder: Path, change: Callable[[dict[str, str]], None]) -> None:
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    change(index["weight_map"])
    path.write_text(json.dumps(index))


@pytest.mark.parametrize("file", ["../outside.safetensors", "/etc/passwd", "sub/x.safetensors", "", "..", "a\\b", 3])
def test_an_index_that_leads_out_of_the_folder(tmp_path: Path, file: Any) -> None:
    folder = folder_of(tmp_path, files=2)
    change_index(folder, lambda places: places.update({"pooler.dense.bias": file}))
    assert "model.safetensors.index.json" in refusal(folder)


def test_an_index_that_names_what_is_not_there(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, files=2)
    change_index(folder, lambda places: places.update({"pooler.dense.bias": "model-00009-of-00002.safetensors"}))
    assert "no such file" in refusal(folder)


@pytest.mark.parametrize("kept", [0, 7, 100, 0.5, 0.999])
def test_truncated_files(tmp_path: Path, kept: float) -> None:
    folder = folder_of(tmp_path, files=2)
    path = folder / "model-00001-of-00002.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[: kept if type(kept) is int else int(len(data) * kept)])
    assert "model-00001-of-00002.safetensors" in refusal(folder)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"length": 3}, "graph has no size 'length'; a bert has batch=1, sequence=24"),
        ({"batches": 3}, "did you mean 'batch'"),
        ({"sequence": 0}, "'sequence' must be an integer of at least 1"),
        ({"sequence": 2.0}, "'sequence' must be an integer of at least 1"),
        ({"sequence": 25}, "25 tokens are more than the model's 24 positions"),
        ({"batch": "not a name"}, "not a name"),
    ],
)
def test_sizes_that_are_none(tmp_path: Path, sizes: dict[str, Any], message: str) -> None:
    with pytest.raises(Error) as caught:
        load(folder_of(tmp_path)).graph(**sizes)
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["bert", "roberta", "modernbert", "gpt2", "llama", "llama_sequence"])
def test_the_default_length_is_at_most_the_number_of_positions(tmp_path: Path, name: str) -> None:
    model = load(folder_of(tmp_path, name))
    (ids,) = (a for a in model.graph().inputs if a.name == "input_ids")
    assert ids.shape.dims == (1, model.sizes["sequence"]) == (1, min(128, model.config.max_length))


def test_sizes_may_be_symbols(tmp_path: Path) -> None:
    graph = load(folder_of(tmp_path, "roberta")).graph(batch="batch", sequence="sequence")
    inputs = {a.name: np.ones((2, 5), np.int32) for a in graph.inputs}
    assert rlx.evaluate(graph, inputs)[0].shape == (2, 5, 32)

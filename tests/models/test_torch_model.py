"""`rlx.models.load(…, fallback="torch")`: folders of other families, compared with the transformers package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.models import TorchModel, load

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

_SMALL = {
    "vocab_size": 40,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 64,
}
_SPEECH = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4, "num_mel_bins": 8}
_SPEECH |= {"decoder_attention_heads": 4, "encoder_ffn_dim": 37, "decoder_ffn_dim": 37, "vocab_size": 40}
_SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_SIDES = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "projection_dim": 16,
}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "OPTForCausalLM": (
        "OPTConfig",
        {**_SMALL, "ffn_dim": 37, "word_embed_proj_dim": 32},
        {"batch": "batch", "sequence": "sequence"},
    ),
    "ElectraForSequenceClassification": (
        "ElectraConfig",
        {**_SMALL, "embedding_size": 16, "num_labels": 3},
        {"sequence": "n"},
    ),
    "BlenderbotForConditionalGeneration": (
        "BlenderbotConfig",
        {**_SPEECH, **_SPECIAL, "max_position_embeddings": 20, "decoder_start_token_id": 1},
        {"decoder_sequence": 3},
    ),
    "WhisperForAudioClassification": (
        "WhisperConfig",
        {**_SPEECH, **_SPECIAL, "num_labels": 3, "max_source_positions": 10, "max_target_positions": 20},
        {},
    ),
    "CLIPModel": (
        "CLIPConfig",
        {
            "text_config": {**_SMALL, **_SPECIAL, "projection_dim": 16},
            "vision_config": {**_SIDES, "image_size": 16, "patch_size": 8},
            "projection_dim": 16,
        },
        {},
    ),
    "BertForMultipleChoice": ("BertConfig", _SMALL, {"choices": 3}),
}


def write(folder: Path, name: str) -> Any:
    """Write the folder of a model of transformers with random weights, and return the model."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    kind, fields, _ = CASES[name]
    torch.manual_seed(0)
    model = getattr(transformers, name)(getattr(transformers, kind)(**fields)).eval()
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("name", CASES)
def test_other_families(name: str, tmp_path: Path) -> None:
    module = write(tmp_path, name)
    with pytest.raises(rlx.UnsupportedError, match="known are") as caught:
        load(tmp_path)
    assert 'rlx.models.load(path, fallback="torch")' in str(caught.value)
    model = load(tmp_path, fallback="torch")
    assert isinstance(model, TorchModel)
    assert model.head == (None if name == "CLIPModel" else name[name.index("For") :])
    labels = {i: f"LABEL_{i}" for i in range(3)} if "Classification" in name else {}
    assert (dict(model.id2label), model.unused) == (labels, ())
    sizes: dict[str, Any] = {"batch": 2, **({"sequence": 5} if "sequence" in model.sizes else {}), **CASES[name][2]}
    graph = model.graph(**sizes)
    rng, given = np.random.default_rng(1), dict[str, np.ndarray]()
    for argument in graph.inputs:
        shape = tuple(d if type(d) is int else {"batch": 2}.get(str(d), 5) for d in argument.shape.dims)
        values = rng.integers(3, 40, shape) if argument.dtype.name == "i32" else rng.normal(size=shape)
        if argument.name == "attention_mask":
            values = np.where(np.arange(5) > 3, 0, np.ones(shape))
        if argument.name == "token_type_ids":
            values = values % 2
        given[argument.name] = values.astype(argument.dtype.numpy)
    with torch.no_grad():
        expected = module(**{n: torch.from_numpy(a) for n, a in given.items()})
    for output, array in zip(graph.outputs, rlx.evaluate(graph, given), strict=True):
        if output.name in expected:
            np.testing.assert_allclose(array, expected[output.name].numpy(), rtol=1e-4, atol=1e-5, err_msg=output.name)
    assert {output.name for output in graph.outputs} & {"logits", "logits_per_image"}


def test_known_families_are_not_loaded_by_transformers(tmp_path: Path) -> None:
    config = transformers.BertConfig(**_SMALL)
    transformers.BertForMaskedLM(config).save_pretrained(tmp_path)
    assert isinstance(load(tmp_path, fallback="torch"), rlx.models.PretrainedModel)
    with pytest.raises(rlx.Error, match="fallback must be None or 'torch', got 'jax'"):
        load(tmp_path, fallback="jax")  # type: ignore[call-overload]


def test_values_that_imply_another_computation(tmp_path: Path) -> None:
    config = transformers.GPT2Config(
        vocab_size=40, n_positions=24, n_embd=32, n_layer=2, n_head=4, scale_attn_by_inverse_layer_idx=True, **_SPECIAL
    )
    module = transformers.GPT2LMHeadModel(config).eval()
    module.save_pretrained(tmp_path)
    with pytest.raises(rlx.Error, match="scale_attn_by_inverse_layer_idx True is not supported"):
        load(tmp_path)
    graph = load(tmp_path, fallback="torch").graph(sequence=4)
    ids = np.array([[5, 6, 7, 8]], np.int32)
    with torch.no_grad():
        expected = module(input_ids=torch.from_numpy(ids)).logits.numpy()
    (found,) = rlx.evaluate(graph, {"input_ids": ids, "attention_mask": np.ones_like(ids)})
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_the_head_is_neither_lost_nor_made_up(tmp_path: Path) -> None:
    write(tmp_path, "ElectraForSequenceClassification")
    assert load(tmp_path, head=None, fallback="torch").unused == (
        *(f"classifier.{part}" for part in ("dense.bias", "dense.weight", "out_proj.bias", "out_proj.weight")),
    )
    with pytest.raises(
        rlx.Error, match=r"does not have all weights of ElectraForTokenClassification: 'classifier\.bias'"
    ):
        load(tmp_path, head="ForTokenClassification", fallback="torch")
    with pytest.raises(rlx.UnsupportedError, match="has no class 'ElectraForPoetry'"):
        load(tmp_path, head="ForPoetry", fallback="torch")
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({n: v for n, v in config.items() if n != "architectures"}))
    with pytest.raises(rlx.Error, match="names no class in 'architectures'"):
        load(tmp_path, fallback="torch")
    path.write_text(json.dumps(config | {"model_type": "no_such_type"}))
    with pytest.raises(rlx.Error, match="transformers cannot load"):
        load(tmp_path, head=None, fallback="torch")


def test_sizes(tmp_path: Path) -> None:
    write(tmp_path, "OPTForCausalLM")
    model = load(tmp_path, fallback="torch")
    assert dict(model.sizes) == {"batch": 1, "sequence": 64}
    with pytest.raises(rlx.Error, match=r"graph has no size 'sequenc'.*'sequence'"):
        model.graph(sequenc=3)
    for value in (0, -1, 1.5, None, True):
        with pytest.raises(rlx.Error, match="'sequence' must be an integer of at least 1 or the name of a symbol"):
            model.graph(sequence=value)


def anonymous() -> int:
    """Return the kilobytes of memory of this process that are not those of mapped files."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1])


def test_weights_stay_in_the_file(tmp_path: Path) -> None:
    fields = {**_SMALL, "hidden_size": 512, "word_embed_proj_dim": 512, "vocab_size": 40_000, "ffn_dim": 64}
    transformers.OPTForCausalLM(transformers.OPTConfig(**fields)).save_pretrained(tmp_path)
    size = (tmp_path / "model.safetensors").stat().st_size // 1024
    load(tmp_path, fallback="torch").graph(sequence=4)  # modules of the packages are imported
    before = anonymous()
    graph = load(tmp_path, fallback="torch").graph(sequence=4)
    assert anonymous() - before < size / 3
    assert graph.weights["model.decoder.embed_tokens.weight"].shape == (40_000, 512)


def test_modules_that_return_their_cache() -> None:
    config = transformers.GPT2Config(vocab_size=40, n_positions=24, n_embd=32, n_layer=1, n_head=4, **_SPECIAL)
    module, ids = transformers.GPT2LMHeadModel(config).eval(), torch.ones(1, 4, dtype=torch.long)
    with pytest.raises(rlx.Error, match=r"returns its keys and values \(DynamicCache\).*\n.*\n?.*'use_cache': False"):
        rlx.from_torch(module, (), {"input_ids": ids})
    graph = rlx.from_torch(module, (), {"input_ids": ids, "use_cache": False})
    assert [output.name for output in graph.outputs] == ["logits"]

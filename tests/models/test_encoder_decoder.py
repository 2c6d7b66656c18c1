"""Encoder–decoder models: both graphs, the cache and greedy texts, compared with the transformers package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.models import greedy_tokens, load
from rlx.models.relative_bias import distance_buckets
from tests.models.references import reference, weights, write_model

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

_T5 = {
    "vocab_size": 40,
    "d_model": 32,
    "d_kv": 6,
    "d_ff": 37,
    "num_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
}
_BART = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
}
_BART |= {"encoder_ffn_dim": 37, "decoder_ffn_dim": 41, "vocab_size": 40, "decoder_start_token_id": 1}
_BART |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_LONG = {"max_position_embeddings": 30, "forced_eos_token_id": None}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "t5": ("T5", {**_T5, "num_decoder_layers": 3}),
    "t5_gated": ("T5", {**_T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    "t5_near": ("T5", {**_T5, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 5}),
    "mt5": ("MT5", _T5),
    "bart": ("Bart", {**_BART, **_LONG, "scale_embedding": True}),
    "mbart": ("MBart", {**_BART, **_LONG}),
    "marian": ("Marian", {**_BART, "max_position_embeddings": 30, "activation_function": "silu"}),
    "pegasus": ("Pegasus", {**_BART, "max_position_embeddings": 30}),
    "whisper": ("Whisper", {**_BART, "max_source_positions": 10, "max_target_positions": 20, "num_mel_bins": 8}),
}
IDS = np.random.default_rng(1).integers(3, 40, (2, 6)).astype(np.int32)
MASK = np.array([[1] * 6, [1, 1, 1, 1, 0, 0]], np.int32)
SOUND = np.random.default_rng(2).normal(size=(2, 8, 20)).astype(np.float32)


def saved(name: str, folder: Path, **more: Any) -> Any:
    """Write the folder of a model of transformers with random weights, and return the model."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    kind, fields = CASES[name]
    config = getattr(transformers, f"{kind}Config")(**{**fields, **more})
    model = getattr(transformers, f"{kind}{'MTModel' if kind == 'Marian' else 'ForConditionalGeneration'}")(
        config
    ).eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        stored = [
            p for n, p in model.named_parameters() if "embed_positions" not in n or kind not in ("Marian", "Pegasus")
        ]
        for tensor in [*stored, *(b for n, b in model.named_buffers() if n == "final_logits_bias")]:
            tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.3)
    model.save_pretrained(folder)
    return model


def inputs_of(name: str) -> dict[str, np.ndarray]:
    return {"input_features": SOUND} if name == "whisper" else {"input_ids": IDS, "attention_mask": MASK}


def evaluated(graph: rlx.Graph, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return dict(zip([o.name for o in graph.outputs], rlx.evaluate(graph, inputs), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_both_graphs(name: str, tmp_path: Path) -> None:
    module, given = saved(name, tmp_path), inputs_of(name)
    model = load(tmp_path)
    assert (model.head, model.unused) == ("ForConditionalGeneration", ())
    tokens = np.random.default_rng(3).integers(3, 40, (2, 12)).astype(np.int32)
    with torch.no_grad():
        arrays = {n: torch.tensor(a, dtype=torch.long if a.dtype.kind == "i" else None) for n, a in given.items()}
        expected = module(**arrays, decoder_input_ids=torch.tensor(tokens, dtype=torch.long), use_cache=False)
    close = {"rtol": 0, "atol": 1e-5 * float(expected.logits.abs().max())}
    is_text = name != "whisper"
    states = evaluated(model.encoder_graph(batch=2, **({"sequence": 6} if is_text else {})), given)
    seen = MASK[:, :, None] if is_text else 1
    hidden = expected.encoder_last_hidden_state.numpy()
    np.testing.assert_allclose(states.pop("last_hidden_state") * seen, hidden * seen, **close)
    if is_text:
        states["encoder_attention_mask"] = MASK
    sizes: dict[str, Any] = {"batch": 2, "cache": True} | ({"encoder_sequence": 6} if is_text else {})
    whole = evaluated(model.graph(**sizes, sequence=12), {"decoder_input_ids": tokens, **states})
    np.testing.assert_allclose(whole["logits"], expected.logits.numpy(), **close)
    begin = evaluated(model.graph(**sizes, sequence=7), {"decoder_input_ids": tokens[:, :7], **states})
    past = {f"past_{n}": a for n, a in begin.items() if n != "logits"}
    later = model.graph(**sizes, sequence=5, past="past", last=True)
    end = evaluated(later, {"decoder_input_ids": tokens[:, 7:], **states, **past})
    np.testing.assert_allclose(end["logits"], expected.logits[:, -1:].numpy(), **close)
    np.testing.assert_allclose(end["key_1"], whole["key_1"], **close)


def generated(module: Any, given: dict[str, np.ndarray], count: int) -> np.ndarray:
    """Return the tokens that transformers generates, with the first one. Its Whisper leaves it out."""
    arrays = {n: torch.tensor(a, dtype=torch.long if a.dtype.kind == "i" else None) for n, a in given.items()}
    with torch.no_grad():
        tokens = module.generate(**arrays, max_new_tokens=count, do_sample=False, num_beams=1).numpy()
    return np.pad(tokens, [(0, 0), (1, 0)], constant_values=1) if "input_features" in given else tokens


@pytest.mark.parametrize("name", ["t5", pytest.param("whisper", marks=pytest.mark.slow)])
def test_greedy_texts(name: str, tmp_path: Path) -> None:
    # In transformers, the cache of a T5 has the layers of the encoder.
    few = {"num_layers": 1} if name == "t5" else {"encoder_layers": 1, "decoder_layers": 1}
    module, given = saved(name, tmp_path, num_decoder_layers=None, **few), inputs_of(name)
    expected = generated(module, given, 6)
    found = greedy_tokens(load(tmp_path), given, max_new_tokens=6)
    np.testing.assert_array_equal(found[:, : expected.shape[1]], expected)
    if name == "t5":
        # The first row ends, and the second one goes on.
        end = int(next(token for token in found[0, 1:] if token not in found[1, 1:4]))
        path = tmp_path / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"eos_token_id": end, "pad_token_id": 7}))
        module.generation_config.eos_token_id, module.generation_config.pad_token_id = end, 7
        again = greedy_tokens(load(tmp_path), given, max_new_tokens=6)
        np.testing.assert_array_equal(again, generated(module, given, 6))
        assert 7 in again[0]


def test_arguments_of_greedy_texts(tmp_path: Path) -> None:
    saved("t5", tmp_path)
    model = load(tmp_path)
    for wrong in (
        {},
        {"input_ids": IDS, "labels": IDS},
        {"input_ids": IDS[0]},
        {"input_ids": IDS, "attention_mask": MASK[:1]},
    ):
        with pytest.raises(rlx.Error, match=r"inputs must have|must have 2 axes|must have the shape"):
            greedy_tokens(model, wrong)
    with pytest.raises(rlx.Error, match="max_new_tokens must be a positive integer"):
        greedy_tokens(model, inputs_of("t5"), max_new_tokens=0)


def test_models_without_an_encoder(tmp_path: Path) -> None:
    content = reference("llama")
    model = load(write_model(tmp_path, content["config"], weights(content["tensors"])))
    with pytest.raises(rlx.UnsupportedError, match="a llama has no separate encoder"):
        model.encoder_graph()
    with pytest.raises(rlx.UnsupportedError, match="greedy_tokens takes an encoder–decoder model"):
        greedy_tokens(model, {"input_ids": IDS})


def test_folders_that_do_not_fit(tmp_path: Path) -> None:
    saved("bart", tmp_path)
    with pytest.raises(rlx.Error, match="31 tokens are more than the model's 30 positions"):
        load(tmp_path).graph(sequence=31)
    with pytest.raises(rlx.Error, match="graph has no size 'past'"):
        load(tmp_path).encoder_graph(past=3)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"architectures": ["BartForSequenceClassification"]}))
    with pytest.raises(
        rlx.UnsupportedError, match="whose head 'ForSequenceClassification' is not supported for a bart"
    ):
        load(tmp_path)
    path.write_text(json.dumps(config | {"encoder_layers": 3}))
    with pytest.raises(rlx.Error, match=r"'encoder.layers.2.self_attn.q_proj.weight' .* is missing"):
        load(tmp_path)
    path.write_text(json.dumps(config | {"decoder_layers": 1}))
    with pytest.raises(rlx.Error, match=r"there is a layer 'decoder.layers.1'"):
        load(tmp_path)
    base = json.dumps(config | {"architectures": ["BartModel"]})
    path.write_text(base)
    assert [o.name for o in load(tmp_path).graph().outputs] == ["last_hidden_state"]


@pytest.mark.parametrize(
    ("count", "farthest", "is_causal"), [(32, 128, True), (32, 128, False), (8, 5, True), (16, 64, False)]
)
def test_buckets(count: int, farthest: int, is_causal: bool) -> None:
    attention = transformers.models.t5.modeling_t5.T5Attention
    distance = torch.arange(-farthest, farthest + 1)
    expected = attention._relative_position_bucket(distance, not is_causal, count, farthest)
    np.testing.assert_array_equal(distance_buckets(count, farthest, is_causal=is_causal), expected.numpy())

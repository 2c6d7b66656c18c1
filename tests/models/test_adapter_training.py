"""Adapters that are trained: the update of a step, the files, and the merged weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.models import TrainableAdapter, load, new_adapter
from rlx.models.adapters import with_adapters
from tests.models.gguf_files import write_gguf
from tests.models.references import reference, weights, write_model
from tests.models.test_gguf import unchanged

_LAYERS = ["q_proj", "k_proj", "v_proj", "o_proj", "layers.0.mlp.down_proj"]


def _model(path: Path, name: str = "llama") -> rlx.models.PretrainedModel:
    content = reference(name)
    return load(write_model(path / name, content["config"], weights(content["tensors"])))


def _values(adapter: TrainableAdapter, seed: int) -> dict[str, np.ndarray]:
    """Return random values of the adapter, as if it had been trained."""
    rng = np.random.default_rng(seed)
    shapes = {a.name: a.shape.static for a in adapter.model.graph().params}
    return {name: rng.normal(0, 0.2, shapes[name]).astype(np.float32) for name in adapter.params}


def _logits(model: rlx.models.PretrainedModel, params: dict[str, np.ndarray] | None = None) -> np.ndarray:
    ids = np.array([[3, 1, 4, 1, 5, 9, 2, 6]], np.int32)
    graph = model.graph(batch=1, sequence=8)
    return rlx.evaluate(graph, {"input_ids": ids, **({} if params is None else params)})[0]


def _merged(adapter: TrainableAdapter, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the changed weights, by the definition, in f64."""
    result = {}
    for layer in adapter.layers:
        down, up = (values[f"{layer}.lora0.{part}"].astype(np.float64) for part in ("down", "up"))
        result[f"{layer}.weight"] = (
            adapter.model.weights[f"{layer}.weight"].numpy() + adapter.alpha / adapter.rank * up @ down
        )
    return result


@pytest.mark.parametrize("name", ["llama", "smollm3", "qwen3", "granite", "gemma"])
def test_files_have_the_values(tmp_path: Path, name: str, seed: int) -> None:
    """A folder and a GGUF file have the effect of the parameters, on the model in a folder and in a GGUF file."""
    content, model = reference(name), _model(tmp_path, name)
    adapter = new_adapter(model, rank=3, alpha=4.5, layers=_LAYERS)
    assert np.array_equal(_logits(adapter.model), _logits(model))  # at first it has no effect
    values = _values(adapter, seed)
    expected = _logits(adapter.model, values)
    assert np.abs(expected - _logits(model)).max() > 0.05 * np.abs(expected).max()
    stored = load(write_gguf(tmp_path / "m.gguf", content["config"], weights(content["tensors"]), unchanged))
    for path in (tmp_path / "adapter", tmp_path / "adapter.gguf"):
        adapter.save(path, values)
        adapter.save(path, values)  # it replaces the files
        for base in (model, stored):
            got = _logits(with_adapters(base, path))
            assert np.abs(got - expected).max() < 1e-5 * np.abs(expected).max()


def test_adapters_of_gguf_files(tmp_path: Path, seed: int) -> None:
    content = reference("llama")
    model = load(write_gguf(tmp_path / "m.gguf", content["config"], weights(content["tensors"]), unchanged))
    adapter = new_adapter(model, layers=_LAYERS)
    assert (adapter.rank, adapter.alpha) == (8, 16.0)
    values = _values(adapter, seed)
    adapter.save(tmp_path / "a.gguf", values)
    expected = _logits(adapter.model, values)
    assert np.abs(_logits(with_adapters(model, tmp_path / "a.gguf")) - expected).max() < 1e-5 * np.abs(expected).max()
    with pytest.raises(rlx.UnsupportedError, match=r"give a name with \.gguf"):
        adapter.save(tmp_path / "a", values)


def test_training_changes_only_the_adapter(tmp_path: Path) -> None:
    model = _model(tmp_path)
    adapter = new_adapter(model, rank=2, layers=["q_proj", "up_proj"], seed=5)
    again = new_adapter(model, rank=2, layers=["q_proj", "up_proj"], seed=5)
    g = adapter.model.graph(batch=1, sequence=8)
    initial = {a.name: np.asarray(g.weights[a.name]) for a in g.params}
    assert all(np.array_equal(initial[n], np.asarray(again.model.graph().weights[n])) for n in adapter.params)
    ids = np.array([[3, 1, 4, 1, 5, 9, 2, 6]], np.int32)
    losses = g.softmax_cross_entropy_with_logits(g.output_tensors[0], g.input("labels", (1, 8), "i32"))
    g.set_outputs({"loss": g.mean(losses)})
    step = rlx.train.TrainStep(g, rlx.train.Adam(0.02), wrt=adapter.params, device="numpy")
    batch = {"input_ids": ids, "labels": np.roll(ids, -1, 1)}
    first = step(batch)["loss"]
    for _ in range(6):
        last = step(batch)["loss"]
    assert last < first - 0.05
    params = step.params()
    changed = {name for name, value in params.items() if name in initial and not np.array_equal(value, initial[name])}
    assert changed == set(adapter.params)
    adapter.save(tmp_path / "a", params)
    logits = _logits(with_adapters(model, tmp_path / "a"))[0].astype(np.float64)
    logits -= logits.max(1, keepdims=True)
    exact = np.log(np.exp(logits).sum(1)) - logits[np.arange(8), batch["labels"][0]]
    assert step.evaluate([batch])["loss"] == pytest.approx(exact.mean(), rel=1e-5)


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_merged_weights(tmp_path: Path, name: str, seed: int) -> None:
    model = _model(tmp_path, name)
    adapter = new_adapter(model, rank=3, layers=_LAYERS)
    values = _values(adapter, seed)
    adapter.save(tmp_path / "a", values)
    merged = with_adapters(model, [(tmp_path / "a", 0.5), (tmp_path / "a", 0.5)]).merged_weights()
    expected = _merged(adapter, values)
    assert merged.keys() == expected.keys()
    for layer, weight in merged.items():
        assert weight.dtype == np.float32 and weight.shape == expected[layer].shape
        np.testing.assert_allclose(weight.numpy(), expected[layer], atol=1e-6)


def test_embeddings_are_merged(tmp_path: Path, seed: int) -> None:
    content, rng = reference("llama"), np.random.default_rng(seed)
    table = weights(content["tensors"])["model.embed_tokens.weight"]
    a, b = (rng.normal(0, 0.3, s).astype(np.float32) for s in ((table.shape[0], 3), (table.shape[1], 3)))
    kind = {"general.type": "adapter", "general.architecture": "llama", "adapter.type": "lora"}
    rlx.weights.save_gguf(tmp_path / "a.gguf", {"token_embd.weight.lora_a": a, "token_embd.weight.lora_b": b}, kind)
    (merged,) = with_adapters(_model(tmp_path), tmp_path / "a.gguf").merged_weights().values()
    np.testing.assert_allclose(merged.numpy(), table + a @ b.T, atol=1e-5)
    kind["general.architecture"] = "gemma"
    width = weights(reference("gemma")["tensors"])["model.embed_tokens.weight"].shape
    tensors = {f"token_embd.weight.lora_{p}": np.ones((n, 3), np.float32) for p, n in zip("ab", width, strict=True)}
    rlx.weights.save_gguf(tmp_path / "b.gguf", tensors, kind)
    with pytest.raises(rlx.UnsupportedError, match="share a table"):
        with_adapters(_model(tmp_path, "gemma"), tmp_path / "b.gguf").merged_weights()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 0}, "rank must be an integer from 1"),
        ({"rank": True}, "rank must be an integer from 1"),
        ({"alpha": 0}, "alpha must be a positive number"),
        ({"alpha": float("nan")}, "alpha must be a positive number"),
        ({"alpha": 10**400}, "alpha must be a positive number"),
        ({"alpha": 1e39}, "alpha must be a positive number"),
        ({"alpha": 1e-39}, "alpha must be a positive number"),
        ({"alpha": "8"}, "alpha must be a positive number"),
        ({"seed": -1}, "seed must be an integer"),
        ({"layers": "q_proj"}, "layers must be a list"),
        ({"layers": []}, "layers must be a list"),
        ({"layers": ["proj"]}, "'proj' is the end of no matrix; known are .*q_proj"),
        ({"layers": ["q_proj", 3]}, "3 is the end of no matrix"),
        ({"layers": ["embed_tokens"]}, "'embed_tokens' is the end of no matrix"),
    ],
)
def test_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(rlx.Error, match=message):
        new_adapter(_model(tmp_path), **options)


def test_models_and_values_that_do_not_fit(tmp_path: Path, seed: int) -> None:
    with pytest.raises(rlx.Error, match=r"takes a model of rlx\.models\.load, got 'm'"):
        new_adapter("m")  # type: ignore[arg-type]
    with pytest.raises(rlx.UnsupportedError, match=r"is a part of 'model\.layers\.0\.self_attn\.qkv_proj"):
        new_adapter(_model(tmp_path, "phi3"))
    adapter = new_adapter(_model(tmp_path))
    values = _values(adapter, seed)
    name = adapter.params[0]
    for changed, message in (
        ({}, f"params has no '{name}'"),
        (values | {name: values[name][:, 1:]}, f"'{name}' must have the shape"),
        (values | {name: "abc"}, f"'{name}'"),
        (values | {name: values[name] + 1j}, f"'{name}' must be an array of real numbers, got complex"),
        (values | {name: values[name] > 0}, f"'{name}' must be an array of real numbers, got bool"),
        (values | {name: np.full_like(values[name], np.nan)}, f"'{name}' has values that are not finite"),
        (values | {name: np.full(values[name].shape, -1e39)}, f"'{name}' has values that are not finite"),
        (7, "params must be a mapping"),
    ):
        for path in (tmp_path / "a", tmp_path / "a.gguf"):
            with pytest.raises(rlx.Error, match=message):
                adapter.save(path, changed)  # type: ignore[arg-type]
            assert not path.exists()
    with pytest.raises(rlx.Error, match="cannot write"):
        adapter.save(tmp_path / "none" / "a", values)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("alpha", [float(np.finfo(np.float32).max), float(np.finfo(np.float32).smallest_normal)])
def test_extreme_factors_are_read(tmp_path: Path, alpha: float, seed: int) -> None:
    """The files have the largest and the smallest factor; with the smallest, GGUF files do not have 0, which means 1."""
    model = _model(tmp_path)
    adapter = new_adapter(model, rank=2, alpha=alpha)
    values = {name: np.zeros_like(value) for name, value in _values(adapter, seed).items()}
    for path in (tmp_path / "a", tmp_path / "a.gguf"):
        adapter.save(path, values)
        graph = with_adapters(model, path).graph(batch=1, sequence=8)
        scales = [np.asarray(graph.weights[a.name]) for a in graph.params if a.name.endswith(".scale")]
        assert len(scales) == len(adapter.layers)
        np.testing.assert_allclose(np.concatenate(scales).astype(np.float64), alpha / 2, rtol=1e-6)


@pytest.mark.parametrize("blocked", ["adapter_config.json", "adapter_model.safetensors"])
def test_a_folder_is_written_as_a_whole(tmp_path: Path, blocked: str, seed: int) -> None:
    """If one of the files cannot be replaced, the others stay as they are."""
    adapter = new_adapter(_model(tmp_path))
    folder = tmp_path / "a"
    adapter.save(folder, _values(adapter, seed))
    (folder / blocked).unlink()
    (folder / blocked).mkdir()
    (other,) = (file for file in folder.iterdir() if file.name != blocked)
    before = other.read_bytes()
    changed = new_adapter(_model(tmp_path), rank=3)
    with pytest.raises(rlx.Error, match=f"cannot write .*{blocked}"):
        changed.save(folder, _values(changed, seed + 1))
    assert other.read_bytes() == before and len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("is_folder", [True, False])
def test_merged_weights_are_finite(tmp_path: Path, is_folder: bool, seed: int) -> None:
    """The product of large factors is infinite, though they are not. Writing of such a model is an error."""
    model = _model(tmp_path)
    adapter = new_adapter(model)
    values = {name: value * np.float32(1e30) for name, value in _values(adapter, seed).items()}
    path = tmp_path / ("a" if is_folder else "a.gguf")
    adapter.save(path, values)
    merged = with_adapters(model, path).merged_weights()
    assert merged.keys() == {f"{layer}.weight" for layer in adapter.layers}
    for weight in merged.values():
        with pytest.raises(rlx.Error, match=rf"tensor '{weight.name}' of .* has values that are not finite, with the"):
            weight.numpy()

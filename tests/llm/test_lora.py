"""LoRA adapters in generations: with plain and packed weights, in the cache of prompts and in that of single tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from tests.llm.tiny_model import KV_HEADS, write_model
from tests.models.adapter_samples import write_adapter_gguf, write_peft

_PROMPT = "the man in the inn and the"
_HEADS = {"attn_q": 4, "attn_k": KV_HEADS}
_PEFT_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def _factors(path: Path, seed: int, rank: int = 4) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return `A` and `B` of all matrices of layers in a GGUF file, and of the head."""
    rng, factors = np.random.default_rng(seed), {}
    for name, weight in rlx.weights.open(path).items():
        if len(weight.shape) == 2 and name != "token_embd.weight":
            size_out, size_in = weight.shape
            shapes = (rank, size_in), (size_out, rank)
            a, b = (rng.normal(0, 0.1, shape).astype(np.float32) for shape in shapes)
            factors[name] = a, b
    return factors


def _gguf(path: Path, factors: dict[str, tuple[np.ndarray, np.ndarray]], alpha: float = 8) -> Path:
    tensors = {f"{n}.lora_{part}": f for n, pair in factors.items() for part, f in zip("ab", pair, strict=True)}
    return write_adapter_gguf(path, "llama", alpha, tensors)


def _peft(folder: Path, factors: dict[str, tuple[np.ndarray, np.ndarray]]) -> Path:
    """Write the adapter for a folder: there the rows of queries and keys are in another order."""
    tensors = {}
    for name, (a, b) in factors.items():
        parts = name.split(".")
        layer = "lm_head" if name == "output.weight" else f"model.layers.{parts[1]}.{_PEFT_NAMES[parts[2]]}"
        if heads := _HEADS.get(parts[-2]):
            b = b.reshape(heads, -1, 2, b.shape[1]).swapaxes(1, 2).reshape(b.shape)
        tensors |= {
            f"base_model.model.{layer}.lora_{p}.weight": np.ascontiguousarray(f)
            for p, f in zip("AB", (a, b), strict=True)
        }
    return write_peft(folder, tensors, r=4, lora_alpha=8)


def _merged(path: Path, out: Path, factors: dict[str, tuple[np.ndarray, np.ndarray]], scale: float = 2.0) -> Path:
    """Write the model with decoded and changed weights."""
    weights = rlx.weights.open(path)
    tensors = {name: weight.numpy().astype(np.float32) for name, weight in weights.items()}
    for name, (a, b) in factors.items():
        tensors[name] = (tensors[name] + scale * (b.astype(np.float64) @ a)).astype(np.float32)
    rlx.weights.save_gguf(out, tensors, dict(weights.metadata))
    return out


@pytest.mark.parametrize("scheme", [None, "q8_0", "q4_k"])
def test_logits_are_those_of_merged_weights(tmp_path: Path, seed: int, scheme: str | None) -> None:
    path = write_model(tmp_path / "base.gguf", scheme=scheme)
    factors = _factors(path, seed)
    options: dict[str, Any] = {"activations": "f32", "cache": "f32", "threads": 1}
    with rlx.llm.load(_merged(path, tmp_path / "merged.gguf", factors), **options) as merged:
        expected = merged.logits(_PROMPT)
        tokens = merged.generate(_PROMPT, max_tokens=8, ignore_eos=True, logprobs=3)
        vector = merged.embed(["the end"]) if scheme is None else None
    for adapter in (_gguf(tmp_path / "a.gguf", factors), _peft(tmp_path / "a", factors)):
        with rlx.llm.load(path, lora=adapter, **options) as model:
            scale = np.abs(expected).max()
            assert np.abs(model.logits(_PROMPT) - expected).max() < 1e-4 * scale
            got = model.generate(_PROMPT, max_tokens=8, ignore_eos=True, logprobs=3)
            assert got.tokens == tokens.tokens
            assert got.logprobs is not None and tokens.logprobs is not None
            for own, other in zip(got.logprobs, tokens.logprobs, strict=True):
                np.testing.assert_allclose([own[i] for i in other], list(other.values()), atol=1e-2)
            if vector is not None:
                np.testing.assert_allclose(model.embed(["the end"]), vector, atol=1e-4)


def test_factors_and_several_adapters(tmp_path: Path, model_path: Path, model: rlx.llm.LLM, seed: int) -> None:
    factors = _factors(model_path, seed)
    one, two = _gguf(tmp_path / "a=1.gguf", factors), _peft(tmp_path / "b", factors)
    options: dict[str, Any] = {"cache": "f32", "threads": 1}
    plain = model.logits(_PROMPT)
    with rlx.llm.load(model_path, lora=[(one, 0.0)], **options) as unchanged:
        assert (unchanged.logits(_PROMPT) == plain).all()
    with rlx.llm.load(model_path, lora={one: 0.75, two: -0.5}, **options) as both:
        logits = both.logits(_PROMPT)
    merged = _merged(model_path, tmp_path / "m.gguf", factors, 0.5)
    with rlx.llm.load(merged, **options) as expected:
        wanted = expected.logits(_PROMPT)
    assert np.abs(logits - wanted).max() < 1e-4 * np.abs(wanted).max()
    assert np.abs(plain - wanted).max() > 0.01 * np.abs(wanted).max()


def test_rounded_activations(tmp_path: Path, seed: int) -> None:
    """The update is computed in f32, whatever the precision of activations in packed products is."""
    path = write_model(tmp_path / "base.gguf", scheme="q8_0")
    adapter = _gguf(tmp_path / "a.gguf", _factors(path, seed))
    with rlx.llm.load(path, lora=adapter, threads=1) as rounded:
        got = rounded.logits(_PROMPT)
    with rlx.llm.load(path, lora=adapter, threads=1, activations="f32") as exact:
        expected = exact.logits(_PROMPT)
    assert 0 < np.abs(got - expected).max() / np.abs(expected).max() < 0.1


def test_merged_files(tmp_path: Path, model_path: Path, seed: int) -> None:
    """Adapters of both formats are added to the weights of a file before they are packed."""
    factors = _factors(model_path, seed)
    expected = rlx.weights.open(_merged(model_path, tmp_path / "m.gguf", factors, 1.0))
    lora = [(_gguf(tmp_path / "a.gguf", factors), 0.75), (_peft(tmp_path / "b", factors), -0.25)]
    rlx.llm.quantize(model_path, tmp_path / "f32.gguf", "F32", lora=lora)
    for name, weight in rlx.weights.open(tmp_path / "f32.gguf").items():
        np.testing.assert_allclose(weight.numpy(), expected[name].numpy(), atol=1e-6, err_msg=name)
    rlx.llm.quantize(model_path, tmp_path / "q8_0.gguf", "Q8_0", lora=lora)
    name = "blk.0.attn_q.weight"
    packed = rlx.weights.open(tmp_path / "q8_0.gguf")[name]
    exact = expected[name].numpy()
    assert packed.encoding.name == "q8_0"
    assert np.linalg.norm(packed.numpy() - exact) < 0.01 * np.linalg.norm(exact)
    with pytest.raises(rlx.Error, match="is also an input"):
        rlx.llm.quantize(model_path, tmp_path / "a.gguf", "F32", lora=tmp_path / "a.gguf")
    with pytest.raises(rlx.Error, match="lora must be"):
        rlx.llm.quantize(model_path, tmp_path / "c.gguf", lora=5)


def test_refused(tmp_path: Path, model_path: Path) -> None:
    for lora, message in ((5, "lora must be"), (tmp_path / "none", "no such"), (model_path, "is not an adapter")):
        with pytest.raises(rlx.Error, match=message):
            rlx.llm.load(model_path, lora=lora)

"""LoRA adapters, against the transformers package with merged weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.models import load
from rlx.models.adapters import with_adapters
from tests.models.adapter_samples import SampleAdapter
from tests.models.gguf_files import write_gguf
from tests.models.test_gguf import unchanged

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
_SIZES = {"vocab_size": 60, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "head_dim": 8}
_SIZES |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}


@pytest.mark.parametrize("name", ["Llama", "Qwen3"])
def test_merged_weights(tmp_path: Path, seed: int, name: str) -> None:
    config = getattr(transformers, f"{name}Config")(**_SIZES)
    torch.manual_seed(seed)
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval().float()
    model.save_pretrained(tmp_path / "base")
    tensors = {n: t.detach().numpy().copy() for n, t in model.state_dict().items()}
    adapter = SampleAdapter.drawn(config.to_dict(), tensors, seed)
    merged = {n: torch.from_numpy(array).double() for n, array in adapter.merged(tensors).items()}
    model.double().load_state_dict(merged)
    ids = np.arange(12, dtype=np.int32)[None] * 5 % 60
    with torch.no_grad():
        expected = model(torch.from_numpy(ids.astype(np.int64))).logits.numpy()
    path = write_gguf(tmp_path / "m.gguf", config.to_dict(), tensors, unchanged)
    adapters = adapter.write_peft(tmp_path / "a"), adapter.write_gguf(tmp_path / "a.gguf", config.to_dict())
    for base in (tmp_path / "base", path):
        for lora in adapters:
            graph = with_adapters(load(base), lora).graph(sequence=12)
            inputs: dict[str, Any] = {"input_ids": ids}
            (logits,) = rlx.evaluate(graph, inputs)
            assert np.abs(logits - expected).max() < 1e-4 * np.abs(expected).max()

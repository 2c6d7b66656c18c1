"""Random LoRA adapters for the references: folders of PEFT, GGUF files, and the merged weights, computed in f64."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlx.weights import save_gguf
from tests.models.gguf_files import ARCHITECTURES, converted

Arrays = dict[str, np.ndarray]
# Tensors that are not matrices of linear layers, and the joined keys and values of latent attention.
_OTHERS = re.compile(r"norm|experts|conv|embed|wte|wpe|ln_|A_log|kv_b_proj")


@dataclass
class SampleAdapter:
    """An adapter.

    Attributes:
        factors: `A` and `B` by the name of the tensor in the folder.
        rank: The rank.
        alpha: The number `lora_alpha`.
        is_transposed: Whether the matrices of the model are stored as `[in, out]`.
    """

    factors: dict[str, tuple[np.ndarray, np.ndarray]]
    rank: int
    alpha: float
    is_transposed: bool = False

    @classmethod
    def drawn(cls, config: Mapping[str, Any], tensors: Arrays, seed: int, rank: int = 4) -> SampleAdapter:
        """Return an adapter for all linear layers of a model."""
        rng, is_transposed = np.random.default_rng(seed), config["model_type"] == "gpt2"
        factors = {}
        for name, array in tensors.items():
            if name.endswith(".weight") and array.ndim == 2 and not _OTHERS.search(name):
                size_out, size_in = array.shape[::-1] if is_transposed else array.shape
                shapes = (rank, size_in), (size_out, rank)
                a, b = (rng.normal(0, 0.2, shape).astype(np.float32) for shape in shapes)
                factors[name] = a, b
        return cls(factors, rank, 6.0, is_transposed)

    def merged(self, tensors: Arrays, factor: float = 1.0, *, scale: float | None = None) -> Arrays:
        """Return the weights with the adapter, by PEFT's formula in f64."""
        result = dict(tensors)
        scale = self.alpha / self.rank if scale is None else scale
        for name, (a, b) in self.factors.items():
            delta = factor * scale * (b.astype(np.float64) @ a.astype(np.float64))
            result[name] = (tensors[name] + (delta.T if self.is_transposed else delta)).astype(np.float32)
        return result

    def write_peft(self, folder: Path, dtype: Any = np.float32, **config: Any) -> Path:
        """Write the adapter as the package PEFT does."""
        tensors = {}
        for name, factors in self.factors.items():
            for part, array in zip("AB", factors, strict=True):
                tensors[f"base_model.model.{name.removesuffix('.weight')}.lora_{part}.weight"] = array.astype(dtype)
        return write_peft(folder, tensors, r=self.rank, lora_alpha=self.alpha, **config)

    def write_gguf(self, path: Path, config: Mapping[str, Any], dtype: Any = np.float32) -> Path:
        """Write the adapter as llama.cpp's converter does: rows of `B` change as those of the weights do."""
        architecture = ARCHITECTURES[config["model_type"]]
        tensors: Arrays = {}
        for name, (a, b) in self.factors.items():
            ((new, rows),) = converted(config, {name: b.T if self.is_transposed else b}, architecture).items()
            tensors |= {f"{new}.lora_a": a.astype(dtype), f"{new}.lora_b": np.ascontiguousarray(rows).astype(dtype)}
        return write_adapter_gguf(path, architecture, self.alpha, tensors)


def write_peft(folder: Path, tensors: Mapping[str, np.ndarray], **config: Any) -> Path:
    """Write a folder with `adapter_config.json` and `adapter_model.safetensors`."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    # Entries as PEFT 0.18 writes them. Most have no effect.
    entries = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "bias": "none",
        "modules_to_save": None,
        "use_dora": False,
        "lora_dropout": 0.05,
        "init_lora_weights": True,
        "target_modules": ["q_proj"],
        "megatron_core": "megatron.core",
        "rank_pattern": {},
    }
    (folder / "adapter_config.json").write_text(json.dumps(entries | config))
    save_file(dict(tensors), folder / "adapter_model.safetensors")
    return folder


def write_adapter_gguf(path: Path, architecture: str, alpha: float, tensors: Mapping[str, Any], **more: Any) -> Path:
    """Write a GGUF file of an adapter."""
    metadata: dict[str, Any] = {
        "general.type": "adapter",
        "general.architecture": architecture,
        "adapter.type": "lora",
        "adapter.lora.alpha": np.float32(alpha),
    }
    metadata = {key: value for key, value in (metadata | more).items() if value is not None}
    save_gguf(path, tensors, metadata)
    return path

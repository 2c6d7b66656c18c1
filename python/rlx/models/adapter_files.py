"""Readers of LoRA adapters: GGUF files of llama.cpp's converter, and folders of the package PEFT."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rlx.models.weight_views import transposed
from rlx.support.errors import Error, UnsupportedError
from rlx.support.files import read_json
from rlx.support.guards import is_real
from rlx.support.short import short_repr
from rlx.weights import PackedBlocks, Weight, Weights
from rlx.weights import open as open_weights

LARGEST_SCALE = float(np.finfo(np.float32).max)
_FLOATS = ("float32", "float16", "bfloat16")
_GGUF_NAME = re.compile(r"(?P<layer>.+)\.weight\.lora_(?P<part>[ab])")
_PEFT_NAME = re.compile(r"base_model\.model\.(?P<layer>.+)\.lora_(?P<embedding>embedding_)?(?P<part>[AB])(\.weight)?")
_TABLE = "token_embd"
# Keys of adapter_config.json that do not change the meaning of the tensors. Others must be absent, false or empty.
_HARMLESS = frozenset(
    (
        *("peft_type", "task_type", "base_model_name_or_path", "revision", "inference_mode", "peft_version"),
        *("auto_mapping", "r", "lora_alpha", "lora_dropout", "use_rslora", "alpha_pattern", "rank_pattern"),
        *("target_modules", "exclude_modules", "layers_to_transform", "layers_pattern", "fan_in_fan_out"),
        *("init_lora_weights", "megatron_config", "megatron_core", "runtime_config", "eva_config", "qalora_group_size"),
        *("corda_config", "lora_ga_config", "ensure_weight_tying"),
    )
)
# These change the weights of the model when an adapter is created.
_CHANGING_STARTS = ("pissa", "olora", "corda", "loftq", "lora_ga")
_PLAIN_PATTERN = re.compile(r"\^?[\w.]+\$?")


@dataclass(frozen=True)
class AdapterLayer:
    """The update of one matrix in a file.

    Attributes:
        down: `[rank, in]`; for the table of an embedding `[rows, rank]`.
        up: `[out, rank]`.
        scale: The factor of the product.
        is_table: Whether the matrix is the table of an embedding.
    """

    down: Weight
    up: Weight
    scale: float
    is_table: bool


@dataclass(frozen=True)
class AdapterFile:
    """An adapter.

    Attributes:
        layers: The updates by the name of the matrix in the file, without `.weight`.
        architecture: The architecture of a GGUF file; None for a folder.
        origin: The file, for messages.
    """

    layers: Mapping[str, AdapterLayer]
    architecture: str | None
    origin: str


def read_adapter(name: str) -> AdapterFile:
    """Return the adapter in a GGUF file, or in a folder with `adapter_config.json` and `adapter_model.safetensors`.

    Raises:
        Error: A file is missing or damaged, tensors do not fit each other, or values are not finite.
        UnsupportedError: The adapter has parts other than low-rank updates.
    """
    path = Path(name)
    if not path.is_dir():
        weights = open_weights(name)
        kind = weights.metadata.get("general.type")
        if not isinstance(kind, str) or kind != "adapter":
            hint = "give a GGUF file of an adapter, or a folder with adapter_config.json"
            raise Error(f"{name} is not an adapter: its 'general.type' is {short_repr(kind)}", hint=hint)
        return _gguf_adapter(weights)
    if not (path / "adapter_config.json").is_file():
        raise Error(f"{name} has no adapter_config.json", hint="give the folder of an adapter of PEFT, or a GGUF file")
    if not (path / "adapter_model.safetensors").is_file():
        raise Error(f"{name} has no adapter_model.safetensors", hint="save the adapter with safe_serialization=True")
    return _peft_adapter(path)


def _gguf_adapter(weights: Weights) -> AdapterFile:
    metadata, file = weights.metadata, weights.origin
    kind = metadata.get("adapter.type")
    if not isinstance(kind, str) or kind != "lora":
        raise UnsupportedError(f"{file}: 'adapter.type' must be 'lora', got {short_repr(kind)}")
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise Error(f"{file}: 'general.architecture' must be a name, got {short_repr(architecture)}")
    if "adapter.alora.invocation_tokens" in metadata:
        raise UnsupportedError(f"{file}: adapters that tokens switch on are not supported")
    alpha = metadata.get("adapter.lora.alpha", 0.0)
    if not _is_finite(alpha):
        raise Error(f"{file}: 'adapter.lora.alpha' must be a number, got {short_repr(alpha)}")
    layers: dict[str, AdapterLayer] = {}
    for layer, (down, up, _) in _pairs(weights, _GGUF_NAME).items():
        is_table = layer == _TABLE
        rank = _rank(down, up, is_table)
        # Without a number, the factor is 1.
        layers[layer] = AdapterLayer(down, up, float(alpha) / rank if alpha else 1.0, is_table)
    return AdapterFile(layers, architecture, file)


def _peft_adapter(path: Path) -> AdapterFile:
    file = str(path / "adapter_config.json")
    config = read_json(path / "adapter_config.json")
    if not isinstance(config, dict):
        raise Error(f"{file}: expected an object")
    _check_config(config, file)
    rank, alpha = config.get("r", 8), config.get("lora_alpha", 8)
    if type(rank) is not int or rank < 1:
        raise Error(f"{file}: 'r' must be a positive integer, got {short_repr(rank)}")
    weights = open_weights(path / "adapter_model.safetensors")
    layers: dict[str, AdapterLayer] = {}
    for layer, (down, up, is_table) in _pairs(weights, _PEFT_NAME).items():
        if is_table:
            _check_matrix(down)
            down = replace(transposed(down), name=down.name)
        own = _rank(down, up, is_table)
        expected = _of_pattern(config, "rank_pattern", layer, rank, file)
        if own != expected:
            raise Error(f"{up.origin}: '{up.name}' has rank {own}, and 'r' of {file} is {short_repr(expected)}")
        factor = _of_pattern(config, "alpha_pattern", layer, alpha, file)
        if not _is_finite(factor):
            raise Error(f"{file}: 'lora_alpha' must be a number, got {short_repr(factor)}")
        scale = factor / (math.sqrt(own) if config.get("use_rslora") else own)
        layers[layer] = AdapterLayer(down, up, scale, is_table)
    return AdapterFile(layers, None, weights.origin)


def _check_config(config: Mapping[str, Any], file: str) -> None:
    """Check that an adapter consists of low-rank updates only."""
    if (kind := config.get("peft_type")) != "LORA":
        raise UnsupportedError(f"{file}: 'peft_type' must be 'LORA', got {short_repr(kind)}")
    for key, value in config.items():
        if key not in _HARMLESS and value not in (None, False, "none", "") and value != [] and value != {}:
            raise UnsupportedError(f"{file}: {short_repr(key)} is {short_repr(value)}, which is not supported")
    if type(config.get("use_rslora", False)) is not bool:
        raise Error(f"{file}: 'use_rslora' must be true or false, got {short_repr(config['use_rslora'])}")
    start = config.get("init_lora_weights")
    if isinstance(start, str) and start.lower().startswith(_CHANGING_STARTS):
        raise UnsupportedError(
            f"{file}: 'init_lora_weights' is {short_repr(start)}, and such an adapter belongs to changed weights",
            hint="save it with path_initial_model_for_weight_conversion=, which makes it an adapter of the model itself",
        )


def _of_pattern(config: Mapping[str, Any], key: str, layer: str, default: Any, file: str) -> Any:
    """Return the value for a layer: that of the first pattern that is the layer's name or its end."""
    patterns = config.get(key) or {}
    if not isinstance(patterns, Mapping):
        raise Error(f"{file}: {key!r} must be an object, got {short_repr(patterns)}")
    for pattern, value in patterns.items():
        if not _PLAIN_PATTERN.fullmatch(pattern):
            raise UnsupportedError(f"{file}: the pattern {short_repr(pattern)} in {key!r} is not the name of a layer")
        end = pattern.removeprefix("^").removesuffix("$")
        if layer == end or (layer.endswith(f".{end}") and not pattern.startswith("^")):
            return value
    return default


def _pairs(weights: Weights, pattern: re.Pattern[str]) -> dict[str, tuple[Weight, Weight, bool]]:
    """Return the matrices of each layer, and whether they are of an embedding."""
    found: dict[str, dict[str, Weight]] = {}
    is_table: dict[str, bool] = {}
    for name, weight in weights.items():
        match = pattern.fullmatch(name)
        if match is None:
            raise UnsupportedError(f"{weights.origin}: '{name:.200}' is not a part of a low-rank update")
        parts, part = found.setdefault(match["layer"], {}), match["part"].lower()
        of_table = bool(match.groupdict().get("embedding"))
        if part in parts or is_table.setdefault(match["layer"], of_table) != of_table:
            (other, *_) = parts.values() if part not in parts else (parts[part],)
            raise Error(f"{weights.origin}: '{other.name:.200}' and '{name:.200}' are not two matrices of one update")
        parts[part] = _plain(weight)
    if not found:
        raise Error(f"{weights.origin} has no tensors")
    for parts in found.values():
        if len(parts) < 2:
            (weight,) = parts.values()
            raise Error(f"{weights.origin} has '{weight.name}' without the other matrix of the update")
    return {layer: (parts["a"], parts["b"], is_table[layer]) for layer, parts in found.items()}


def _plain(weight: Weight) -> Weight:
    """Return a matrix without packed blocks."""
    if isinstance(weight.encoding, PackedBlocks):
        return Weights.of({weight.name: weight.numpy()}, weight.origin)[weight.name]
    return weight


def _rank(down: Weight, up: Weight, is_table: bool) -> int:
    """Return the rank of an update, after checks of its matrices, whose values must be finite."""
    for weight in (down, up):
        _check_matrix(weight)
    rank, other = up.shape[1], down.shape[1 if is_table else 0]
    if rank != other or rank < 1:
        names = f"'{down.name}' has rank {other}, and '{up.name}' rank {rank}"
        raise Error(f"{up.origin}: {names}")
    for weight in (down, up):
        if not np.isfinite(weight.numpy()).all():
            raise Error(f"{weight.origin}: '{weight.name}' has values that are not finite")
    return rank


def _check_matrix(weight: Weight) -> None:
    if len(weight.shape) != 2 or weight.dtype.name not in _FLOATS:
        described = f"{weight.dtype}{list(weight.shape)}"
        raise Error(f"{weight.origin}: '{weight.name}' must be a matrix of f32, f16 or bf16, got {described}")


def _is_finite(value: Any) -> bool:
    return is_real(value) and bool(abs(value) <= LARGEST_SCALE)

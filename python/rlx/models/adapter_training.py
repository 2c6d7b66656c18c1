"""`new_adapter`: a LoRA adapter to train, and its files.

Source: Hu et al., LoRA: Low-Rank Adaptation of Large Language Models (2021), §4.1.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlx.ir.arrays import as_numbers
from rlx.models.adapter_files import LARGEST_SCALE
from rlx.models.adapters import gguf_names_of, rows_of_file
from rlx.models.low_rank import LowRankUpdate
from rlx.models.model import PretrainedModel
from rlx.support.errors import Error, UnsupportedError
from rlx.support.files import file_name, write_folder
from rlx.support.short import join_names, short_repr
from rlx.weights import Weight, Weights, safetensors, save_gguf

_LARGEST_RANK = 4096
_SMALLEST_ALPHA = float(np.finfo(np.float32).smallest_normal)  # GGUF files have f32, in which 0 has another meaning
_NUMBERS = frozenset(("float16", "bfloat16", "float32", "float64"))
_NAMED = 12  # the largest number of layers in a message
_PARTS = ("down", "up")


@dataclass(frozen=True)
class TrainableAdapter:
    """A model with an adapter whose values are trained. `new_adapter` returns one.

    Attributes:
        model: The model. Its graphs compute the updates next to the stored weights.
        rank: The rank of the updates.
        alpha: The factor of the updates is `alpha / rank`.
        layers: The layers, by their names in graphs: `layers.0.self_attn.q_proj`.
        params: The names of the parameters to train, for `wrt=` of `rlx.train.TrainStep`: of each layer `down`
            `[rank, in]` and `up` `[out, rank]`, f32.
    """

    model: PretrainedModel
    rank: int
    alpha: float
    layers: tuple[str, ...]
    params: tuple[str, ...] = field(repr=False)

    def save(self, path: str | os.PathLike[str], params: Mapping[str, Any]) -> None:
        """Write the adapter. `rlx.llm.load(…, lora=path)` reads it.

        Args:
            path: A name that ends with `.gguf` is that of a GGUF file, as llama.cpp reads it. Others are those of a folder,
                as the package PEFT reads it, with `adapter_config.json` and `adapter_model.safetensors`.
            params: Arrays by name, among them those of `params`: the result of `TrainStep.params()`.

        Raises:
            Error: A parameter is missing, has another shape, is not of real numbers or has values that are not finite in
                f32, or the file cannot be written. The files that are there then stay as they are.
            UnsupportedError: The model is from a GGUF file and the adapter is not, or GGUF files have no name for a layer.
        """
        name, factors = file_name(path), self._factors(params)
        if name.endswith(".gguf"):
            self._save_gguf(name, factors)
        elif self.model.gguf_names is not None:
            raise UnsupportedError(
                f"{name}: the model is from a GGUF file, and its adapters are GGUF files", hint="give a name with .gguf"
            )
        else:
            self._save_peft(name, factors)

    def _factors(self, params: Mapping[str, Any]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return the two matrices of each layer."""
        if not isinstance(params, Mapping):
            raise Error(f"params must be a mapping of names to arrays, got {short_repr(params)}")
        result: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for layer in self.layers:
            size_out, size_in = self.model.weights[f"{layer}.weight"].shape
            shapes = ((self.rank, size_in), (size_out, self.rank))
            arrays: list[np.ndarray] = []
            for part, shape in zip(_PARTS, shapes, strict=True):
                name = _param(layer, part)
                if name not in params:
                    raise Error(f"params has no '{name}'", hint="give TrainStep.params()")
                arrays.append(_factor(name, params[name], shape))
            result[layer] = (arrays[0], arrays[1])
        return result

    def _save_peft(self, folder: str, factors: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> None:
        modules = {layer: self._file_name(layer) for layer in factors}
        config = {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "r": self.rank,
            "lora_alpha": self.alpha,
            "lora_dropout": 0.0,
            "target_modules": list(modules.values()),
            "bias": "none",
            "use_rslora": False,
            "init_lora_weights": True,
            "inference_mode": True,
        }
        tensors = {
            f"base_model.model.{modules[layer]}.lora_{part}.weight": factor
            for layer, pair in factors.items()
            for part, factor in zip("AB", pair, strict=True)
        }
        files = {
            "adapter_config.json": json.dumps(config, indent=2).encode(),
            "adapter_model.safetensors": safetensors.to_bytes(tensors, {"format": "pt"}, folder),
        }
        write_folder(folder, files, durable=True)

    def _file_name(self, layer: str) -> str:
        """Return the name of a layer in the model's file, without `.weight`."""
        return self.model.weights[f"{layer}.weight"].name.removesuffix(".weight")

    def _save_gguf(self, path: str, factors: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> None:
        own = self.model.gguf_names
        names = own or gguf_names_of(self.model, path)
        tensors: dict[str, np.ndarray] = {}
        for layer, (down, up) in factors.items():
            if own is not None:
                name = f"{self._file_name(layer)}.weight"
            else:
                name = f"{names.in_file(layer, self.model.config)}.weight"
                if name == f"{layer}.weight":
                    raise UnsupportedError(f"{path}: GGUF files have no name for '{layer}'", hint="write a folder")
                up = rows_of_file(layer, _weight(name, up, path), self.model.config, names).numpy()
            tensors |= {f"{name}.lora_a": down, f"{name}.lora_b": up}
        metadata: dict[str, Any] = {
            "general.type": "adapter",
            "general.architecture": names.architecture,
            "adapter.type": "lora",
            "adapter.lora.alpha": float(self.alpha),
        }
        save_gguf(path, tensors, metadata)


def new_adapter(
    model: PretrainedModel,
    *,
    rank: int = 8,
    alpha: float | None = None,
    layers: Sequence[str] = ("q_proj", "v_proj"),
    seed: int = 0,
) -> TrainableAdapter:
    """Return a model with a new LoRA adapter, to be trained. At first the adapter has no effect: `up` is 0.

    The weights of the model may be packed. They are not trained: `wrt=` of `rlx.train.TrainStep` names the parameters of the
    adapter.

    Args:
        model: The model, from a folder or a GGUF file.
        rank: The rank of the updates.
        alpha: The factor of the updates is `alpha / rank`; None is twice the rank.
        layers: The layers that get updates, by the ends of their names in graphs (`model.weights` has the names): `"q_proj"`
            is that of every layer, `"layers.0.mlp.up_proj"` is one.
        seed: The seed of the initial values of `down`, which are uniform in `±1/sqrt(in)`.

    Raises:
        Error: A value is not valid, or an end matches no matrix.
        UnsupportedError: A matrix is only a part of a tensor of the model's file, such as fused queries, keys and values.
    """
    if not isinstance(model, PretrainedModel):
        raise Error(f"new_adapter takes a model of rlx.models.load, got {short_repr(model)}")
    if type(rank) is not int or not 1 <= rank <= _LARGEST_RANK:
        raise Error(f"rank must be an integer from 1 to {_LARGEST_RANK}, got {short_repr(rank)}")
    if type(seed) is not int or seed < 0:
        raise Error(f"seed must be an integer of at least 0, got {short_repr(seed)}")
    number = 2.0 * rank if alpha is None else alpha
    is_number = isinstance(number, (int, float)) and not isinstance(number, bool)
    if not is_number or not _SMALLEST_ALPHA <= number <= LARGEST_SCALE:
        limits = f"from {_SMALLEST_ALPHA:.3g} to {LARGEST_SCALE:.3g}"
        raise Error(f"alpha must be a positive number {limits}, got {short_repr(alpha)}")
    matrices = {
        name.removesuffix(".weight"): weight
        for name, weight in model.weights.items()
        if name.endswith(".weight") and len(weight.shape) == 2 and not name.startswith("embed_")
    }
    chosen = _chosen(matrices, layers)
    _check_whole(model.weights, {name: matrices[name] for name in chosen})
    rng, updates = np.random.default_rng(seed), {}
    for name in chosen:
        size_out, size_in = matrices[name].shape
        bound = size_in**-0.5
        down = rng.uniform(-bound, bound, (rank, size_in)).astype(np.float32)
        factors = (
            _weight(_param(name, "down"), down),
            _weight(_param(name, "up"), np.zeros((size_out, rank), np.float32)),
        )
        updates[name] = (LowRankUpdate(*factors, number / rank, 0),)
    params = tuple(_param(name, part) for name in chosen for part in _PARTS)
    return TrainableAdapter(model.with_updates(updates), rank, float(number), tuple(chosen), params)


def _param(layer: str, part: str) -> str:
    """Return the name of a parameter, as `LowRankUpdate` declares it."""
    return f"{layer}.lora0.{part}"


def _factor(name: str, value: Any, shape: tuple[int, int]) -> np.ndarray:
    """Return a matrix of an update as f32, after checks."""
    array = as_numbers(value, f"'{name}'")
    if array.dtype.name not in _NUMBERS and array.dtype.kind not in "iu":
        raise Error(f"'{name}' must be an array of real numbers, got {array.dtype}")
    if array.shape != shape:
        raise Error(f"'{name}' must have the shape {list(shape)}, got {list(array.shape)}")
    with np.errstate(over="ignore"):  # of f64
        result = array.astype(np.float32)
    if not np.isfinite(result).all():
        raise Error(f"'{name}' has values that are not finite in f32", hint="train again with a smaller learning rate")
    return result


def _weight(name: str, array: np.ndarray, origin: str = "the new adapter") -> Weight:
    return Weights.of({name: array}, origin)[name]


def _chosen(matrices: Mapping[str, Weight], layers: Sequence[str]) -> list[str]:
    """Return the names of matrices that end with one of `layers`."""
    if isinstance(layers, str) or not isinstance(layers, Sequence) or not layers:
        raise Error(f"layers must be a list of names such as 'q_proj', got {short_repr(layers)}")
    result: dict[str, None] = {}
    for end in layers:
        found = [name for name in matrices if name == end or (isinstance(end, str) and name.endswith(f".{end}"))]
        if not found:
            known = list(dict.fromkeys(name.rpartition(".")[2] for name in matrices))
            raise Error(f"layers: {short_repr(end)} is the end of no matrix; known are {join_names(known[:_NAMED])}")
        result |= dict.fromkeys(found)
    return list(result)


def _check_whole(weights: Mapping[str, Weight], chosen: Mapping[str, Weight]) -> None:
    """Check that matrices are whole tensors of the file, so that adapters can name them."""
    uses = Counter(weight.name for weight in weights.values())
    for name, weight in chosen.items():
        if uses[weight.name] > 1:
            raise UnsupportedError(
                f"'{name}' is a part of '{weight.name}' of {weight.origin}; files of adapters have no names for parts",
                hint="choose other layers",
            )

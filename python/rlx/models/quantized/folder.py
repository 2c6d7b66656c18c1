"""The tensors of a folder, with those that another tool has quantised in packed formats."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace

from rlx.models.fields import Fields
from rlx.models.quantized.awq import awq_tensors
from rlx.models.quantized.compressed import compressed_tensors, fp8_tensors
from rlx.models.quantized.gptq import gptq_tensors
from rlx.models.quantized.mlx import mlx_tensors
from rlx.support.errors import UnsupportedError
from rlx.weights import Weight, Weights
from rlx.weights import open as open_weights

_METHODS: Mapping[str, Callable[[Fields, Mapping[str, Weight]], dict[str, Weight]]] = {
    "awq": awq_tensors,
    "compressed-tensors": compressed_tensors,
    "fbgemm_fp8": fp8_tensors,
    "fp8": fp8_tensors,
    "gptq": gptq_tensors,
}


def open_folder(path: str | os.PathLike[str]) -> Weights:
    """Return the tensors of a folder with `config.json` and safetensors.

    Raises:
        Error: A file is missing or damaged, or a part of a quantised matrix is missing or does not fit.
        UnsupportedError: The weights are quantised in a way that is not supported.
    """
    weights = open_weights(path)
    tensors = packed_tensors(Fields.load(os.path.join(path, "config.json")), weights)
    return weights if tensors is weights else Weights(tensors.values(), weights.origin, weights.metadata)


def packed_tensors(fields: Fields, tensors: Mapping[str, Weight]) -> Mapping[str, Weight]:
    """Return the tensors of a folder by name, with quantised matrices in packed formats.

    Args:
        fields: Those of `config.json`.
        tensors: The tensors as they are in the files.

    Returns:
        The same mapping, if the configuration does not say that weights are quantised.

    Raises:
        Error: A part of a quantised matrix is missing or does not fit.
        UnsupportedError: The weights are quantised in a way that is not supported.
    """
    # MLX writes the same object under both names. The second may be that of the model before the conversion.
    own = next((fields.within(name) for name in ("quantization", "quantization_config") if fields.has(name)), None)
    if own is None:
        return tensors
    method = own.data.get("quant_method")
    if method is None and own.has("bits") and own.has("group_size"):
        read = mlx_tensors
    elif isinstance(method, str) and method in _METHODS:
        read = _METHODS[method]
    else:
        known = ", ".join(_METHODS)
        raise UnsupportedError(
            f"{fields.file}: weights of the 'quant_method' {method!r:.60} are not supported; supported are {known}, and "
            "those of MLX",
            hint="open the model in f32, f16 or bf16, or as a GGUF file",
        )
    return {name: replace(weight, name=name) for name, weight in read(own, tensors).items()}

"""The models that `quantize` reads: tensors under the names of GGUF, and metadata."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlx.models.adapters import adapter_paths, with_adapters
from rlx.models.model import model_of_gguf
from rlx.support.errors import Error, UnsupportedError
from rlx.support.files import file_name
from rlx.weights import Weight, Weights
from rlx.weights import open as open_weights


@dataclass(frozen=True)
class SourceModel:
    """A language model to convert.

    Attributes:
        path: The file or folder.
        tensors: The tensors, by the names of GGUF.
        metadata: The values by key.
        files: The files that were read.
        remarks: Lines about properties that GGUF files cannot represent.
    """

    path: str
    tensors: Mapping[str, Weight] = field(repr=False)
    metadata: Mapping[str, Any] = field(repr=False)
    files: frozenset[str] = field(repr=False)
    remarks: tuple[str, ...] = ()

    def check_output(self, out: str, others: Iterable[str] = ()) -> None:
        """Check that the file to write is not read, under any name.

        Raises:
            Error: It is one of the source's files or of `others`.
        """
        if not os.path.exists(out):
            return
        for file in (*self.files, *others):
            if os.path.exists(file) and os.path.samefile(out, file):
                raise Error(f"{out} is also an input: the model is read from it", hint="name another file")


def open_source(path: str | os.PathLike[str], lora: Any = None) -> SourceModel:
    """Return the model in a GGUF file (of several parts, the first) or in a folder.

    Args:
        path: The file or folder.
        lora: Adapters whose updates are added to the weights, as `rlx.llm.load` takes them; or None.

    Raises:
        Error: It is missing or damaged, or is not a model, or an adapter does not fit it.
        UnsupportedError: The architecture or the tokenizer of a folder is not known, or an adapter cannot be merged.
    """
    name = file_name(path, "a model")
    if os.path.isdir(name):
        from rlx.llm.quantization.folder import folder_source

        return folder_source(name, lora)
    weights = open_weights(name)
    if not isinstance(weights.metadata.get("general.architecture"), str):
        hint = "give a GGUF file, or a folder with config.json and safetensors"
        raise Error(f"{name} is not a language model: it has no 'general.architecture'", hint=hint)
    files = {name, *(weight.origin for weight in weights.values())}
    tensors = dict(weights)
    if lora is not None:
        tensors |= _merged(weights, lora)
        files |= {path for path, _ in adapter_paths(lora)}
    return SourceModel(name, tensors, weights.metadata, frozenset(files))


def _merged(weights: Weights, lora: Any) -> dict[str, Weight]:
    """Return the tensors of a GGUF file that adapters change, with the changes."""
    result: dict[str, Weight] = {}
    for name, weight in with_adapters(model_of_gguf(weights), lora).merged_weights().items():
        own = weights[weight.name]
        if own.shape != weight.shape:
            raise UnsupportedError(
                f"{own.origin}: '{name}' is a part of '{own.name}', to which adapters are not added",
                hint="load the adapter with the model: rlx.llm.load(model, lora=…)",
            )
        result[own.name] = weight
    return result

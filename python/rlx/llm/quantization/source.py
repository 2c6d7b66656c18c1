"""The models that `quantize` reads: tensors under the names of GGUF, and metadata."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlx.support.errors import Error
from rlx.support.files import file_name
from rlx.weights import Weight
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


def open_source(path: str | os.PathLike[str]) -> SourceModel:
    """Return the model in a GGUF file (of several parts, the first) or in a folder.

    Raises:
        Error: It is missing or damaged, or is not a model.
        UnsupportedError: The architecture or the tokenizer of a folder is not known.
    """
    name = file_name(path, "a model")
    if os.path.isdir(name):
        from rlx.llm.quantization.folder import folder_source

        return folder_source(name)
    weights = open_weights(name)
    if not isinstance(weights.metadata.get("general.architecture"), str):
        hint = "give a GGUF file, or a folder with config.json and safetensors"
        raise Error(f"{name} is not a language model: it has no 'general.architecture'", hint=hint)
    files = {name, *(weight.origin for weight in weights.values())}
    return SourceModel(name, weights, weights.metadata, frozenset(files))

"""Importance matrices of llama.cpp: for each column of a matrix, the mean square of the activations that it multiplies.

There are two formats, a binary one and, newer, GGUF. Source: common/imatrix-loader.cpp and tools/imatrix/imatrix.cpp.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from rlx.support.errors import Error
from rlx.support.files import file_name
from rlx.support.short import short_repr
from rlx.weights import Weight, Weights
from rlx.weights import open as open_weights
from rlx.weights.mapped import Content, content_of_file

_MAGIC = b"GGUF"
_LONGEST_NAME = 4096
_SUMS, _COUNTS = ".in_sum2", ".counts"
_DATASETS, _CHUNKS, _CHUNK_SIZE = "imatrix.datasets", "imatrix.chunk_count", "imatrix.chunk_size"
_HINT = "make it again with llama-imatrix"


@dataclass(frozen=True)
class ImportanceMatrix:
    """The importance of the columns of a model's matrices.

    Attributes:
        entries: f32 by the name of a tensor, `[matrices, columns]`: one row, or one for each matrix of a stack. In the
            binary format all rows of a stack follow each other, `[1, matrices·columns]`.
        origin: The file.
        datasets: The names of the texts that were used.
        chunks: The number of chunks of text that were used.
    """

    entries: Mapping[str, np.ndarray] = field(repr=False)
    origin: str
    datasets: tuple[str, ...] = ()
    chunks: int = 0

    def of(self, name: str, shape: tuple[int, ...]) -> np.ndarray | None:
        """Return the importance of the columns of a tensor, `[columns]` or `[matrices, columns]`; None if it has none.

        Raises:
            Error: The file was made for a tensor of another shape.
        """
        if name not in self.entries:
            return None
        values = self.entries[name]
        columns, matrices = shape[-1], prod(shape[:-2])
        if values.size == columns * matrices:
            return values.reshape(-1) if matrices == 1 else values.reshape(matrices, columns)
        raise Error(
            f"{self.origin} has {values.size} numbers for '{name}', and the tensor has {matrices * columns} columns",
            hint="use an importance matrix of this model",
        )


def read_importance(path: str | os.PathLike[str]) -> ImportanceMatrix:
    """Return the importance matrix in a file.

    Raises:
        Error: The file is missing, damaged or of another format.
    """
    name = file_name(path, "an importance matrix")
    content = content_of_file(name, "an importance matrix")
    is_gguf = content[:4] == _MAGIC
    matrix = _from_gguf(open_weights(name), len(content)) if is_gguf else _from_binary(content, name)
    if not matrix.entries:
        raise Error(f"{name} has no importance of tensors", hint=_HINT)
    for tensor, values in matrix.entries.items():
        if not np.isfinite(values).all() or (values < 0).any():
            raise Error(f"{name}: the numbers of '{tensor}' must be finite and not negative", hint=_HINT)
    return matrix


def _from_gguf(weights: Weights, size: int) -> ImportanceMatrix:
    name, metadata = weights.origin, weights.metadata
    if sum(weight.nbytes for weight in weights.values()) > size:
        raise Error(f"cannot read {name}: its tensors overlap", hint=_HINT)
    missing = [key for key in (_DATASETS, _CHUNKS, _CHUNK_SIZE) if key not in metadata]
    if missing:
        raise Error(f"{name} is not an importance matrix: its metadata has no '{missing[0]}'")
    datasets, chunks = metadata[_DATASETS], metadata[_CHUNKS]
    if not isinstance(datasets, tuple) or any(not isinstance(text, str) for text in datasets):
        raise Error(f"{name}: '{_DATASETS}' must be a list of texts, got {short_repr(datasets)}")
    if type(chunks) is not int or chunks < 0:
        raise Error(f"{name}: '{_CHUNKS}' must be a number of chunks, got {short_repr(chunks)}")
    stems = {key.removesuffix(suffix) for key in weights for suffix in (_SUMS, _COUNTS) if key.endswith(suffix)}
    return ImportanceMatrix({stem: _means(weights, stem) for stem in sorted(stems)}, name, datasets, chunks)


def _means(weights: Weights, stem: str) -> np.ndarray:
    """Return the sums of a tensor, divided by the number of tokens. A matrix that had no token is equal to ones."""
    sums, counts = (_plain(weights, stem + suffix) for suffix in (_SUMS, _COUNTS))
    if not counts.size or sums.size % counts.size or not sums.size:
        raise Error(f"{weights.origin}: '{stem}' has {sums.size} sums and {counts.size} counts", hint=_HINT)
    if not np.isfinite(counts).all() or (counts < 0).any():
        raise Error(f"{weights.origin}: the counts of '{stem}' must be finite and not negative", hint=_HINT)
    counts = np.rint(counts.reshape(-1, 1))
    with np.errstate(all="ignore"):
        return np.where(counts > 0, sums.reshape(counts.size, -1) / np.where(counts > 0, counts, 1), 1).astype(
            np.float32
        )


def _plain(weights: Weights, name: str) -> np.ndarray:
    weight: Weight | None = weights.get(name)
    if weight is None:
        raise Error(f"{weights.origin} has no tensor '{name}'", hint=_HINT)
    if weight.dtype != np.float32:
        raise Error(f"{weights.origin}: '{name}' must be f32, got {weight.dtype}", hint=_HINT)
    return weight.numpy()


class _Cursor:
    """A position in a binary file, whose numbers are i32."""

    def __init__(self, content: Content, name: str):
        self.content, self.name, self.position = content, name, 0

    def error(self) -> Error:
        return Error(f"cannot read {self.name}: it is not an importance matrix, or damaged", hint=_HINT)

    @property
    def rest(self) -> int:
        return len(self.content) - self.position

    def number(self, least: int, most: int) -> int:
        """Read a number in a range."""
        if self.rest < 4:
            raise self.error()
        (value,) = struct.unpack_from("<i", self.content, self.position)
        self.position += 4
        if not least <= value <= most:
            raise self.error()
        return value

    def data(self, size: int) -> bytes:
        """Read bytes. The caller has checked that the file has enough."""
        self.position += size
        return bytes(self.content[self.position - size : self.position])

    def text(self) -> str:
        try:
            return self.data(self.number(0, min(self.rest - 4, _LONGEST_NAME))).decode()
        except UnicodeDecodeError:
            raise self.error() from None


def _from_binary(content: Content, name: str) -> ImportanceMatrix:
    cursor = _Cursor(content, name)
    entries: dict[str, np.ndarray] = {}
    for _ in range(cursor.number(1, len(content) // 16)):
        tensor = cursor.text()
        calls = cursor.number(-(2**31), 2**31 - 1)
        size = cursor.number(1, (cursor.rest - 4) // 4)
        values = np.frombuffer(cursor.data(4 * size), "<f4").astype(np.float32)
        if tensor in entries:
            raise Error(f"{name} has two entries of {short_repr(tensor)}", hint=_HINT)
        entries[tensor] = (values / np.float32(calls) if calls > 0 else values).reshape(1, -1)
    trailer: dict[str, Any] = {}
    if cursor.rest >= 4:
        trailer["chunks"] = max(cursor.number(-(2**31), 2**31 - 1), 0)
    if cursor.rest >= 4:
        trailer["datasets"] = (cursor.text(),)
    return ImportanceMatrix(entries, name, **trailer)

"""Checked access to the metadata of a GGUF file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlx.support.errors import Error
from rlx.support.short import short_repr

_PREFIX = "tokenizer.ggml."


class TokenizerMetadata:
    """The entries of a GGUF file whose keys start with `tokenizer.ggml.`, checked when they are read.

    Args:
        values: All metadata: strings, numbers, arrays of numbers as NumPy arrays, and arrays of strings as tuples.
        origin: The file, for messages.
    """

    def __init__(self, values: Mapping[str, Any], origin: str):
        self.values, self.origin = values, origin

    def error(self, key: str, expected: str, value: object) -> Error:
        """Return the error for a value of another type or outside its range."""
        return Error(f"{self.origin}: expected {_PREFIX}{key} to be {expected}, got {short_repr(value)}")

    def text(self, key: str, default: str) -> str:
        """Return a string."""
        value = self.values.get(_PREFIX + key, default)
        if not isinstance(value, str):
            raise self.error(key, "a string", value)
        return value

    def flag(self, key: str, default: bool) -> bool:
        """Return a boolean."""
        value = self.values.get(_PREFIX + key, default)
        if not isinstance(value, bool | np.bool_):
            raise self.error(key, "a boolean", value)
        return bool(value)

    def token_id(self, key: str, count: int, default: int | None = None) -> int | None:
        """Return the id of a special token. A default that is not in the vocabulary is None."""
        value = self.values.get(_PREFIX + key)
        if value is None:
            return default if default is not None and default < count else None
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value < count:
            raise self.error(key, f"an id from 0 to {count - 1}", value)
        return int(value)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return an array of strings."""
        value = self.values.get(_PREFIX + key)
        if value is None:
            raise Error(f"{self.origin}: {_PREFIX}{key} is missing")
        # An empty array has no strings to tell its type.
        if isinstance(value, np.ndarray | list) and not len(value):
            return ()
        if not isinstance(value, tuple | list) or not all(issubclass(kind, str) for kind in set(map(type, value))):
            raise self.error(key, "an array of strings", value)
        try:
            "".join(value).encode()
        except UnicodeEncodeError:
            i = next(i for i, text in enumerate(value) if any("\ud800" <= c <= "\udfff" for c in text))
            raise Error(f"{self.origin}: {_PREFIX}{key}[{i}] is not valid UTF-8") from None
        return tuple(value)

    def numbers(self, key: str, count: int, kinds: str) -> np.ndarray | None:
        """Return an array of numbers, one for each token, or None where it is missing.

        Args:
            key: The key after `tokenizer.ggml.`.
            count: The number of tokens.
            kinds: The accepted kinds of NumPy's dtypes.
        """
        value = self.values.get(_PREFIX + key)
        if value is None:
            return None
        if not isinstance(value, np.ndarray) or value.ndim != 1 or value.dtype.kind not in kinds:
            raise self.error(key, "an array of numbers", value)
        # llama.cpp accepts longer arrays, which the padding of some vocabularies has made.
        if len(value) < count:
            raise Error(f"{self.origin}: {_PREFIX}{key} has {len(value)} entries for {count} tokens")
        return value[:count]

    def scores(self, count: int) -> list[float]:
        """Return the score of each token."""
        values = self.numbers("scores", count, "fiu")
        if values is None:
            raise Error(f"{self.origin}: {_PREFIX}scores is missing, which this type of tokenizer needs")
        scores: list[float] = values.astype(np.float64).tolist()
        if any(map(math.isnan, scores)):
            raise Error(f"{self.origin}: {_PREFIX}scores has NaN for token {[*map(math.isnan, scores)].index(True)}")
        return scores

    def bytes(self, key: str) -> bytes:
        """Return an array of 8-bit numbers as bytes."""
        value = self.values.get(_PREFIX + key)
        if not isinstance(value, np.ndarray) or value.ndim != 1 or value.dtype.kind not in "iu" or value.itemsize != 1:
            raise self.error(key, "an array of bytes", value)
        return value.tobytes()

"""The fields of a `config.json`. Each is checked when it is read, because the file is not trusted."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlx.ir.op.attributes import suggestion
from rlx.support.errors import Error
from rlx.support.files import read_json

# No published model is close to these limits. Larger values would fail later, in size arithmetic or for lack of memory.
_LARGEST_SIZE = 1 << 24
_LARGEST_NUMBER = 1e30

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_approx",
    "gelu_pytorch_tanh": "gelu_approx",
    "gelu_fast": "gelu_approx",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


class Fields:
    """An object of a configuration file.

    Args:
        data: Its values by name.
        file: The name of the file, for messages.
        place: The path of the object in the file: `"rope_scaling."`.
        names: The names of fields in the file, where they differ: the path of a field, and its name in messages.
    """

    def __init__(self, data: Mapping[str, Any], file: str, place: str = "", names: Mapping[str, str] | None = None):
        self.data, self.file, self.place = data, file, place
        self._names = names or {}

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Fields:
        """Return the fields of a file.

        Raises:
            Error: The file is missing, or is not a JSON object.
        """
        name, data = os.fspath(path), read_json(path)
        if not isinstance(data, dict):
            raise Error(f"cannot read {name}: expected an object with a 'model_type', got {type(data).__name__}")
        return cls(data, name)

    def renamed(self, **names: str) -> Fields:
        """Return the fields under other names: `hidden_size="n_embd"`. Fields that have the new name already stay."""
        found = {new: old for new, old in names.items() if new not in self.data and old in self.data}
        data = {**self.data, **{new: self.data[old] for new, old in found.items()}}
        missing = {new: old for new, old in names.items() if new not in data}
        return Fields(data, self.file, self.place, {**missing, **found, **self._names})

    def with_defaults(self, **values: Any) -> Fields:
        """Return the fields with values for those that are absent."""
        return Fields({**values, **self.data}, self.file, self.place, self._names)

    def replaced(self, **values: Any) -> Fields:
        """Return the fields with other values."""
        return Fields({**self.data, **values}, self.file, self.place, self._names)

    def shown(self, name: str) -> str:
        """Return the name of a field in messages."""
        return self._names.get(f"{self.place}{name}", f"{self.place}{name}")

    def has(self, name: str) -> bool:
        """Return whether a field exists and is not null."""
        return self.data.get(name) is not None

    def refusal(self, name: str, expected: str) -> Error:
        """Return the error for a field with an unexpected value."""
        return Error(f"{self.file}: '{self.shown(name)}' must be {expected}, got {self.data.get(name)!r:.80}")

    def size(self, name: str, default: int | None = None, *, least: int = 1, most: int = _LARGEST_SIZE) -> int:
        """Return a size, or the default if the field is absent.

        Raises:
            Error: It is not an integer from `least` to `most`, or is absent without a default.
        """
        value = self._get(name, default)
        if type(value) is not int or value < least:
            raise self.refusal(name, "a positive integer" if least == 1 else f"an integer of at least {least}")
        if value > most:
            raise self.refusal(name, f"at most {most}")
        return value

    def number(self, name: str, default: float | None = None, *, least: float = 0) -> float:
        """Return a number, or the default if the field is absent.

        Raises:
            Error: It is not a number of at least `least`, or is absent without a default.
        """
        value = self._get(name, default)
        if type(value) not in (int, float) or not least <= value <= _LARGEST_NUMBER:
            raise self.refusal(name, f"a number of at least {least:g}" if least else "a number that is not negative")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """Return a boolean, or the default if the field is absent."""
        value = self._get(name, default)
        if type(value) is not bool:
            raise self.refusal(name, "true or false")
        return value

    def numbers(self, name: str, count: int, *, least: float = 0) -> tuple[float, ...]:
        """Return a list of numbers.

        Raises:
            Error: It is not a list of `count` numbers of at least `least`.
        """
        values = self._get(name, None)
        is_list = isinstance(values, (list, tuple)) and len(values) == count
        if not is_list or any(type(v) not in (int, float) or not least <= v <= _LARGEST_NUMBER for v in values):
            raise self.refusal(name, f"a list of {count} numbers of at least {least:g}")
        return tuple(float(v) for v in values)

    def choice(self, name: str, among: Sequence[str], default: str) -> str:
        """Return one of several strings, or the default if the field is absent."""
        value = self._get(name, default)
        if not isinstance(value, str) or value not in among:
            raise self.refusal(name, f"one of {', '.join(among)}")
        return value

    def activation(self, name: str, default: str) -> str:
        """Return the name of an activation function: a key of `ACTIVATIONS`."""
        return self.choice(name, tuple(ACTIVATIONS), default)

    def optional(self, name: str, read: Callable[[str, Any], Any], default: Any) -> Any:
        """Return a field that `read` reads; None if the field is null. A null field differs in meaning from an absent field."""
        return None if self.data.get(name, default) is None else read(name, default)

    def within(self, name: str) -> Fields | None:
        """Return the object in a field; None if the field is absent or null.

        Raises:
            Error: It is not an object.
        """
        value = self.data.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.refusal(name, "an object")
        return Fields(value, self.file, f"{self.place}{name}.", self._names)

    def only(self, **expected: Any) -> None:
        """Check fields for which only one value is supported, if they are present.

        Raises:
            Error: A field has an unsupported value, with which the model would compute something else.
        """
        for name, value in expected.items():
            if self.has(name) and (type(self.data[name]) is not type(value) or self.data[name] != value):
                given, wanted = repr(self.data[name]), repr(value)
                raise Error(f"{self.file}: {self.shown(name)} {given:.80} is not supported; expected {wanted}")

    def divided(self, name: str, size: int, heads: int) -> int:
        """Return the number of lanes of each head: `size / heads`.

        Raises:
            Error: The division has a remainder.
        """
        if size % heads:
            raise Error(f"{self.file}: {size} lanes do not divide into {heads} heads ('{self.shown(name)}')")
        return size // heads

    def _get(self, name: str, default: Any) -> Any:
        if name in self.data:
            return self.data[name]
        if default is None:
            similar = "" if f"{self.place}{name}" in self._names else suggestion(name, self.data)
            raise Error(f"{self.file} has no '{self.shown(name)}'{similar}")
        return default

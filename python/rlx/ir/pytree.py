"""Nested containers of arrays or tensors ("pytrees"): flattening into leaves, and rebuilding.

Containers are dictionaries, lists, tuples, named tuples, `None` (without leaves), and dataclasses. All other values are
leaves.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rlx.support.errors import Error
from rlx.support.guards import is_list, is_tuple

_DEEPEST = 200  # a container that contains itself would recurse without end


@dataclass(frozen=True)
class Structure:
    """A pytree without its leaves. Two structures are equal if they build equal containers from the same leaves.

    Attributes:
        kind: The class of the container, None for a leaf.
        keys: Keys, positions or names of fields, in the order of the container.
        children: The structures of the entries, in that order.
        fixed: Fields of a dataclass with the metadata `static=True`: names, results of `distinct`, and values.
    """

    kind: type | None = None
    keys: tuple[Any, ...] = ()
    children: tuple[Structure, ...] = ()
    fixed: tuple[tuple[str, Any, Any], ...] = ()

    @property
    def num_leaves(self) -> int:
        return 1 if self.kind is None else sum(child.num_leaves for child in self.children)

    def paths(self, prefix: str) -> Iterator[str]:
        """Yield the path to each leaf in Python syntax: `params["w"]`, `layers[0].bias`."""
        if self.kind is None:
            yield prefix
        for key, child in zip(self.keys, self.children, strict=True):
            yield from child.paths(prefix + _step(self.kind, key))

    def build(self, leaves: Sequence[Any]) -> Any:
        """Return the pytree with the given leaves.

        Raises:
            Error: The number of leaves is not `num_leaves`.
        """
        if len(leaves) != self.num_leaves:
            raise Error(f"expected {self.num_leaves} leaves, got {len(leaves)}")
        return self._built(iter(leaves))

    def _built(self, leaves: Iterator[Any]) -> Any:
        kind: Any = self.kind
        if kind is None:
            return next(leaves)
        values = [child._built(leaves) for child in self.children]
        if kind is type(None):
            return None
        if _is_dict(kind):
            return kind(zip(self.keys, values, strict=True))
        if dataclasses.is_dataclass(kind):
            return _dataclass(kind, [*zip(self.keys, values, strict=True), *((n, v) for n, _, v in self.fixed)])
        return kind(*values) if hasattr(kind, "_fields") else kind(values)


LEAF = Structure()


def flatten(value: object) -> tuple[list[Any], Structure]:
    """Return the leaves of a pytree, depth first, and its structure.

    Raises:
        Error: It is nested more than 200 deep, or a static field of a dataclass cannot be hashed.
    """
    leaves: list[Any] = []
    return leaves, _flatten(value, leaves, 0)


def map_leaves(function: Callable[[Any], Any], value: object) -> Any:
    """Return the pytree with `function` applied to each leaf."""
    leaves, structure = flatten(value)
    return structure.build([function(leaf) for leaf in leaves])


def _flatten(value: Any, leaves: list[Any], depth: int) -> Structure:
    if depth > _DEEPEST:
        raise Error(f"containers are nested more than {_DEEPEST} deep", hint="does one contain itself?")
    kind = _class(value)
    fixed: tuple[tuple[str, Any, Any], ...] = ()
    if value is None:
        keys, values = (), ()
    elif kind is dict or kind is OrderedDict:
        keys, values = tuple(value), tuple(value.values())
    elif kind is list or kind is tuple or (is_tuple(value) and hasattr(value, "_fields")):
        keys, values = getattr(value, "_fields", tuple(range(len(value)))), tuple(value)
    elif dataclasses.is_dataclass(value) and _is_plain(kind):
        static = [f.name for f in dataclasses.fields(value) if f.metadata.get("static")]
        keys = tuple(f.name for f in dataclasses.fields(value) if f.name not in static)
        values = tuple(getattr(value, name) for name in keys)
        fixed = tuple(_hashable(getattr(value, name), kind, name) for name in static)
    else:
        leaves.append(value)
        return LEAF
    return Structure(kind, keys, tuple(_flatten(entry, leaves, depth + 1) for entry in values), fixed)


def _class(value: object) -> Any:
    return type(value)


def _is_dict(kind: Any) -> bool:
    return issubclass(kind, dict)


def _is_plain(kind: Any) -> bool:
    """Whether a dataclass is a container. One that has a shape, or converts to an array, is a leaf."""
    return not hasattr(kind, "shape") and not hasattr(kind, "__array__")


def distinct(value: Any) -> Any:
    """Return a key for a hashable value that distinguishes values that Python considers equal.

    These are 1 and True, 0.0 and -0.0, also inside tuples.
    """
    kind = _class(value)
    if isinstance(value, float):
        return kind, float.hex(value)
    if isinstance(value, complex):
        return kind, float.hex(value.real), float.hex(value.imag)
    return (kind, *map(distinct, value)) if is_tuple(value) else (kind, value)


def _hashable(value: Any, kind: Any, name: str) -> tuple[str, Any, Any]:
    try:
        hash(value)
    except TypeError:
        raise Error(f"the static field '{name}' of {kind.__name__} cannot be hashed: {type(value).__name__}") from None
    return name, distinct(value), value


def _dataclass(kind: Any, fields: list[tuple[str, Any]]) -> Any:
    """Create an instance with these fields. `__init__` is bypassed, because it may take other arguments or check arrays."""
    instance: Any = object.__new__(kind)
    for name, value in fields:
        object.__setattr__(instance, name, value)
    return instance


def _step(kind: type | None, key: Any) -> str:
    if kind is None or is_list(key):
        return ""
    if issubclass(kind, (dict, list)) or not isinstance(key, str):
        text = key.replace("\\", "\\\\").replace('"', '\\"') if isinstance(key, str) else None
        return f'["{text}"]' if text is not None else f"[{key!r}]"
    return f".{key}"

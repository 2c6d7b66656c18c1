"""What a user can call: every op and every kind of the enumerated ops, as methods of `Builder`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from rlx.ir import registry
from rlx.ir.builder import Builder, method_of

# Kinds of enumerated ops that are methods of their own: op -> {method: kind}.
_KINDS: dict[str, dict[str, str]] = {
    "binary": {"maximum": "max", "minimum": "min"} | {k: k for k in ("add", "sub", "mul", "div", "pow")},
    "compare": {k: k for k in ("eq", "ne", "lt", "le", "gt", "ge")},
    "reduce": {k: k for k in ("sum", "mean", "max", "min", "prod")},
}


def kinds() -> dict[str, dict[str, str]]:
    """The kinds that are methods of their own, by op: method name to kind."""
    activations = registry.SPECS["activation"].attributes[0].cases
    return _KINDS | {"activation": {kind: kind for kind in activations}}


def _kind_method(op: str, name: str, kind: str) -> Callable[..., Any]:
    def method(self: Builder, *args: Any, **kwargs: Any) -> Any:
        return getattr(self, op)(kind, *args, **kwargs)

    method.__name__ = name
    method.__qualname__ = f"Graph.{name}"
    method.__doc__ = f"`{op}` of kind `{kind}`.\n\n{registry.SPECS[op].description}"
    return method


@cache
def methods() -> dict[str, Callable[..., Any]]:
    """Every op method, by name."""
    result = {name: method_of(registry.card(name)) for name in registry.SPECS if name in registry._cards}
    for op, named in kinds().items():
        result |= {name: _kind_method(op, name, kind) for name, kind in named.items()}
    return result


def install() -> None:
    """Put all methods of the ops that are registered by now on `Builder`."""
    methods.cache_clear()
    for name, method in methods().items():
        setattr(Builder, name, method)

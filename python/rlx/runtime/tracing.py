"""Signatures and static arguments of functions under `rlx.jit`, `rlx.model` and `rlx.jax_function`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from rlx.ir.pytree import distinct
from rlx.support.errors import Error
from rlx.support.short import short_repr
from rlx.support.traces import defined_at


def signature_of(function: Any, decorator: str) -> inspect.Signature:
    """Return the signature of a function to trace.

    Raises:
        Error: It is not a function, or has no signature.
    """
    if not callable(function):
        raise Error(f"{decorator} takes a function of tensors, got {short_repr(function)}")
    try:
        return inspect.signature(function)
    except (TypeError, ValueError) as problem:
        raise Error(f"{decorator} takes a function of tensors: {problem}") from None


def name_of(function: Any) -> str:
    """Return the name of a function; for another callable, the name of its class."""
    return getattr(function, "__name__", None) or name_of(getattr(function, "func", type(function)))


def bound_to(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any], what: str
) -> dict[str, Any]:
    """Return the arguments of a call by name, without those that have their defaults.

    Raises:
        Error: The call does not fit the signature.
    """
    try:
        return signature.bind(*args, **kwargs).arguments
    except TypeError as problem:
        raise Error(f"{what}: {problem}") from None


def static_names(static: Any, signature: inspect.Signature, what: str) -> frozenset[str]:
    """Return the names of the arguments that are not traced, from one name or several.

    Raises:
        Error: The function lacks the argument.
    """
    try:
        names = [static] if isinstance(static, str) else list(static)
    except TypeError:
        names = [static]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    for name in names:
        if not isinstance(name, str) or (name not in signature.parameters and not takes_any):
            known = ", ".join(signature.parameters) or "none"
            raise Error(f"{what}: static= takes names of arguments, got {short_repr(name)}; the function has {known}")
    return frozenset(names)


def static_key(static: Mapping[str, Any], what: str, hint: str) -> tuple[tuple[str, Any], ...]:
    """Return static arguments as a dictionary key: see `distinct`.

    Raises:
        Error: A value cannot be hashed.
    """
    for name, value in static.items():
        try:
            hash(value)
        except TypeError:
            kind = type(value).__name__
            raise Error(f"{what}: static argument '{name}' must be hashable, got {kind}", hint=hint) from None
    return tuple((name, distinct(static[name])) for name in sorted(static))


def place_of(function: Callable[..., Any]) -> str | None:
    """Return `file:line`, where a function is defined, for an error about the function as a whole."""
    place = defined_at(function)
    return None if place is None else place.removeprefix("see ")

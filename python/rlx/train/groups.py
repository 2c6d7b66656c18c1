"""Optimiser options for groups of parameters, by patterns of their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from fnmatch import fnmatchcase
from typing import Any

from rlx.ir.interface import Argument
from rlx.support.errors import Error
from rlx.support.guards import is_mapping, is_sequence
from rlx.support.suggestions import suggestion
from rlx.train.optimizers import Optimizer

Groups = Mapping[str, Mapping[str, Any]]
Mask = Iterable[str] | Callable[[str, Any], bool]


def optimizers_of(
    optimizer: Optimizer, params: Iterable[Argument], groups: Groups | None, mask: Mask | None
) -> dict[str, Optimizer]:
    """Return the optimiser of each parameter, by name: see `TrainStep`.

    Raises:
        Error: A pattern does not match a parameter, or the optimiser does not have an option.
    """
    arguments = list(params)
    patterns = _checked(optimizer, groups)
    chosen: dict[str, Optimizer] = {}
    for argument in arguments:
        options = next((options for pattern, options in patterns.items() if fnmatchcase(argument.name, pattern)), {})
        chosen[argument.name] = replace(optimizer, **options) if options else optimizer
    _check_used("groups", patterns, arguments)
    if mask is None:
        return chosen
    _check_option(optimizer, "weight_decay", "weight_decay_mask")
    decays = _decaying(mask, arguments)
    return {n: o if n in decays else replace(o, **{"weight_decay": 0.0}) for n, o in chosen.items()}


def _checked(optimizer: Optimizer, groups: Any) -> Groups:
    if groups is None:
        return {}
    if not is_mapping(groups) or not all(isinstance(p, str) and is_mapping(o) for p, o in groups.items()):
        raise Error(
            f"groups must be a mapping of patterns to options, got {groups!r:.60}",
            hint='groups={"*bias": {"weight_decay": 0.0}, "head.*": {"learning_rate": 1e-3}}',
        )
    for pattern, options in groups.items():
        for option in options:
            _check_option(optimizer, option, f"groups: '{pattern}'")
    return groups


def _check_option(optimizer: Optimizer, option: Any, what: str) -> None:
    known = [field.name for field in fields(optimizer)]
    if option not in known:
        close = suggestion(option, known)
        raise Error(f"{what}: {type(optimizer).__name__} has no option '{option}'{close}; it has {', '.join(known)}")


def _check_used(what: str, patterns: Iterable[str], arguments: list[Argument]) -> None:
    for pattern in patterns:
        if not any(fnmatchcase(a.name, pattern) for a in arguments):
            names = ", ".join(a.name for a in arguments[:10]) + (" …" if len(arguments) > 10 else "")
            raise Error(f"{what}: no trained parameter fits '{pattern}'; there are {names}")


def _decaying(mask: Any, arguments: list[Argument]) -> set[str]:
    """Return the names of the parameters with weight decay."""
    if callable(mask):
        results = {a.name: mask(a.name, a.shape) for a in arguments}
        wrong = next((n for n, r in results.items() if not isinstance(r, bool)), None)
        if wrong is not None:
            raise Error(f"weight_decay_mask must give True or False, gave {results[wrong]!r:.60} for '{wrong}'")
        return {name for name, result in results.items() if result}
    patterns = [mask] if isinstance(mask, str) else mask
    if not is_sequence(patterns) or not all(isinstance(p, str) for p in patterns):
        expected = "patterns of names, or a function of a name and a shape"
        raise Error(f"weight_decay_mask must be {expected}, got {mask!r:.60}")
    _check_used("weight_decay_mask", patterns, arguments)
    return {a.name for a in arguments if any(fnmatchcase(a.name, p) for p in patterns)}

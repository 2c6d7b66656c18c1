"""Argument groups: dataclasses of operands or attributes that belong together, as parameters of rules.

    @dataclass(frozen=True)
    class DotDims(ArgumentGroup):
        lhs_contracting: tuple[int, ...]
        rhs_contracting: tuple[int, ...]
        lhs_batch: tuple[int, ...]
        rhs_batch: tuple[int, ...]

    def infer(self, lhs: Shape, rhs: Shape, *, dims: DotDims) -> Shape: ...

The rule is still called with the operands and attributes of the op. All rules of a card may take groups, and so may
registered lowering rules.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class ArgumentGroup:
    """Base class of argument groups, which are frozen dataclasses. Fields are named after operands or attributes of ops."""

    @property
    def named(self) -> dict[str, Any]:
        """The operands or attributes of the group, by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True)
class _Taken:
    """A parameter of a rule: its group, or None for a single argument, and the names of its fields."""

    name: str
    group: type[Any] | None
    names: tuple[str, ...]


def takes_flat(rule: F) -> F:
    """Return a function that takes the fields of a rule's groups one by one, and calls the rule with the groups.

    A positional group parameter receives one operand per field of the group. A keyword group parameter receives the
    attributes that have the names of its fields. A rule without groups is returned unchanged.
    """
    groups = _groups_of(rule)
    if not groups:
        return rule
    parameters = inspect.signature(rule).parameters.values()
    positional, keywords = list[_Taken](), list[_Taken]()
    for p in parameters:
        group = groups.get(p.name)
        if p.kind is p.KEYWORD_ONLY and group is not None:
            keywords.append(_Taken(p.name, group, tuple(f.name for f in fields(group))))
        elif p.kind is p.POSITIONAL_OR_KEYWORD:
            positional.append(_Taken(p.name, group, tuple(f.name for f in fields(group)) if group else (p.name,)))

    @functools.wraps(rule)
    def flat(*args: Any, **kwargs: Any) -> Any:
        for taken in keywords:
            assert taken.group is not None
            kwargs[taken.name] = taken.group(**{name: kwargs.pop(name) for name in taken.names if name in kwargs})
        return rule(*_grouped(positional, args), **kwargs)

    flat.__signature__ = _flat_signature(rule, groups)  # pyright: ignore[reportAttributeAccessIssue]
    return flat  # pyright: ignore[reportReturnType]


def _grouped(positional: list[_Taken], args: tuple[Any, ...]) -> Iterator[Any]:
    start = 0
    for taken in positional:
        if start >= len(args):
            return
        count = len(taken.names)
        yield args[start] if taken.group is None else taken.group(*args[start : start + count])
        start += count
    yield from args[start:]


def _groups_of(rule: Callable[..., Any]) -> dict[str, type[Any]]:
    """The groups that a rule takes, by parameter. Annotations are looked up by name and not evaluated, to save time."""
    scope: Mapping[str, Any] = getattr(rule, "__globals__", {})
    annotations: Mapping[str, Any] = getattr(rule, "__annotations__", {})
    found = {name: scope.get(a) if isinstance(a, str) else a for name, a in annotations.items()}
    return {name: a for name, a in found.items() if inspect.isclass(a) and issubclass(a, ArgumentGroup)}


def _flat_signature(rule: Callable[..., Any], groups: Mapping[str, type[Any]]) -> inspect.Signature:
    signature = inspect.signature(rule)
    flat: list[inspect.Parameter] = []
    for p in signature.parameters.values():
        if p.name in groups:
            flat += (p.replace(name=f.name, annotation=f.type) for f in fields(groups[p.name]))
        else:
            flat.append(p)
    return signature.replace(parameters=flat)

"""Argument groups: dataclasses of operands or attributes that belong together, as parameters of rules.

    @dataclass(frozen=True)
    class DotDims(ArgumentGroup):
        lhs_contracting: tuple[int, ...]
        rhs_contracting: tuple[int, ...]
        lhs_batch: tuple[int, ...]
        rhs_batch: tuple[int, ...]

    def infer(self, lhs: Shape, rhs: Shape, *, dims: DotDims) -> Shape: ...

A group of operands is generic in the type of an operand: `weights: LstmWeights[Tensor]`.

The rule is still called with the operands and attributes of the op. All rules of a card may take groups, and so may
registered lowering rules and the rules of importers (`rlx.importers.table`).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any, TypeVar, get_origin

F = TypeVar("F", bound=Callable[..., Any])


# The names of all groups: most rules take none, and this is asked of every rule at import.
_NAMES: set[str] = set()


class ArgumentGroup:
    """Base class of argument groups, which are frozen dataclasses. Fields are named after operands or attributes of ops."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        _NAMES.add(cls.__name__)

    @property
    def named(self) -> dict[str, Any]:
        """The operands or attributes of the group, by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # pyright: ignore[reportArgumentType]


def takes_flat(rule: F) -> F:
    """Return a function that takes the fields of a rule's groups one by one, and calls the rule with the groups.

    A positional group parameter receives one operand per field of the group. A keyword group parameter receives the
    attributes that have the names of its fields. A rule without groups is returned unchanged.
    """
    groups = groups_of(rule)
    if not groups:
        return rule
    signature = inspect.signature(rule)
    parameters = _flat_parameters(signature, groups)
    defaults = {f"_default_{p.name}": p.default for p in parameters if p.default is not p.empty}
    scope = {"_rule": rule, **{f"_group_{name}": group for name, group in groups.items()}, **defaults}
    arguments = ", ".join(_passed(p, groups.get(p.name)) for p in signature.parameters.values())
    # As source, because a builder calls `infer` for every op: a loop over the names takes twice the time.
    source = f"lambda {', '.join(_declared(parameters))}: _rule({arguments})"
    flat: Any = functools.update_wrapper(eval(compile(source, __file__, "eval"), scope), rule)
    flat.__signature__ = signature.replace(parameters=parameters)
    return flat


def groups_of(rule: Callable[..., Any]) -> dict[str, type[Any]]:
    """Return the groups that a rule takes, by parameter. Annotations are looked up by name and not evaluated, to save time."""
    annotations: Mapping[str, Any] = getattr(rule, "__annotations__", {})
    named = {
        n: a for n, a in annotations.items() if n != "return" and (not isinstance(a, str) or _class_name(a) in _NAMES)
    }
    if not named:
        return {}
    scope: Mapping[str, Any] = getattr(inspect.unwrap(rule), "__globals__", {})
    found = {n: scope.get(_class_name(a)) if isinstance(a, str) else a for n, a in named.items()}
    found = {name: get_origin(a) or a for name, a in found.items()}
    return {name: a for name, a in found.items() if inspect.isclass(a) and issubclass(a, ArgumentGroup)}


def _class_name(annotation: str) -> str:
    return annotation.partition("[")[0].removesuffix(" | None")


def _flat_parameters(signature: inspect.Signature, groups: Mapping[str, type[Any]]) -> list[inspect.Parameter]:
    flat: list[inspect.Parameter] = []
    for p in signature.parameters.values():
        for f in fields(groups[p.name]) if p.name in groups else ():
            default = p.empty if f.default is MISSING else f.default
            flat.append(p.replace(name=f.name, annotation=f.type, default=default))
        if p.name not in groups:
            flat.append(p)
    return flat


def _declared(parameters: Sequence[inspect.Parameter]) -> Iterator[str]:
    """Parameters as the source of a lambda, with defaults by name."""
    keywords_follow = False
    for p in parameters:
        if p.kind is p.KEYWORD_ONLY and not keywords_follow:
            yield "*"
        keywords_follow |= p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL)
        stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        yield f"{stars}{p.name}" if p.default is p.empty else f"{p.name}=_default_{p.name}"


def _passed(parameter: inspect.Parameter, group: type[Any] | None) -> str:
    """The argument of a rule for one of its parameters, as source."""
    name = parameter.name
    value = name if group is None else f"_group_{name}({', '.join(f.name for f in fields(group))})"
    if parameter.kind is parameter.KEYWORD_ONLY:
        return f"{name}={value}"
    return {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "") + value

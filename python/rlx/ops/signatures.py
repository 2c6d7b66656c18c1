"""The signatures of the op methods, made from the cards: what `help`, notebooks and the type stubs show."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from inspect import Parameter, Signature
from typing import Any

from rlx.dialect.spec import REQUIRED, OpSpec
from rlx.ir.card import Card

SELF = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)

_PLAIN = re.compile(r"(int|float|bool|str)( \| None)?")
KINDS = {"i64": "int", "f64": "float", "bool": "bool"}
_STARS: dict[Any, str] = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}


def of_card(card: Card) -> Signature:
    """The signature of an op's method: the parameters of its `build`, or else operands and attributes, and `shape=`."""
    parameters = list(_of_function(type(card).build, 2) if _builds(card) else _of_record(card.spec))
    if not any(p.name == "shape" or p.kind == Parameter.VAR_KEYWORD for p in parameters):
        parameters.append(Parameter("shape", Parameter.KEYWORD_ONLY, default=None, annotation="Any"))
    return Signature([SELF, *parameters], return_annotation=_result(card))


def of_kind(op: Signature) -> Signature:
    """The signature of a method for one kind of an op: that of the op without `kind`."""
    return op.replace(parameters=[p for p in op.parameters.values() if p.name != "kind"])


def of_helper(function: Callable[..., Any]) -> Signature:
    """The signature of a helper as a method."""
    return Signature([SELF, *_of_function(function, 1)], return_annotation="Any")


def without_self(method: Signature) -> Signature:
    """The signature of a method as that of a function of `rlx.ops`."""
    return method.replace(parameters=list(method.parameters.values())[1:])


def _builds(card: Card) -> bool:
    return type(card).build is not Card.build


def _of_function(function: Callable[..., Any], skipped: int) -> Iterable[Parameter]:
    """The parameters of a card's own `build`, or of a helper, after the first ones; what stubs cannot name is `Any`."""
    for parameter in list(inspect.signature(function).parameters.values())[skipped:]:
        annotation = parameter.annotation
        plain = isinstance(annotation, str) and _PLAIN.fullmatch(annotation)
        yield parameter.replace(annotation=annotation if plain else "Any")


def _of_record(spec: OpSpec) -> Iterable[Parameter]:
    """Operands, then attributes, of an op without a `build` of its own."""
    trailing = len(spec.operands)  # an optional operand before a required one has to be given, if only as None
    while trailing and spec.operands[trailing - 1].arity != "single":
        trailing -= 1
    for i, operand in enumerate(spec.operands):
        default = None if i >= trailing else Parameter.empty
        yield Parameter(operand.name, Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation="Any")
    place = Parameter.POSITIONAL_OR_KEYWORD if trailing == len(spec.operands) else Parameter.KEYWORD_ONLY
    for attribute in sorted(spec.attributes, key=lambda a: not a.required):
        annotation = KINDS.get(attribute.kind, "Any")
        if attribute.default is None and annotation != "Any":
            annotation += " | None"
        default = Parameter.empty if attribute.default is REQUIRED else attribute.default
        yield Parameter(attribute.name, place, default=default, annotation=annotation)


def _result(card: Card) -> str:
    results = card.spec.results
    # A `build` of its own that gives some of several results says so, by promising nothing.
    is_free = _builds(card) and type(card).build.__annotations__.get("return") == "Any" and len(results) > 1
    if is_free or any(v.arity == "variadic" for v in results):
        return "Any"
    return "Tensor" if len(results) == 1 else f"tuple[{', '.join(['Tensor'] * len(results))}]"


def stub(signature: Signature) -> str:
    """A signature as in a stub: `(x: Any, axis: int = ..., *, shape: Any = ...) -> Tensor`."""
    shown: list[str] = []
    before = None
    for parameter in signature.parameters.values():
        if parameter.kind is Parameter.KEYWORD_ONLY and before not in (
            Parameter.KEYWORD_ONLY,
            Parameter.VAR_POSITIONAL,
        ):
            shown.append("*")
        before = parameter.kind
        star = _STARS.get(parameter.kind, "")
        annotation = "" if parameter.annotation is Parameter.empty else f": {parameter.annotation}"
        default = "" if parameter.default is Parameter.empty else " = ..."
        shown.append(f"{star}{parameter.name}{annotation}{default}")
    return f"({', '.join(shown)}) -> {signature.return_annotation}"

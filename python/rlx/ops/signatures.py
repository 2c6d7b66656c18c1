"""Signatures of the op methods, derived from the cards, for `help`, notebooks and the type stubs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from inspect import Parameter, Signature
from typing import Any

from rlx.dialect.spec import REQUIRED, OpSpec, ValueSpec
from rlx.ir.op.card import Card

SELF = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)

KINDS = {"i64": "int", "f64": "float", "bool": "bool", "enum": "str", "str": "str"}
# Default types of arguments by name, for ops whose function does not have more specific annotations. The types are in
# `rlx.ir.graph.typing`.
_BY_NAME = {
    "axes": "int | Sequence[int] | None",
    "axis": "int",
    "dtype": "DTypeLike",
    "shape": "ShapeLike",
    "start": "Size",
    "length": "Size",
    "starts": "Sequence[Size]",
    "limits": "Sequence[Size]",
    "size": "ShapeLike",
    "padding": "Padding",
    "perm": "Sequence[int]",
    "sharding": "Sequence[str | Sequence[str] | None] | str",
    "xs": "TensorLike | Sequence[Any]",
    "op": "type[CustomOp] | str",
    "ord": "float | str",
    "scale": "TensorLike | Sequence[float]",
    "state": "TensorLike | Sequence[float]",
    **dict.fromkeys(("kernel", "stride", "strides", "dilation", "output_padding"), "Window"),
    **dict.fromkeys(("lhs_contracting", "rhs_contracting", "lhs_batch", "rhs_batch"), "Sequence[int]"),
    **dict.fromkeys(("args", "kwargs", "init"), "Any"),
}


class SignatureAnnotation(str):
    """A type as text. `help` shows it without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


_STARS: dict[Any, str] = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}


def of_card(card: Card) -> Signature:
    """Return the signature of an op's method: the parameters of its `build`, or operands and attributes, and `shape=`."""
    parameters = list(_of_function(type(card).build, 2, card.spec) if _builds(card) else _of_record(card.spec))
    if not any(p.name == "shape" or p.kind == Parameter.VAR_KEYWORD for p in parameters):
        parameters.append(
            Parameter("shape", Parameter.KEYWORD_ONLY, default=None, annotation=SignatureAnnotation("ShapeLike | None"))
        )
    return Signature([SELF, *parameters], return_annotation=SignatureAnnotation(_result(card)))


def of_kind(op: Signature) -> Signature:
    """Return the signature of a method for one kind of an op: that of the op without `kind`."""
    return op.replace(parameters=[p for p in op.parameters.values() if p.name != "kind"])


def of_helper(function: Callable[..., Any]) -> Signature:
    """Return the signature of a helper as a method."""
    result = function.__annotations__.get("return", "Any")
    return Signature([SELF, *_of_function(function, 1)], return_annotation=SignatureAnnotation(result))


def without_self(method: Signature) -> Signature:
    """Return the signature of a method as a function of `rlx.ops`."""
    return method.replace(parameters=list(method.parameters.values())[1:])


def _builds(card: Card) -> bool:
    return type(card).build is not Card.build


def _of_function(function: Callable[..., Any], skipped: int, spec: OpSpec | None = None) -> Iterable[Parameter]:
    """Yield the parameters of a card's own `build`, or of a helper, without the first ones."""
    operands = {operand.name: operand for operand in spec.operands} if spec is not None else {}
    enums = {attribute.name for attribute in spec.attributes if attribute.kind == "enum"} if spec is not None else ()
    for parameter in list(inspect.signature(function).parameters.values())[skipped:]:
        text = parameter.annotation if isinstance(parameter.annotation, str) else "Any"
        name = parameter.name
        if text == "Tensor" and (name in operands or spec is None):
            text = _operand(operands.get(name))
        elif text == "Any":
            text = "str" if name in enums else _BY_NAME.get(name) or _operand(operands.get(name))
            if parameter.default is None and not text.endswith("None"):
                text += " | None"
        yield parameter.replace(annotation=SignatureAnnotation(text))


def _operand(operand: ValueSpec | None) -> str:
    arities = {"single": "TensorLike", "optional": "TensorLike | None", "variadic": "Sequence[TensorLike]"}
    return arities[operand.arity if operand is not None else "single"]


def _of_record(spec: OpSpec) -> Iterable[Parameter]:
    """Yield operands, then attributes, of an op without its own `build`."""
    trailing = len(spec.operands)  # an optional operand before a required one must be passed, possibly as None
    while trailing and spec.operands[trailing - 1].arity != "single":
        trailing -= 1
    for i, operand in enumerate(spec.operands):
        default = None if i >= trailing else Parameter.empty
        annotation = SignatureAnnotation(_operand(operand))
        yield Parameter(operand.name, Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotation)
    place = Parameter.POSITIONAL_OR_KEYWORD if trailing == len(spec.operands) else Parameter.KEYWORD_ONLY
    for attribute in sorted(spec.attributes, key=lambda a: not a.required):
        text = KINDS.get(attribute.kind) or _BY_NAME.get(attribute.name, "Any")
        if attribute.default is None and not text.endswith("None"):
            text += " | None"
        default = Parameter.empty if attribute.default is REQUIRED else attribute.default
        yield Parameter(attribute.name, place, default=default, annotation=SignatureAnnotation(text))


def _result(card: Card) -> str:
    results = card.spec.results
    # A `build` annotated with `Any` may return only some of several results.
    is_free = _builds(card) and type(card).build.__annotations__.get("return") == "Any" and len(results) > 1
    if is_free or any(v.arity == "variadic" for v in results):
        return "Any"
    if card.named is not None:
        return card.named.__name__
    return "Tensor" if len(results) == 1 else f"tuple[{', '.join(['Tensor'] * len(results))}]"


def stub(signature: Signature) -> str:
    """Return a signature as in a stub: `(x: Any, axis: int = ..., *, shape: Any = ...) -> Tensor`."""
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

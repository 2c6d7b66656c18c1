"""Arguments of calls of op methods, bound to the operands and attributes of the op's record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.ir.calls import CallError
from rlx.ir.location import describe
from rlx.ir.op.custom import call_of
from rlx.support.suggestions import suggestion

if TYPE_CHECKING:
    from rlx.dialect.spec import OpSpec
    from rlx.ir.graph.builder import Builder
    from rlx.ir.op.card import Card


def bind_arguments(
    b: Builder, card: Card, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return the operands and attributes of a call: operands, then attributes in the order of the record, or by name.

    Raises:
        ShapeError: There are too many arguments, an operand is missing or passed twice, or a name is unknown.
    """
    spec = card.spec
    hint = (
        call_of(spec, repr(spec.name)) if spec.custom else None
    )  # a custom op has no method that an answer could show
    names = [operand.name for operand in spec.operands]
    parameters = [*names, *(attribute.name for attribute in spec.attributes)]
    if len(args) > len(parameters):
        raise b.problem(
            card, f"takes at most {len(parameters)} arguments ({', '.join(parameters)}), got {len(args)}", hint
        )
    arguments = dict(zip(parameters, args, strict=False))
    for name in kwargs:
        if name in arguments:
            count = _count_problem(spec, sum(hasattr(value, "shape") for value in args))
            raise b.problem(card, f"'{name}' is given twice{count}", hint)
    arguments |= kwargs
    attributes = {name: arguments.pop(name) for name in list(arguments) if name not in names}
    unknown = next((name for name in attributes if name not in parameters), "")
    operands: list[Any] = []
    for operand in spec.operands:
        if operand.name not in arguments and operand.arity == "single":
            count = _count_problem(spec, sum(name in arguments for name in names))
            raise b.problem(card, f"operand '{operand.name}' is missing{count}{suggestion(unknown, names)}", hint)
        operands.append(arguments.get(operand.name))
    if unknown and spec.custom:
        raise b.problem(card, f"unknown attribute '{unknown}'{suggestion(unknown, parameters)}", hint)
    if unknown:
        reason = f"got an unexpected keyword argument '{unknown}'"
        raise CallError.of(f"rlx.{card.name}", reason, parameters, describe(b.location), args, kwargs)
    return operands, attributes


def with_canonical_axes(spec: OpSpec, given: dict[str, Any], operands: Sequence[Any]) -> dict[str, Any]:
    """Return the attributes with negative values of `axis` and `axes` counted from the first axis of the first operand.

    The op's `infer` rejects what is out of range.
    """
    rank = getattr(operands[0], "rank", 0) if operands else 0

    def counted(axis: Any) -> Any:
        number: Any = axis.item() if isinstance(axis, np.integer) else axis
        return number + rank if type(number) is int and -rank <= number < 0 else number

    defaults = {a.name: a.default for a in spec.attributes if a.name in ("axis", "axes") and not a.required}
    result = defaults | given
    if "axis" in result:
        result["axis"] = counted(result["axis"])
    if isinstance(result.get("axes"), (list, tuple)):
        result["axes"] = tuple(map(counted, result["axes"]))
    return result


def _count_problem(spec: OpSpec, count: int) -> str:
    """Return a note on the number of operands if it is fixed and the call passed a different number."""
    fixed = all(operand.arity == "single" for operand in spec.operands)
    return f": expected {len(spec.operands)} operands, got {count}" if fixed and count != len(spec.operands) else ""

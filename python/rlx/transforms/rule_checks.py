"""Checks of the results of op rules. A wrong rule raises an error that names it, instead of returning a wrong derivative."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from rlx import mlir
from rlx.ir.dims.dim import Dim
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.op import opview
from rlx.ir.op.rule_errors import calling
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.support.errors import Error
from rlx.support.guards import is_list, is_sequence
from rlx.transforms import scope as scopes


class NotLinearError(Error):
    """A rule that is transposed is not linear. It may only scale, add and move tangents or cotangents."""


class LinearArgument(Tensor):
    """A tensor without a value: an argument of a linear function that is being transposed."""

    __slots__ = ()

    def __init__(self, value: mlir.Value):
        self.value, self.beside = value, None

    @property
    def builder(self) -> Any:
        """The builder of the tensor, which every op that uses the tensor reads first.

        Raises:
            NotLinearError: Always.
        """
        raise NotLinearError("it reads the value of a tangent or cotangent")


# The context for calls of rules: every exception becomes an error that names the op, the rule and the user's line.
rule = partial(calling, passing=(NotLinearError,))


def tangents(b: Builder, op: mlir.Operation, returned: Any) -> list[Tensor | None]:
    """Return the tangents from a jvp, one for each result.

    Raises:
        Error: The jvp returned something else.
    """
    # A missing `return` in a rule must not be taken as a zero derivative.
    if returned is None and op.name == opview.CUSTOM:
        raise Error("it returns None; expected a tangent, or a tuple with one for each result", hint="zero is (None,)")
    entries = list(returned) if is_sequence(returned) else [returned]
    if len(entries) != len(op.results):
        raise Error(f"it gives {_count(len(entries), 'tangent')} for {_count(len(op.results), 'result')}")
    for i, (tangent, value) in enumerate(zip(entries, op.results, strict=True)):
        subject = "the tangent of the result" if len(entries) == 1 else f"the tangent of result {i}"
        if tangent is not None:
            _expect(b, tangent, scopes.shape_of(value), subject)
    return entries


def cotangents(op: mlir.Operation, returned: Any, operands: Sequence[Any]) -> list[Any]:
    """Return the entries from a vjp, one for each operand. `cotangent` checks each entry.

    Args:
        op: The op.
        returned: The result of the rule.
        operands: In the groups of the record.

    Raises:
        Error: It is not a sequence with one entry for each group.
    """
    names = [o.name for o in opview.card_of(op).spec.operands]
    if not is_sequence(returned):
        described = "None" if returned is None else f"a {type(returned).__name__}"
        raise Error(f"it returns {described}; expected a tuple with a cotangent for each of {', '.join(names)}")
    if len(returned) != len(operands):
        counted = f"{_count(len(returned), 'cotangent')} for {_count(len(names), 'operand')}"
        raise Error(f"it gives {counted} ({', '.join(names)})", hint="None is zero")
    for name, group, operand in zip(names, returned, operands, strict=True):
        if not is_list(operand) or group is None:
            continue
        if not is_sequence(group):
            raise Error(f"for '{name}' it gives a {type(group).__name__}; expected a list of {len(operand)}")
        if len(group) != len(operand):
            raise Error(f"for '{name}' it gives {_count(len(group), 'cotangent')}; expected {len(operand)}")
    return scopes.flat(returned, operands)


def cotangent(b: Builder, op: mlir.Operation, index: int, shape: Shape, entry: Any) -> Any:
    """Return the cotangent of an entry of a vjp. If the entry is a function, it is called.

    Args:
        b: The builder that the rule emits with.
        op: The op.
        index: The index of the operand; values that regions use from outside follow the last operand.
        shape: The shape that the cotangent must have.
        entry: The entry that the rule returned.

    Raises:
        Error: It is not a tensor or a range of that shape, and not None.
    """
    with rule(op, "vjp"):
        if callable(entry):
            entry = entry()
        if entry is None:
            return None
        value = entry.value if isinstance(entry, rules.Range) else entry
        expected = shape
        if isinstance(entry, rules.Range) and isinstance(value, Tensor) and value.rank == shape.rank:
            dims = list(shape.dims)
            dims[entry.axis] = value.shape.dims[entry.axis]
            expected = shape.with_dims(dims)
        _expect(b, value, expected, f"the cotangent of {_operand(op, index)}")
        return entry


def batched(b: Builder, op: mlir.Operation, returned: Any, size: Dim) -> list[Tensor]:
    """Return the batched results from a vmap rule, one for each result.

    Raises:
        Error: The rule returned something else.
    """
    entries = list(returned) if is_sequence(returned) else [returned]
    if len(entries) != len(op.results):
        raise Error(f"it gives {_count(len(entries), 'tensor')} for {_count(len(op.results), 'result')}")
    for i, (result, old) in enumerate(zip(entries, op.results, strict=True)):
        shape = scopes.shape_of(old)
        subject = "the result" if len(entries) == 1 else f"result {i}"
        _expect(b, result, shape.with_dims((size, *shape.dims)), f"with the batch in front, {subject}")
    return entries


def _expect(b: Builder, value: object, shape: Shape, subject: str) -> None:
    if not isinstance(value, Tensor):
        raise Error(f"{subject} must be a tensor, got {type(value).__name__}")
    if value.builder is not b:
        raise Error(f"{subject} belongs to another graph")
    if value.shape != shape:
        hint = "sum what was broadcast: rlx.ops.rules.unbroadcast" if value.rank > shape.rank else None
        raise Error(f"{subject} must be {shape}, got {value.shape}", hint=hint)


def _operand(op: mlir.Operation, index: int) -> str:
    names: list[str] = []
    positions = list(range(len(op.operands)))
    for entry, group in zip(opview.card_of(op).spec.operands, opview.operands_of(op, positions), strict=True):
        if is_list(group):
            names += [f"'{entry.name}' ({i} of {len(group)})" for i in range(len(group))]
        elif group is not None:
            names.append(f"'{entry.name}'")
    return names[index] if index < len(names) else "a value from outside"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"

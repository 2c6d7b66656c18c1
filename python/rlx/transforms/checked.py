"""What rules of ops give, looked at before it is used: a wrong rule is an error that names it, not a wrong derivative."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from typing import Any

from rlx import mlir
from rlx.ir import opview
from rlx.ir.builder import Builder, Tensor
from rlx.ir.dim import Dim
from rlx.ir.errors import Error
from rlx.ir.guards import is_list, is_sequence
from rlx.ir.location import describe, raised_at
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.transforms import scope as scopes


class NotLinearError(Error):
    """A rule that is transposed computes with a tensor that it may only scale, add and move."""


class Absent(Tensor):
    """A tensor without a value: it stands for what a linear function is applied to, while that is transposed."""

    __slots__ = ()

    def __init__(self, value: mlir.Value):
        self.value = value

    @property
    def builder(self) -> Any:
        """What an op that reads the tensor asks for first.

        Raises:
            NotLinearError: Always.
        """
        raise NotLinearError("it reads the value of a tangent or cotangent")


@contextlib.contextmanager
def rule(op: mlir.Operation, what: str) -> Generator[None]:
    """Around the call of a rule: whatever it raises becomes an error that names the op, the rule and the user's line."""
    try:
        yield
    except NotLinearError:
        raise
    except Error as problem:
        if problem.location and len(op.regions):
            raise  # it is about an op inside
        raise scopes.at_op(problem, op, what) from problem.__cause__
    except Exception as problem:
        message = f"{what} of rlx.{opview.name_of(op)} raised {type(problem).__name__}: {problem}"
        raise Error(message, location=describe(op.location), hint=raised_at(problem)) from problem


def tangents(b: Builder, op: mlir.Operation, given: Any) -> list[Tensor | None]:
    """What a jvp gives, one entry for each result.

    Raises:
        Error: It is something else.
    """
    if given is None and op.name == opview.CUSTOM:  # a rule that forgets to return has no wrong derivative
        raise Error("it returns None; expected a tangent, or a tuple with one for each result", hint="zero is (None,)")
    found = list(given) if is_sequence(given) else [given]
    if len(found) != len(op.results):
        raise Error(f"it gives {_count(len(found), 'tangent')} for {_count(len(op.results), 'result')}")
    for i, (tangent, value) in enumerate(zip(found, op.results, strict=True)):
        what = "the tangent of the result" if len(found) == 1 else f"the tangent of result {i}"
        if tangent is not None:
            _expect(b, tangent, scopes.shape_of(value), what)
    return found


def cotangents(op: mlir.Operation, given: Any, operands: Sequence[Any]) -> list[Any]:
    """What a vjp gives, one entry for each operand; the entries are looked at by `cotangent`.

    Args:
        op: The op.
        given: What the rule gave.
        operands: In the groups of the record.

    Raises:
        Error: It is no sequence of as many groups.
    """
    names = [o.name for o in opview.card_of(op).spec.operands]
    if not is_sequence(given):
        came = "None" if given is None else f"a {type(given).__name__}"
        raise Error(f"it returns {came}; expected a tuple with a cotangent for each of {', '.join(names)}")
    if len(given) != len(operands):
        counted = f"{_count(len(given), 'cotangent')} for {_count(len(names), 'operand')}"
        raise Error(f"it gives {counted} ({', '.join(names)})", hint="None is zero")
    for name, group, like in zip(names, given, operands, strict=True):
        if not is_list(like) or group is None:
            continue
        if not is_sequence(group):
            raise Error(f"for '{name}' it gives a {type(group).__name__}; expected a list of {len(like)}")
        if len(group) != len(like):
            raise Error(f"for '{name}' it gives {_count(len(group), 'cotangent')}; expected {len(like)}")
    return scopes.flat(given, operands)


def cotangent(b: Builder, op: mlir.Operation, index: int, shape: Shape, given: Any) -> Any:
    """A cotangent that a vjp gives: a function is called.

    Args:
        b: Where it is emitted.
        op: The op.
        index: Of the operand; those behind the last one are what regions read from outside.
        shape: What the cotangent has to be.
        given: What the rule gave for it.

    Raises:
        Error: It is something else than a tensor or a range of that shape, or None.
    """
    with rule(op, "vjp"):
        if callable(given):
            given = given()
        if given is None:
            return None
        value = given.value if isinstance(given, rules.Range) else given
        wanted = shape
        if isinstance(given, rules.Range) and isinstance(value, Tensor) and value.rank == shape.rank:
            dims = list(shape.dims)
            dims[given.axis] = value.shape.dims[given.axis]
            wanted = shape.with_dims(dims)
        _expect(b, value, wanted, f"the cotangent of {_operand(op, index)}")
        return given


def batched(b: Builder, op: mlir.Operation, given: Any, size: Dim) -> list[Tensor]:
    """What a vmap gives, one entry for each result.

    Raises:
        Error: It is something else.
    """
    found = list(given) if is_sequence(given) else [given]
    if len(found) != len(op.results):
        raise Error(f"it gives {_count(len(found), 'tensor')} for {_count(len(op.results), 'result')}")
    for i, (result, old) in enumerate(zip(found, op.results, strict=True)):
        shape = scopes.shape_of(old)
        what = "the result" if len(found) == 1 else f"result {i}"
        _expect(b, result, shape.with_dims((size, *shape.dims)), f"with the batch in front, {what}")
    return found


def _expect(b: Builder, given: object, shape: Shape, what: str) -> None:
    if not isinstance(given, Tensor):
        raise Error(f"{what} must be a tensor, got {type(given).__name__}")
    if given.builder is not b:
        raise Error(f"{what} belongs to another graph")
    if given.shape != shape:
        hint = "sum what was broadcast: rlx.ops.rules.unbroadcast" if given.rank > shape.rank else None
        raise Error(f"{what} must be {shape}, got {given.shape}", hint=hint)


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

"""Every op: malformed uses raise an error that names the op and the user's line, and never another exception."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from itertools import product as cartesian
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.graph.builder import Tensor
from rlx.ir.op import registry
from rlx.ir.shape import Shape
from tests.conformance.cases import Case, cases, composite_groups, plain_op_names
from tests.conformance.failures import Failures
from tests.conformance.refusals import Use, base_case, right_use, wrong_uses
from tests.drawing import of_which


def _emit(use: Use) -> None:
    graph = rlx.Graph(stage=registry.card(use.op).spec.stage)
    counter = iter(range(100))

    def operand(shape: Any) -> Any:
        if isinstance(shape, list):
            return [operand(s) for s in shape]
        return None if shape is None else graph.input(f"x{next(counter)}", shape)

    operands = [operand(shape) for shape in use.operands]
    graph.emit(use.op, operands, **use.attributes)
    graph.verify()


def _expect_refusal(call: Any, label: str, op: str, certain: bool, failures: Failures, *, file: str = __file__) -> None:
    """Call, and check the raised error. `call` must reach the builder from this file."""
    try:
        call()
    except rlx.Error as problem:
        named = f"rlx.{op}" in str(problem) or "while it is traced" in str(problem)
        failures.expect(label, named, f"the message does not name the op: {problem}")
        placed = problem.location is not None and problem.location.startswith(file + ":")
        failures.expect(label, placed, f"the message has the place {problem.location}: {problem}")
        failures.expect(label, len(problem.message) > len(op) + 8, f"the message says nothing: {problem}")
    except Exception as problem:
        failures.add(label, f"raises {type(problem).__name__}: {problem}"[:300])
    else:
        failures.expect(label, not certain, "is accepted")


@pytest.mark.parametrize("op", plain_op_names())
@of_which("op", groups=composite_groups())
def test_emit_refuses(op: str) -> None:
    failures = Failures()
    case = base_case(op)
    bindings = case.bindings()[0]
    _emit(right_use(case, bindings))
    for use in wrong_uses(case, bindings):
        _expect_refusal(lambda use=use: _emit(use), use.what, op, use.certain, failures)
    failures.check()


def _call(case: Case, graph: rlx.Graph, *, all_attributes: bool, unwrapped: bool) -> dict[str, Any]:
    """Return keyword arguments for the op's method that may create the case. Users write some of them in other forms."""
    use = right_use(case, case.bindings()[0])
    counter = iter(range(100))
    given: dict[str, Any] = {}
    for value, shape in zip(case.card.spec.operands, use.operands, strict=True):
        if isinstance(shape, list):
            given[value.name] = [graph.input(f"x{next(counter)}", s) for s in shape]
        elif shape is not None:
            given[value.name] = graph.input(f"x{next(counter)}", shape)
    tensors = list(given.values())
    parameters = inspect.signature(type(case.card).build).parameters
    default = any(p.kind is p.VAR_POSITIONAL for p in parameters.values())
    for attribute in case.card.spec.attributes:
        name, value = attribute.name, use.attributes.get(attribute.name)
        needed = (
            attribute.required
            if default
            else name in parameters and parameters[name].default is inspect.Parameter.empty
        )
        if value is not None and (all_attributes or needed):
            given[name] = value[0] if unwrapped and attribute.kind == "dims" and len(value) == 1 else value
    if default:
        return given
    given["xs"] = tensors
    if case.op == "pad":
        given["padding"] = list(zip(use.attributes["low"], use.attributes["high"], strict=True))
    return {name: given[name] for name in parameters if name in given}


def _right_call(op: str) -> tuple[rlx.Graph, dict[str, Any]]:
    """Return a graph, and arguments from which the op's method creates one of the samples."""
    tried = []
    for case in (base_case(op), *cases(op)):
        for all_attributes, unwrapped in cartesian((True, False), (False, True)):
            graph = rlx.Graph(stage=case.card.spec.stage)
            arguments = _call(case, graph, all_attributes=all_attributes, unwrapped=unwrapped)
            try:
                made = getattr(graph, op)(**arguments)
            except rlx.Error as problem:
                tried.append(str(problem))
                continue
            first = made[0] if isinstance(made, tuple) else made
            if first.shape == case.graph(case.bindings()[0]).outputs[0].shape:
                return graph, arguments
    pytest.fail(f"no sample can be made with the method: {tried}")


def _user_mistakes(arguments: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], bool]]:
    foreign = rlx.Graph("other").input("foreign", (2, 3))
    yield "an unknown keyword", arguments | {"no_such_keyword": 1}, True
    for name, value in arguments.items():
        kept = {k: v for k, v in arguments.items() if k != name}
        yield f"{name} missing", kept, False
        tensor = isinstance(value, Tensor) or (isinstance(value, list) and isinstance(value[0], Tensor))
        wrong: list[Any] = [
            object(),
            "no such thing",
            -99,
            10**30,
            1.5,
            1j,
            b"x",
            [1, "x"],
            [object()],
            {},
            lambda: 0,
        ]
        wrong += [
            np.zeros(3),
            np.array("x"),
            Shape((2, 3)),
            float("nan"),
            foreign,
            [foreign],
            None,
            (),
            range(3),
            True,
        ]
        for other in wrong:
            yield f"{name} = {str(other)[:60]}", arguments | {name: other}, tensor and other is foreign


@pytest.mark.parametrize("op", plain_op_names())
@of_which("op", groups=composite_groups())
def test_method_refuses(op: str) -> None:
    """Every argument of the op's method is replaced by another value in turn."""
    failures = Failures()
    graph, arguments = _right_call(op)
    method = getattr(graph, op)
    for what, mistaken, certain in _user_mistakes(arguments):
        _expect_refusal(lambda mistaken=mistaken: method(**mistaken), what, op, certain, failures)
    if "shape" not in arguments:
        _expect_refusal(lambda: method(**arguments, shape=(2, 3, 5, 7, 11, 13)), "shape=", op, True, failures)
    _expect_refusal(lambda: method(*[graph] * 40), "forty arguments", op, True, failures)
    failures.check()

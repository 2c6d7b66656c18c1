"""Wrong calls of public functions, classes and methods: the error names the argument and the caller's line."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import nn
from rlx.ir.calls import CallError
from rlx.ir.graph.builder import Builder

WRONG: Any = rlx  # called with wrong arguments
MATRIX: Any = rlx.train.ConfusionMatrix(np.eye(2, dtype=np.int64))
HISTORY: Any = rlx.train.TrainingHistory([{"step": 1, "loss": 1.0}])
UNKNOWN: dict[str, Any] = {"no_such_option": 1}
TOO_MANY = [None] * 40
# Public names whose wrong calls raise Python's TypeError, and the reason.
EXCEPTIONS = {
    "DType": "its instances are declared: rlx.f32",
    "dtype": "called for every operand of every op",
    "promote": "called for every op",
    "Shape": "created for every value of every op",
    "Tick": "a timer whose calls must cost as little as possible",
    "Device": "an enumeration",
    "Tensor": "created for every value of every op; its methods are ops",
    "CustomOp": "subclassed by users, not called",
}


def public_names() -> dict[str, str]:
    return vars(rlx)["public_names"]()


def public_things() -> dict[str, Any]:
    """Return the functions and classes of the public namespaces, by name."""
    things: dict[str, Any] = {name: getattr(rlx, name) for name in public_names()}
    for module in (rlx.nn, rlx.train):
        things |= {f"{module.__name__.removeprefix('rlx.')}.{name}": vars(module)[name] for name in module.__all__}
    return {
        name: thing
        for name, thing in things.items()
        if callable(thing) and name not in EXCEPTIONS and not (isinstance(thing, type) and issubclass(thing, Exception))
    }


def public_methods(kind: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the public methods that a class of this package defines.

    Of `Builder`, only `named` is among them: the ops are tested in tests/ops, and cards call the others for every op.
    """
    for name in dir(kind):
        owner = next(base for base in kind.__mro__ if name in vars(base))
        if not owner.__module__.startswith("rlx.") or (owner in Builder.__mro__ and name != "named"):
            continue
        member = inspect.getattr_static(kind, name)
        if name == "__call__" or not name.startswith("_"):
            if isinstance(member, classmethod | staticmethod):
                yield name, getattr(kind, name)
            elif inspect.isfunction(member):
                yield name, partial(member, None)


def public_calls() -> Iterator[tuple[str, Callable[..., Any], set[Any]]]:
    """Yield all public functions, classes and methods, with the kinds of their parameters."""
    for name, thing in public_things().items():
        methods = public_methods(thing) if isinstance(thing, type) else ()
        constructor = () if inspect.isabstract(thing) else ((name, thing),)
        for shown, call in (*constructor, *((f"{name}.{n}", method) for n, method in methods)):
            yield shown, call, {p.kind for p in inspect.signature(call).parameters.values()}


def error_of(call: Callable[[], Any]) -> tuple[str, str | None]:
    """Return the message and the location of the error for a call."""
    try:
        call()
    except CallError as problem:
        return problem.message, problem.location
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}", None
    return "no error", None


def here() -> str:
    """Return the caller's line."""
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return f"{__file__}:{frame.f_back.f_lineno}"


def test_unknown_keywords_are_answered() -> None:
    wrong: dict[str, Any] = {}
    checked = 0
    for name, call, kinds in public_calls():
        if inspect.Parameter.VAR_KEYWORD not in kinds:
            said, place = error_of(lambda call=call: call(**UNKNOWN)), here()
            checked += 1
            if "unexpected keyword argument 'no_such_option'" not in said[0] or said[1] != place:
                wrong[name] = said
    assert not wrong, "decorate it with @with_call_errors, or make Answered a base of the class"
    assert checked > 300


def test_too_many_arguments_are_answered() -> None:
    wrong: dict[str, Any] = {}
    for name, call, kinds in public_calls():
        if inspect.Parameter.VAR_POSITIONAL not in kinds:
            said, place = error_of(lambda call=call: call(*TOO_MANY)), here()
            if "too many positional arguments; it takes" not in said[0] or said[1] != place:
                wrong[name] = said
    assert not wrong


def test_missing_arguments_are_answered() -> None:
    wrong: dict[str, Any] = {}
    for name, call, _ in public_calls():
        required = [
            p.name
            for p in inspect.signature(call).parameters.values()
            if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        ]
        if required:
            said, place = error_of(lambda call=call: call()), here()
            if f"missing a required argument: '{required[0]}'; it takes" not in said[0] or said[1] != place:
                wrong[name] = said
    assert not wrong


def test_exceptions_are_public_names() -> None:
    assert EXCEPTIONS.keys() <= public_names().keys()


class _Empty(nn.Module):
    """A class of a user without a constructor."""


class _Scaled(nn.Linear):
    """A class of a user."""

    def __init__(self, features: int, **options: Any):
        super().__init__(features, features, **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nn.GELU(**UNKNOWN), "GELU: got an unexpected .*; it takes approximate"),
        (lambda: _Scaled(2, **UNKNOWN), "Linear: got an unexpected keyword argument 'no_such_option'; it takes in_features"),
        (lambda: _Scaled(), "_Scaled: missing a required argument: 'features'"),  # pyright: ignore[reportCallIssue]
        (lambda: _Empty(**UNKNOWN), "_Empty: got an unexpected keyword argument 'no_such_option'; it takes none"),
        (lambda: rlx.Graph().clone(**UNKNOWN), "clone: got an unexpected .*; it takes none"),
        (lambda: rlx.Graph().input(nam="x"),  # pyright: ignore[reportCallIssue]
         r"input: .*'nam' \(did you mean 'name'\?\)(.|\n)*instead: g\.input\(name='x'\)"),
        (lambda: rlx.Session().compile(grph=1),  # pyright: ignore[reportCallIssue]
         r"compile: .*'grph' \(did you mean 'graph'\?\)"),
        (lambda: rlx.GraphModule.mir(nam="x"),  # pyright: ignore[reportCallIssue]
         r"instead: rlx\.GraphModule\.mir\(name='x'\)"),
        (lambda: rlx.Pipeline(targt="cpu"),  # pyright: ignore[reportCallIssue]
         r"instead: rlx\.Pipeline\(target='cpu'\)"),
    ],
)  # fmt: skip
def test_messages_show_the_call(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(CallError, match=message):
        call()


def test_programs_name_the_arguments_of_run() -> None:
    g = rlx.Graph()
    g.set_outputs(g.input("x", (2,)) + 1)
    program: Any = rlx.Session().compile(g)
    for call in (program.run, program):
        assert call(x=np.zeros(2, np.float32))[0].tolist() == [1, 1]
        with pytest.raises(rlx.Error, match="'y'"):
            call(y=np.zeros(2, np.float32))


def test_errors_of_correct_calls_stay_type_errors() -> None:
    def build(_: Any) -> None:
        raise TypeError("of the user")

    with pytest.raises(TypeError, match="of the user"):
        rlx.GraphModule.define("f", build)


@pytest.mark.parametrize(
    "value",
    [
        rlx.train.DynamicLossScale(factor=4),
        rlx.train.WeightSlot("w", 0, 64, 8),
        rlx.train.Adam(0.5),
        rlx.Quantization(0.5, 3),
        rlx.Pipeline("cpu", opt=1),
        rlx.Mesh({"x": 2}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_are_copied_and_pickled(value: Any) -> None:
    assert copy.copy(value) == value == copy.deepcopy(value) == pickle.loads(pickle.dumps(value))


def test_values_are_replaced() -> None:
    assert replace(rlx.train.Adam(0.5), b1=0.5) == rlx.train.Adam(0.5, b1=0.5)
    with pytest.raises(CallError, match="Adam: got an unexpected keyword argument 'no_such_option'"):
        replace(rlx.train.Adam(0.5), **UNKNOWN)


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: MATRIX.plot("m.png"), "instead: confusion_matrix.plot(path='m.png')"),
        (lambda: HISTORY.plot(["loss"], "m.png"), "instead: training_history.plot(['loss'], path='m.png')"),
        (lambda: HISTORY.plot(["loss"], "m.png", 3), "by name: plot(names, path=…)"),
        (lambda: WRONG.quantize(rlx.Graph("g"), None, ["a"]), "by name: quantize(graph, record, keep=…, params=…, "),
    ],
)
def test_arguments_that_are_accepted_by_name_only(call: Any, hint: str) -> None:
    with pytest.raises(CallError, match="too many positional arguments") as caught:
        call()
    assert str(caught.value.hint).startswith(hint)

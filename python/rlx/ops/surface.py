"""The callable surface: every op, and every kind of the enumerated ops, as methods of `Builder`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from functools import cache, wraps
from inspect import Signature, getdoc, signature
from keyword import iskeyword
from typing import Any, TypeVar

import numpy as np

from rlx.ir.calls import CallError, at_caller
from rlx.ir.graph.builder import Builder, Tensor, method_of
from rlx.ir.graph.current import builder_of, current_builder
from rlx.ir.graph.regions import IN_BODY
from rlx.ir.location import describe
from rlx.ir.op import registry
from rlx.ir.op.card import Card
from rlx.ir.python_values import type_description
from rlx.ops import manual, operators, signatures
from rlx.support.answers import answers
from rlx.support.caller import caller_place
from rlx.support.errors import Error, ShapeError
from rlx.support.short import short_repr
from rlx.support.traces import raised_at

# Kinds of enumerated ops that have their own methods: op -> {method: kind}.
_KINDS: dict[str, dict[str, str]] = {
    "binary": {"maximum": "max", "minimum": "min"} | {k: k for k in ("add", "sub", "mul", "div", "pow", "atan2")},
    "compare": {k: k for k in ("eq", "ne", "lt", "le", "gt", "ge")},
    "reduce": {k: k for k in ("sum", "mean", "max", "min", "prod")},
}


def kinds() -> dict[str, dict[str, str]]:
    """Return the kinds that have their own methods, by op: method name to kind."""
    activations = registry.SPECS["activation"].attributes[0].cases
    return _KINDS | {"activation": {kind: kind for kind in activations}}


def _kind_method(op: str, name: str, kind: str) -> Callable[..., Any]:
    def method(self: Builder, *args: Any, **kwargs: Any) -> Any:
        try:
            return getattr(self, op)(kind, *args, **kwargs)
        except CallError as problem:  # the error names the op, which also takes the kind
            if problem.parameters[:1] != ("kind",):
                raise
            own, (in_order, by_name) = problem.parameters[1:], problem.given
            raise CallError.of(name, problem.reason, own, problem.location, in_order[1:], by_name) from None

    method.__name__ = name
    method.__qualname__ = f"Graph.{name}"
    return method


F = TypeVar("F", bound=Callable[..., Any])

# Functions of a builder that emit several ops. They are methods as well.
_HELPERS: dict[str, Callable[..., Any]] = {}


def helper(function: F) -> F:
    """Register `function(b, …)` as a method of graphs and a function of `rlx.ops`: `@helper def rfft2(b, x): …`.

    A helper has no card. It is a well-known name for a combination of ops.
    """
    _HELPERS[function.__name__] = function
    return function


def helpers() -> dict[str, Callable[..., Any]]:
    """Return the registered helpers, by name."""
    return _HELPERS


def helper_method(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function(b, …)` as a method of a builder: errors are raised at the caller's line and name the method."""
    flags = [(i, p.name) for i, p in enumerate(signature(function).parameters.values()) if p.annotation == "bool"]

    @wraps(function)
    def method(self: Builder, *args: Any, **kwargs: Any) -> Any:
        try:
            for place, flag in flags:
                check_flag(flag, args[place - 1] if place <= len(args) else kwargs.get(flag, False))
            return function(self, *args, **kwargs)
        except Error as problem:
            raise at_caller(problem, name, function, len(args), describe(self.location)) from None
        except Exception as problem:
            # Errors raised by a function among the arguments are not converted.
            if isinstance(problem, MemoryError) or IN_BODY in getattr(problem, "__notes__", ()) or raised_at(problem):
                raise
            raise _refused(self, name, function, args, kwargs, problem) from problem

    method.__qualname__ = f"Graph.{name}"
    return method


def builder_for(name: str, values: Sequence[Any]) -> Any:
    """Return the builder of the tensors among the values, else the builder that is being traced or is eager.

    Raises:
        Error: There is none.
    """
    builder = builder_of(values) or current_builder()
    if builder is None:
        raise Error(
            f"{name} takes tensors of a graph; none was given",
            location=caller_place(),
            hint="call it in a function under rlx.jit, or inside of `with rlx.eager():` to compute with arrays",
        )
    return builder


def check_flag(name: str, value: object) -> None:
    """Check that an argument is True or False, because other libraries may have another argument in this position.

    Raises:
        ShapeError: It is neither.
    """
    if not (isinstance(value, (bool, np.bool_)) or value is None or (type(value) is int and value in (0, 1))):
        raise ShapeError(f"{name} is True or False, not {type_description(value)}")


def _refused(
    b: Builder, name: str, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], problem: Exception
) -> Error:
    """Return the error for arguments that a helper does not accept, or that Python or NumPy cannot convert."""
    place = describe(b.location)
    names = [p.name for p in signatures.of_helper(function).parameters.values()][1:]
    try:
        given = signature(function).bind(b, *args, **kwargs).arguments
    except TypeError as mismatch:
        reason = str(mismatch)
        unknown = [k for k in kwargs if k not in names]
        if unknown and "multiple values" not in reason:  # Python may report a missing argument instead
            reason = f"got an unexpected keyword argument {unknown[0]!r}"
        return CallError.of(name, reason, names, place, args, kwargs)
    others = ", ".join(f"{n} = {short_repr(v)}" for n, v in given.items() if not isinstance(v, (Builder, Tensor)))
    what = f"does not take {others or 'these arguments'}: {type(problem).__name__}: {problem}"
    return ShapeError(f"{name}: {what}", location=place, hint=answers().order_hint(name, function, len(args)))


def method_name(op: str) -> str:
    """Return the name of an op's method. Python keywords get an underscore: `if_`."""
    return f"{op}_" if iskeyword(op) else op


def _own_text(card: Card) -> str:
    """Return the docstring of a card's own `build`, if it has one: see `manual.of_op`."""
    build = type(card).build
    return "" if build is Card.build else build.__doc__ or ""


def _home(definition: Callable[..., Any], name: str) -> str:
    """Return the file and the name of a definition: `rlx/ops/norm.py: LayerNorm`.

    A definition that is made by a loop over a table has no name in its module: then it is `name`, the row of the table.
    """
    module = definition.__module__
    found = definition.__name__ if hasattr(sys.modules.get(module), definition.__name__) else name
    return f"{module.replace('.', '/')}.py: {found}"


def homes() -> dict[str, str]:
    """Return where every method is defined: the class of its op's card, or the function of a helper."""
    result: dict[str, str] = {}
    named_kinds = kinds()
    for op, card in registry.registered().items():
        result |= dict.fromkeys((method_name(op), *named_kinds.get(op, ())), _home(type(card), op))
    return result | {name: _home(function, re.sub(r"[123]d$", "", name)) for name, function in _HELPERS.items()}


@cache
def methods() -> dict[str, Callable[..., Any]]:
    """Return every op method, by name."""
    result: dict[str, Callable[..., Any]] = {}
    named_kinds, defined = kinds(), homes()

    def add(name: str, method: Callable[..., Any], signature: Signature, page: str) -> None:
        method.__signature__, method.__doc__ = signature, f"{page}\n\nDefined in {defined[name]}."
        result[name] = method

    for op, card in registry.registered().items():
        if op == "yield":
            continue
        signature = signatures.of_card(card)
        add(method_name(op), method_of(card), signature, manual.of_op(card.spec, signature, _own_text(card)))
        for name, kind in named_kinds.get(op, {}).items():
            of_kind = signatures.of_kind(signature)
            add(name, _kind_method(op, name, kind), of_kind, manual.of_kind(card.spec, kind, of_kind))
    for name, function in _HELPERS.items():
        signature = signatures.of_helper(function)
        add(name, helper_method(name, function), signature, manual.of_helper(function, signature))
    return result


def summaries() -> dict[str, str]:
    """Return a one-line summary, without a full stop, of every method."""
    result = {method_name(name): spec.summary for name, spec in registry.SPECS.items()}
    for op, named in kinds().items():
        result |= {name: manual.kind_summary(op, kind) for name, kind in named.items()}
    return result | {name: (getdoc(f) or "").splitlines()[0].rstrip(".") for name, f in _HELPERS.items()}


def as_module(fft: object) -> None:
    """Make `g.fft.rfft(x)` equivalent to `g.rfft(x)`: in NumPy and JAX `fft` is a module."""
    for name in np.fft.__all__:
        setattr(fft, name, _of_ops(name))


def _of_ops(name: str) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        from rlx import ops

        return getattr(ops, name)(*args, **kwargs)

    function.__name__ = name
    return function


def install() -> None:
    """Install the methods of all registered ops on `Builder`, and the operators on `Tensor`."""
    methods.cache_clear()
    for name, method in methods().items():
        setattr(Builder, name, method)
    as_module(methods()["fft"])
    Builder.__getattr__ = _unknown  # type: ignore[attr-defined]
    operators.install(methods())


def _unknown(self: Builder, name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    raise answers().name_problem(f"a {type(self).__name__}", name, methods())

"""Errors for calls with arguments that a method does not accept."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeVar, cast

from rlx.ir.location import caller_location, describe
from rlx.support.answers import answers
from rlx.support.errors import Error, ShapeError

Function = TypeVar("Function", bound=Callable[..., Any])


def at_caller(problem: Error, shown: str, function: Callable[..., Any], given: int, location: Any) -> Error:
    """Return an error of a method at the caller's line, with a call by name as the hint if the order may be wrong.

    Args:
        problem: The error. If it has a location, it is about an op inside, and keeps it.
        shown: The method's name in messages.
        function: The function that rejected the arguments.
        given: The number of positional arguments.
        location: The caller's line.
    """
    hint = problem.hint or answers().order_hint(shown, function, given)
    if problem.location is not None:
        return problem.moved(problem.message, hint=hint)
    return problem.moved(f"{shown}: {problem.message}", location=describe(location), hint=hint)


class CallError(ShapeError):
    """The error for a call that does not match the parameters of a method.

    Attributes:
        reason: Python's message about the call.
        parameters: The names of the method's parameters.
        given: The arguments of the call, in order and by name.
    """

    reason: str = ""
    parameters: tuple[str, ...] = ()
    given: tuple[Sequence[Any], Mapping[str, Any]] = ((), {})

    @classmethod
    def of(
        cls,
        method: str,
        reason: str,
        parameters: Sequence[str],
        location: str | None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        owner: str = "g.",
    ) -> CallError:
        """Return the error for a call of a method at the caller's line.

        Args:
            method: The method's name in the message.
            reason: Python's message about the call.
            parameters: The names of the method's parameters.
            location: The caller's line.
            args: The arguments in order.
            kwargs: The arguments by name.
            owner: The text before the method's name in a call.
        """
        given = dict(kwargs or {})
        name = method.removeprefix("rlx.")
        problem, hint = answers().call_problem(name, reason, parameters, args, given, owner)
        error = cls(f"{method}: {problem}; it takes {', '.join(parameters)}", location=location, hint=hint)
        error.reason, error.parameters, error.given = reason, tuple(parameters), (args, given)
        return error


def check_call(what: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Check that a function accepts the arguments.

    Args:
        what: The function's name, for the message and the advice.
        function: The function; its first parameters correspond to `args`.
        args: Arguments in order.
        kwargs: Arguments by name.

    Raises:
        CallError: It does not accept them; the message suggests a correction.
    """
    signature = inspect.signature(function)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as problem:
        names = [name for name in signature.parameters if name not in ("self", "cls")]
        # An unknown argument is reported before a missing one, because that is more helpful.
        unknown = next((name for name in kwargs if name not in names), None)
        reason = str(problem) if unknown is None else f"got an unexpected keyword argument '{unknown}'"
        args = args[len(signature.parameters) - len(names) :]
        place, owner = describe(caller_location()), _owner(function)
        raise CallError.of(what, reason, names, place, args, kwargs, owner) from None


def _owner(function: Callable[..., Any]) -> str:
    """Return the text before the name of a function of this package in a call."""
    owners = {"Operators": "x.", "Selection": "x.at[index]."}
    if owner := owners.get(function.__qualname__.partition(".")[0]):
        return owner
    return "".join(f"{part}." for part in function.__module__.split(".")[:2] if part in ("rlx", "nn", "train"))


def with_call_errors(function: Function) -> Function:
    """Decorate a function so that calls with wrong arguments raise the same errors as calls of ops."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError:
            check_call(function.__name__, function, args, kwargs)
            raise

    return cast("Function", call)


class Answered:
    """Base of classes whose constructor reports wrong arguments as ops do."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        if args or kwargs:  # without arguments, this may be a copy whose attributes are set later
            check_call(cls.__name__, cls.__init__, (None, *args), kwargs)
        return super().__new__(cls)

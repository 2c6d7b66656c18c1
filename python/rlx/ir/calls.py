"""Errors for calls with arguments that a function does not accept. Does not need MLIR."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeVar, cast

from rlx.support.answers import answers
from rlx.support.caller import caller_place
from rlx.support.errors import Error, ShapeError

Function = TypeVar("Function", bound=Callable[..., Any])
# The text before the name of a method in a call, for classes whose instances have another name in the documentation.
_INSTANCES = {"Graph": "g.", "Tensor": "x.", "Selection": "x.at[index]."}


def at_caller(problem: Error, shown: str, function: Callable[..., Any], given: int, place: str | None) -> Error:
    """Return an error of a method at the caller's line, with a call by name as the hint if the order may be wrong.

    Args:
        problem: The error. If it has a location, it is about an op inside, and keeps it.
        shown: The method's name in messages.
        function: The function that rejected the arguments.
        given: The number of positional arguments.
        place: The caller's line.
    """
    hint = problem.hint or answers().order_hint(shown, function, given)
    if problem.location is not None:
        return problem.moved(problem.message, hint=hint)
    return problem.moved(f"{shown}: {problem.message}", location=place, hint=hint)


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
        keyword_only: Collection[str] = (),
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
            keyword_only: The parameters that are accepted by name only.
        """
        given = dict(kwargs or {})
        problem, hint = reason, None
        with contextlib.suppress(ImportError, Error):  # `rlx-deploy`, or no MLIR: there are no answers
            name = method.removeprefix("rlx.")
            problem, hint = answers().call_problem(name, reason, parameters, args, given, owner, keyword_only)
        error = cls(f"{method}: {problem}; it takes {', '.join(parameters) or 'none'}", location=location, hint=hint)
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
        owner = _owner(function, args)
        by_name = [p.name for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY]
        args = args[len(signature.parameters) - len(names) :]
        raise CallError.of(what, reason, names, caller_place(), args, kwargs, owner, by_name) from None


def _owner(function: Callable[..., Any], args: Sequence[Any]) -> str:
    """Return the text before the name of a function of this package in a call, such as `rlx.nn.` or `session.`."""
    in_class = function.__qualname__.rpartition(".")[0].rpartition(".")[2]
    package = "".join(f"{part}." for part in function.__module__.split(".")[:2] if part in ("rlx", "nn", "train"))
    if in_class in ("", "<locals>") or function.__name__ == "__init__":
        return package
    if not args or next(iter(inspect.signature(function).parameters), "") != "self":
        return f"{package}{in_class}."
    kinds = [kind.__name__ for kind in type(args[0]).__mro__]
    named = next((_INSTANCES[kind] for kind in kinds if kind in _INSTANCES), None)
    return named or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kinds[0]).lower() + "."


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
    """Base of the public classes: wrong arguments of their constructors and methods are reported as those of ops.

    Methods of subclasses outside this package are not checked, only constructors.
    """

    __slots__ = ()
    _checked_init: ClassVar[object] = None  # the constructor that checks its own calls

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            _check_constructor(cls)
        members: dict[str, Any] = dict(vars(cls)) if cls.__module__.startswith("rlx.") else {}
        for name, member in members.items():
            kind: Any = member.__class__
            if name.startswith("_") and name != "__call__":
                continue
            if kind in (classmethod, staticmethod):
                setattr(cls, name, kind(with_call_errors(member.__func__)))
            elif inspect.isfunction(member):
                setattr(cls, name, with_call_errors(member))

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        if cls.__init__ is not cls._checked_init:
            _check_constructor(cls)  # a dataclass gets its constructor after `__init_subclass__`
            if cls.__init__ is object.__init__:  # with a `__new__`, Python lets it take any arguments
                check_call(cls.__name__, _without_arguments, args, kwargs)
        return object.__new__(cls)


def _check_constructor(cls: Any) -> None:
    """Make the constructor of a class check its calls. A check in `__new__` would bind the arguments of every call."""
    if cls.__init__ not in (cls._checked_init, object.__init__):
        cls._checked_init = cls.__init__ = _checked_constructor(cls, cls.__init__)


def _checked_constructor(owner: type, function: Callable[..., None]) -> Callable[..., None]:
    """Return the `__init__` of a class with a check of its calls."""

    @functools.wraps(function)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            function(self, *args, **kwargs)
        except TypeError:
            name = type(self).__name__ if type(self).__init__ is init else owner.__name__
            check_call(name, function, (self, *args), kwargs)
            raise

    return init


def _without_arguments() -> None:
    pass

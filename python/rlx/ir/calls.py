"""What is said of a call whose arguments a method does not take."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeVar, cast

from rlx.ir.errors import ShapeError
from rlx.ir.location import caller_location, describe
from rlx.ir.suggestions import suggestion

Function = TypeVar("Function", bound=Callable[..., Any])

# What other libraries call an argument, by groups: a misspelt keyword suggests the member that a method takes.
_SYNONYMS = (
    ("axis", "axes", "dim", "dims", "dimension", "normalized_shape"),
    ("keep_dims", "keepdims", "keepdim"),
    ("eps", "epsilon"),
    ("kernel", "kernel_size", "window", "window_shape"),
    ("x", "input", "a", "logits", "log_probs", "prediction"),
    ("target", "targets", "labels", "y"),
    ("w", "scale", "weight", "gamma", "kernel"),
    ("bias", "beta", "b"),
    ("mean", "running_mean"),
    ("variance", "var", "running_var"),
    ("rate", "p"),
    ("ord", "p"),
    ("num_groups", "groups", "feature_group_count"),
    ("scale", "scale_factor"),
    ("size", "output_size"),
    ("mode", "method"),
    ("stride", "strides"),
    ("low", "min", "a_min"),
    ("high", "max", "a_max"),
    ("min", "a_min", "low"),
    ("max", "a_max", "high"),
    ("ddof", "correction", "unbiased"),
    ("perm", "axes", "dims"),
    ("k", "diagonal", "offset"),
    ("padding", "pad_width"),
    ("shift", "shifts"),
    ("start_axis", "start_dim"),
    ("end_axis", "end_dim"),
    ("indices_or_sections", "split_size", "split_size_or_sections", "num_or_size_splits"),
    ("num_classes", "depth"),
    ("wrt", "argnums", "argnames"),
    ("static", "static_argnames", "static_argnums"),
    ("batched", "in_axes", "in_dims"),
    ("out_axes", "out_dims"),
    ("size", "axis_size"),
    ("learning_rate", "lr"),
    ("b1", "betas", "beta1"),
    ("b2", "beta2"),
    ("clip_norm", "max_norm", "max_grad_norm"),
    ("accumulate", "every_k_schedule", "gradient_accumulation_steps"),
    ("embed_dim", "d_model", "hidden_size"),
    ("num_heads", "nhead", "heads"),
    ("in_features", "input_size", "in_channels"),
    ("out_features", "output_size", "out_channels", "features"),
    ("causal", "is_causal"),
    ("device", "backend", "target"),
)


# What to call in place of a keyword that has no counterpart, by method and keyword; with "" for the method, of all that have
# nothing more to say, and with "" for the keyword, in place of other arguments. The ops fill it.
ADVICE: dict[tuple[str, str], str] = {}


def keyword_suggestion(given: str, parameters: Sequence[str]) -> str:
    """` (did you mean …?)` for a keyword that a method does not take: one of the same meaning first, then of like spelling."""
    for names in _SYNONYMS:
        if given in names:
            for name in names:
                if name in parameters:
                    return suggestion(name, (name,))
    return suggestion(given, parameters)


class CallError(ShapeError):
    """A call does not match the parameters of a method.

    Attributes:
        reason: What Python says of the call.
        parameters: The names of what the method takes.
    """

    reason: str = ""
    parameters: tuple[str, ...] = ()

    @classmethod
    def of(cls, method: str, reason: str, parameters: Sequence[str], location: str | None) -> CallError:
        """The error for a call of a method at the caller's line."""
        unexpected = reason.partition("unexpected keyword argument '")[2].partition("'")[0]
        advice = ADVICE.get((method.removeprefix("rlx."), unexpected))  # "" where it is no keyword that is wrong
        close = keyword_suggestion(unexpected, parameters) if unexpected and not advice else ""
        if unexpected and not close:
            advice = advice or ADVICE.get(("", unexpected))
        error = cls(f"{method}: {reason}{close}; it takes {', '.join(parameters)}", location=location, hint=advice)
        error.reason, error.parameters = reason, tuple(parameters)
        return error


def check_call(what: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Check that a function takes these arguments.

    Args:
        what: What it is called, for the message and for `ADVICE`.
        function: The function; its first parameters stand for `args`.
        args: Arguments in order.
        kwargs: Arguments by name.

    Raises:
        CallError: It does not; the message suggests what may be meant.
    """
    signature = inspect.signature(function)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as problem:
        names = [name for name in signature.parameters if name != "self"]
        unknown = next((name for name in kwargs if name not in names), None)  # which says more than what is missing
        reason = str(problem) if unknown is None else f"got an unexpected keyword argument '{unknown}'"
        raise CallError.of(what, reason, names, describe(caller_location())) from None


def answered(function: Function) -> Function:
    """A decorator: calls with arguments that the function does not take are answered as those of ops are."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError:
            check_call(function.__name__, function, args, kwargs)
            raise

    return cast("Function", call)


class Answered:
    """A class whose constructor answers to arguments that it does not take as ops do."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        if args or kwargs:  # else a copy may be made, which has its attributes later
            check_call(cls.__name__, cls.__init__, (None, *args), kwargs)
        return super().__new__(cls)

"""Errors for calls with arguments that a method does not accept."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeVar, cast

from rlx.ir.location import caller_location, describe
from rlx.support.errors import Error, ShapeError
from rlx.support.short import written
from rlx.support.suggestions import similar

Function = TypeVar("Function", bound=Callable[..., Any])

# Names of arguments in other libraries, in groups: for an unknown keyword, the error suggests the accepted name of its
# group.
_SYNONYMS = (
    ("axis", "axes", "dim", "dims", "dimension", "dimensions", "normalized_shape"),
    ("axis1", "dim0", "dim1", "axis0"),
    ("axis2", "dim1", "dim2"),
    ("rhs", "other", "x2", "y", "b", "exponent", "vec2", "mat2", "tensor", "input2", "tensor2", "B"),
    ("lhs", "input", "x1", "x", "a", "vec1", "mat1", "input1", "self", "A"),
    ("second", "x2", "input2", "other", "b"),
    ("first", "x1", "input1", "input", "a"),
    ("test", "test_elements", "test_element"),
    ("v", "values", "input", "v"),
    ("x", "sorted_sequence", "boundaries", "a", "arr", "array", "operand", "ary", "element", "elements", "value", "z"),
    ("shape", "size", "new_shape", "newshape", "new_sizes", "sizes", "out_shape"),
    ("reps", "dims", "repeats"),
    ("n", "N", "num"),
    ("m", "M"),
    ("stop", "end", "limit"),
    ("num", "steps"),
    ("ddof", "correction", "unbiased"),
    ("rtol", "rcond", "tol"),
    ("length", "n"),
    ("training", "train", "use_input_stats", "use_running_average"),
    ("side", "right"),
    ("x", "other"),
    ("on_true", "input"),
    ("std", "stddev", "scale", "sigma"),
    ("eps", "epsilon", "tol"),
    ("xs", "tensors", "arrays", "tup", "operands", "seq"),
    ("axis", "dimension"),
    ("seed", "key", "rng", "generator"),
    ("lhs_contracting", "dimension_numbers"),
    ("init", "init_val", "init_carry", "initial_states"),
    ("cond", "cond_fun"),
    ("body", "body_fun", "f"),
    ("then", "true_fun", "true_fn"),
    ("els", "false_fun", "false_fn"),
    ("condition", "pred", "cond"),
    ("on_true", "x", "true"),
    ("on_false", "y", "other", "false"),
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
    ("perm", "axes", "dims", "permutation"),
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
    ("size", "num_features", "normalized_shape"),
    ("normalized_shape", "num_features"),
    ("num_features", "input_size"),
    ("num_channels", "num_features"),
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


# Advice for keywords without a counterpart, by method and keyword. An empty method applies to all methods, "graph" to
# functions of graphs; an empty keyword applies to other wrong arguments. The ops fill this table.
ADVICE: dict[tuple[str, str], str] = {}
# Notes for keywords with a counterpart, by method and keyword, where the method returns something different.
NOTES: dict[tuple[str, str], str] = {}


# Conversions for keywords whose counterpart takes a different value or several arguments.
_CONVERTED: dict[str, Callable[[Any], dict[str, Any]]] = {
    "unbiased": lambda value: {"ddof": int(bool(value))},
    "betas": lambda value: {"b1": value[0], "b2": value[1]},
    "right": lambda value: {"side": "right" if value else "left"},
    "normalized_shape": lambda value: {"axis": tuple(range(-len(value), 0)) if len(value) > 1 else -1},
}


# Arguments that reproduce the default of another library, by method and a keyword that only the other library uses.
_DEFAULTS: dict[tuple[str, str], dict[str, Any]] = {(name, "dim"): {"ddof": 1} for name in ("std", "var")}


def keyword_meant(given: str, parameters: Sequence[str]) -> str:
    """Return the parameter that a user probably meant by an unknown keyword; empty if there is none.

    A synonym is preferred to a similar spelling.
    """
    for names in _SYNONYMS:
        if given in names:
            for name in names:
                if name in parameters:
                    return name
    return similar(given, parameters)


def by_name(method: str, parameters: Sequence[str]) -> str:
    """Return a call with all arguments but the first by name, so that the order in other libraries does not matter."""
    given = [*parameters[:1], *(f"{name}=…" for name in parameters[1:])]
    return f"by name: {method.removeprefix('rlx.')}({', '.join(given)})"


def order_hint(method: str, function: Callable[..., Any], given: int) -> str | None:
    """Return a call by name, as the hint for a failed call that passes optional arguments by position.

    Args:
        method: The method's name in messages.
        function: The function that rejected the arguments; its first parameter is the graph.
        given: The number of positional arguments after the graph.
    """
    parameters = list(inspect.signature(function).parameters.values())[1:]
    optional = [p for p in parameters[:given] if p.default is not inspect.Parameter.empty]
    advice = ADVICE.get((method.removeprefix("rlx."), "")) or by_name(method, [p.name for p in parameters])
    return advice if optional else None


def placed(problem: Error, shown: str, function: Callable[..., Any], given: int, location: Any) -> Error:
    """Return an error of a method at the caller's line, with a call by name as the hint if the order may be wrong.

    Args:
        problem: The error. If it has a location, it is about an op inside, and keeps it.
        shown: The method's name in messages.
        function: The function that rejected the arguments.
        given: The number of positional arguments.
        location: The caller's line.
    """
    hint = problem.hint or order_hint(shown, function, given)
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
        first = reason.partition("unexpected keyword argument '")[2].partition("'")[0]
        name = method.removeprefix("rlx.")
        unknown = [first, *(k for k in given if k not in (first, *parameters))] if first else []
        meant = {k: "" if (name, k) in ADVICE else keyword_meant(k, parameters) for k in unknown}
        without = {k: _advice(name, k, given.get(k), parameters) for k, other in meant.items() if not other}
        said = [f"'{k}': {text}" if len(unknown) > 1 else text for k, text in without.items() if text]
        if not unknown:
            said = [ADVICE.get((name, "")) or by_name(method, parameters)]
        if any(meant.values()) and list(parameters[:1]) not in (["graph"], ["function"]):
            notes = "".join(f"; {NOTES[name, k]}" for k in meant if (name, k) in NOTES)
            said.append(f"instead: {owner}{name}({_corrected(name, parameters, args, given, meant)}){notes}")
        close = [f"'{k}' (did you mean '{other}'?)" if other else f"'{k}'" for k, other in meant.items()]
        problem = f"got an unexpected keyword argument {', nor is there '.join(close)}" if close else reason
        hint = "; ".join(said) or None
        error = cls(f"{method}: {problem}; it takes {', '.join(parameters)}", location=location, hint=hint)
        error.reason, error.parameters, error.given = reason, tuple(parameters), (args, given)
        return error


def _advice(method: str, keyword: str, value: Any, parameters: Sequence[str]) -> str | None:
    """Return the advice for a keyword without a counterpart, with the value of the call."""
    of = "graph" if list(parameters[:1]) == ["graph"] else ""  # advice for ops does not apply to transforms
    advice = ADVICE.get((method, keyword)) or ADVICE.get((of, keyword))
    shown = written(value, "")
    return advice.replace("=…", f"={shown}") if advice and shown and value is not None else advice


def _corrected(
    method: str, parameters: Sequence[str], args: Sequence[Any], given: Mapping[str, Any], meant: Mapping[str, str]
) -> str:
    """Return the arguments of a call under the method's names. Arguments without a counterpart are omitted."""
    named: dict[str, Any] = {}
    for keyword in meant:
        named |= _DEFAULTS.get((method, keyword), {})
    for keyword, value in given.items():
        if keyword not in meant:
            named[keyword] = value
        elif meant[keyword]:
            named |= _converted(keyword, value, meant[keyword])
    before = [(n, a) for n, a in zip(parameters, args, strict=False) if n not in named]
    return ", ".join([*(written(a, n) for n, a in before), *(f"{n}={written(a, n)}" for n, a in named.items())])


def _converted(keyword: str, value: Any, meant: str) -> dict[str, Any]:
    try:
        arguments = _CONVERTED[keyword](value)
    except (KeyError, TypeError, IndexError):
        arguments = {}
    return arguments if meant in arguments else {meant: value}


def check_call(what: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Check that a function accepts the arguments.

    Args:
        what: The function's name, for the message and for `ADVICE`.
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


def answered(function: Function) -> Function:
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

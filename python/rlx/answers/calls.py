"""Answers to calls with arguments that a method does not accept."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any

from rlx.answers.reader import groups, table
from rlx.support.short import source_text
from rlx.support.suggestions import similar

# Conversions for keywords whose counterpart takes a different value or several arguments.
_CONVERTED: dict[str, Callable[[Any], dict[str, Any]]] = {
    "unbiased": lambda value: {"ddof": int(bool(value))},
    "betas": lambda value: {"b1": value[0], "b2": value[1]},
    "right": lambda value: {"side": "right" if value else "left"},
    "normalized_shape": lambda value: {"axis": tuple(range(-len(value), 0)) if len(value) > 1 else -1},
}
# Arguments that reproduce the default of another library, by method and a keyword that only the other library uses.
_DEFAULTS: dict[tuple[str, str], dict[str, Any]] = {(name, "dim"): {"ddof": 1} for name in ("std", "var")}


@cache
def keywords() -> dict[str, str]:
    """Return the advice for keywords without a counterpart, by method and keyword as `grad(argnums)`.

    `(out)` applies to all methods, `graph(fun)` to functions of graphs, and `vmap()` to other wrong arguments.
    """
    of_all = {f"({keyword})": text for keyword, text in table("keywords/ops", "keywords/classes").items()}
    of_graphs = {f"graph({keyword})": text for keyword, text in table("keywords/graphs").items()}
    return of_all | of_graphs | table("keywords/methods")


def advice(method: str, keyword: str = "") -> str | None:
    """Return the advice for a keyword of one method, without a keyword that for other wrong arguments."""
    return keywords().get(f"{method}({keyword})")


def call_problem(
    method: str,
    reason: str,
    parameters: Sequence[str],
    args: Sequence[Any],
    given: Mapping[str, Any],
    owner: str,
    keyword_only: Collection[str] = (),
) -> tuple[str, str | None]:
    """Return the message and the hint for a call that does not match the parameters of a method.

    Args:
        method: The method's name.
        reason: Python's message about the call.
        parameters: The names of the method's parameters.
        args: The arguments in order.
        given: The arguments by name.
        owner: The text before the method's name in a call.
        keyword_only: The parameters that are accepted by name only.
    """
    first = reason.partition("unexpected keyword argument '")[2].partition("'")[0]
    unknown = [first, *(k for k in given if k not in (first, *parameters))] if first else []
    meant = {k: "" if advice(method, k) is not None else keyword_meant(k, parameters) for k in unknown}
    without = {k: _advice(method, k, given.get(k), parameters) for k, other in meant.items() if not other}
    said = [f"'{k}': {text}" if len(unknown) > 1 else text for k, text in without.items() if text]
    if not unknown:
        typed = _with_names(owner + method, parameters, args, given, keyword_only)
        said = [advice(method) or typed or by_name(method, parameters, keyword_only)]
    if any(meant.values()) and list(parameters[:1]) not in (["graph"], ["function"]):
        found = (table("keywords/notes").get(f"{method}({k})") for k in meant)
        notes = "".join(f"; {note}" for note in found if note is not None)
        said.append(f"instead: {owner}{method}({_corrected(method, parameters, args, given, meant)}){notes}")
    close = [f"'{k}' (did you mean '{other}'?)" if other else f"'{k}'" for k, other in meant.items()]
    problem = f"got an unexpected keyword argument {', nor is there '.join(close)}" if close else reason
    return problem, "; ".join(said) or None


def keyword_meant(given: str, parameters: Sequence[str]) -> str:
    """Return the parameter that a user probably meant by an unknown keyword; empty if there is none.

    A synonym is preferred to a similar spelling.
    """
    for names in groups("keywords/synonyms"):
        if given in names:
            for name in names:
                if name in parameters:
                    return name
    return similar(given, parameters)


def _with_names(
    call: str, parameters: Sequence[str], args: Sequence[Any], given: Mapping[str, Any], keyword_only: Collection[str]
) -> str | None:
    """Return a call as it was meant, if its last arguments by position are those that are accepted by name only.

    It is unknown which ones they are if there are more parameters of this kind: the result is then None.
    """
    in_order = [name for name in parameters if name not in keyword_only]
    missing = [name for name in parameters if name in keyword_only and name not in given]
    surplus = args[len(in_order) :]
    if not surplus or len(surplus) != len(missing):
        return None
    before = [source_text(value, name) for value, name in zip(args, in_order, strict=False)]
    named = {**dict(zip(missing, surplus, strict=True)), **given}
    return f"instead: {call}({', '.join([*before, *(f'{n}={source_text(v, n)}' for n, v in named.items())])})"


def by_name(method: str, parameters: Sequence[str], keyword_only: Collection[str] = ()) -> str:
    """Return a call with all arguments but the first by name, so that the order in other libraries does not matter.

    If some parameters are accepted by name only, those before them are shown in order.
    """
    in_order = [n for n in parameters if n not in keyword_only] if keyword_only else list(parameters[:1])
    given = [name if name in in_order else f"{name}=…" for name in parameters]
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
    said = advice(method.removeprefix("rlx.")) or by_name(method, [p.name for p in parameters])
    return said if optional else None


def _advice(method: str, keyword: str, value: Any, parameters: Sequence[str]) -> str | None:
    """Return the advice for a keyword without a counterpart, with the value of the call."""
    of = "graph" if list(parameters[:1]) == ["graph"] else ""  # advice for ops does not apply to transforms
    said = advice(method, keyword) or advice(of, keyword)
    shown = source_text(value, "")
    return said.replace("=…", f"={shown}") if said and shown and value is not None else said


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
    return ", ".join([*(source_text(a, n) for n, a in before), *(f"{n}={source_text(a, n)}" for n, a in named.items())])


def _converted(keyword: str, value: Any, meant: str) -> dict[str, Any]:
    try:
        arguments = _CONVERTED[keyword](value)
    except (KeyError, TypeError, IndexError):
        arguments = {}
    return arguments if meant in arguments else {meant: value}

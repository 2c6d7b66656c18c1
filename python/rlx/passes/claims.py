"""The ops that a target claims, from the options of passes: the ops of a lowering, and more ops by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rlx.ir.op import registry
from rlx.ir.op.costs import Costs
from rlx.parts import TARGETS
from rlx.passes.base import find, load
from rlx.support.errors import Error, PassError
from rlx.support.suggestions import suggestion


def claimed(lowering: str | None, more: Iterable[str] = (), without: Iterable[str] = ()) -> frozenset[str]:
    """Names of the ops that a target takes, without prefix.

    Args:
        lowering: The pass that lowers them, such as `rlx-to-linalg`.
        more: Names of other ops.
        without: Names of ops that it does not take, although the pass lowers them.

    Raises:
        PassError: There is no such pass, it lowers nothing, or there is no such op.
    """
    return (known_ops(more) | frozenset(rules_of(lowering) if lowering else ())) - known_ops(without)


def known_ops(names: Iterable[str]) -> frozenset[str]:
    """Names of ops without prefix, after a check that all of the ops exist.

    Raises:
        PassError: One does not.
    """
    cards = registry.load()
    stripped = [name.removeprefix("rlx.") for name in names]
    for name in stripped:
        if name not in cards:
            raise PassError(f"there is no op '{name}'{suggestion(name, cards)}")
    return frozenset(stripped)


def fusions_of_target(name: str) -> tuple[tuple[str, ...], Costs | None]:
    """The fusions that are made for a target where they pay, and what work costs there: its back end knows them.

    Raises:
        PassError: There is no such target.
    """
    targets = importlib.import_module(TARGETS)
    try:
        target = targets.target_of(name)
        return tuple(target.fusions), target.costs
    except Error as problem:
        raise PassError(problem.message, hint=problem.hint) from None


def rules_of(name: str) -> Mapping[str, Callable[..., Any]]:
    """The rules of a lowering, by the names of the ops that they lower.

    Raises:
        PassError: There is no such pass, or it lowers nothing.
    """
    lowering = find(name)
    rules = None if lowering is None else lowering.rules()
    if rules is None:
        problem = "is not a pass" if lowering is None else "is not a lowering"
        known = [n for n, cls in load().items() if cls.rules() is not None]
        raise PassError(f"'{name}' {problem}{suggestion(name, known)}", hint=f"lowerings: {', '.join(sorted(known))}")
    return rules

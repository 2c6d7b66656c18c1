"""The ops that a target supports, from the options of passes: the ops of a lowering, and more ops by name."""

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


def claimed_ops(lowering: str | None, more: Iterable[str] = (), without: Iterable[str] = ()) -> frozenset[str]:
    """Return the names of the ops that a target supports, without prefix.

    Args:
        lowering: The pass that lowers them, such as `rlx-to-linalg`.
        more: Names of other ops.
        without: Names of ops that the target does not support, although the pass lowers them.

    Raises:
        PassError: The pass does not exist or is not a lowering, or an op does not exist.
    """
    return (known_ops(more) | frozenset(rules_of(lowering) if lowering else ())) - known_ops(without)


def known_ops(names: Iterable[str]) -> frozenset[str]:
    """Return names of ops without prefix, after checking that all ops exist.

    Raises:
        PassError: An op does not exist.
    """
    cards = registry.load()
    stripped = [name.removeprefix("rlx.") for name in names]
    for name in stripped:
        if name not in cards:
            raise PassError(f"there is no op '{name}'{suggestion(name, cards)}")
    return frozenset(stripped)


def fusions_of_target(name: str) -> tuple[tuple[str, ...], Costs | None]:
    """Return the fusions that may pay off on a target, and its cost model. The target's back end defines both.

    Raises:
        PassError: The target does not exist.
    """
    targets = importlib.import_module(TARGETS)
    try:
        target = targets.target_of(name)
        return tuple(target.fusions), target.costs
    except Error as problem:
        raise PassError(problem.message, hint=problem.hint) from None


def rules_of(name: str) -> Mapping[str, Callable[..., Any]]:
    """Return the rules of a lowering, by the names of the ops that they lower.

    Raises:
        PassError: The pass does not exist, or is not a lowering.
    """
    lowering = find(name)
    rules = None if lowering is None else lowering.rules()
    if rules is None:
        problem = "is not a pass" if lowering is None else "is not a lowering"
        known = [n for n, cls in load().items() if cls.rules() is not None]
        raise PassError(f"'{name}' {problem}{suggestion(name, known)}", hint=f"lowerings: {', '.join(sorted(known))}")
    return rules

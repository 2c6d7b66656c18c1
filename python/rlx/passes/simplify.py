"""`rlx-simplify`: algebra and shape ops that do nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir import registry
from rlx.passes.base import Pass
from rlx.passes.rewrite import collect, erase_dead, replace


@dataclass(frozen=True)
class Simplify(Pass, name="rlx-simplify"):
    """Remove ops that do nothing and join ops that undo each other.

    Exact up to the sign of a zero (`x + 0` is `x`); what would lose a NaN stays, so `x·0` is 0 for integers
    only.
    """

    def run(self, module: Any) -> None:
        rules = _rules()
        for op in collect(module, rules.keys()):
            while op is not None:
                op = _apply(op, rules.get(op.name[4:], ()))


def _apply(op: Any, rules: Any) -> Any:
    """Try the rules of an op; the new op that stands for it, None when there is none."""
    for rule in rules:
        value = rule(op)
        if value is None:
            continue
        owners = [v.owner.operation for v in op.operands if isinstance(v, mlir.ir.OpResult)]
        # Only what a rule has just emitted is without uses.
        new = None if next(iter(value.uses), None) is not None else value.owner.operation
        replace(op, [value])
        erase_dead(owners)
        return new if new is not None and registry.is_ours(new) else None
    return None


def _rules() -> dict[str, list[Callable[[Any], Any]]]:
    from rlx.passes import simplify_rules

    return simplify_rules.RULES

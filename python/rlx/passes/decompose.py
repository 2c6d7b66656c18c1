"""`rlx-decompose`: composite ops out of simpler ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rlx.ir import registry
from rlx.ir.attributes import suggestion
from rlx.ir.errors import PassError
from rlx.ir.graph import module_stage
from rlx.passes.base import Pass, option
from rlx.passes.rewrite import decompose_all, has_blocks, set_stage


@dataclass(frozen=True)
class Decompose(Pass, name="rlx-decompose"):
    """Replace composite ops by their decompositions, until only primitives and excepted ops are left.

    A back end gives the ops that it claims as `except`. Primitives in that list are no error: a claim names
    all that a target can do.
    """

    ops: tuple[str, ...] = option((), "the ops to decompose; all composite ones when empty")
    except_: tuple[str, ...] = option((), "ops to keep, such as those that a target claims")

    def run(self, module: Any) -> None:
        names = self.targets()
        decompose_all(module, names)
        if module_stage(module) == "hir" and not has_blocks(module):
            set_stage(module, "mir")

    def targets(self) -> frozenset[str]:
        """Names of the ops that the pass replaces.

        Raises:
            PassError: An op does not exist, or is a primitive and named in `ops`.
        """
        cards = registry.load()
        composite = frozenset(name for name, card in cards.items() if card.composite)
        wanted = _known(self.ops, cards) if self.ops else composite
        primitive = sorted(wanted - composite)
        if primitive:
            raise PassError(f"{self.name}: {', '.join(primitive)} is a primitive: it has no decomposition")
        return wanted - _known(self.except_, cards)


def _known(names: Iterable[str], cards: Iterable[str]) -> frozenset[str]:
    stripped = [name.removeprefix("rlx.") for name in names]
    for name in stripped:
        if name not in cards:
            raise PassError(f"{Decompose.name}: there is no op '{name}'{suggestion(name, cards)}")
    return frozenset(stripped)

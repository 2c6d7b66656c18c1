"""`rlx-decompose`: replacement of composite ops by simpler ones."""

from __future__ import annotations

from dataclasses import dataclass

from rlx import mlir
from rlx.ir.graph.graph import module_stage
from rlx.ir.op import registry
from rlx.passes.base import Pass, option
from rlx.passes.claims import claimed_ops, known_ops
from rlx.passes.rewrite import decompose_all, has_blocks, set_stage
from rlx.support.errors import PassError


@dataclass(frozen=True)
class Decompose(Pass, name="rlx-decompose", idempotent=True):
    """Replace composite ops by their decompositions, until only primitives and excepted ops are left.

    A target declares all ops that it can compile, primitives included: the ops of a lowering by `for`, others by
    `except`.
    """

    for_: str | None = option(None, "the next pass: the ops that it lowers are kept")
    ops: tuple[str, ...] = option((), "the ops to decompose; all composite ones when empty")
    except_: tuple[str, ...] = option((), "more ops to keep")
    without: tuple[str, ...] = option((), "ops that are not kept, although the next pass lowers them")

    def run(self, module: mlir.Module) -> None:
        names = self.targets()
        decompose_all(module, names)
        if module_stage(module) == "hir" and not has_blocks(module):
            set_stage(module, "mir")

    def targets(self) -> frozenset[str]:
        """Return the names of the ops that the pass replaces.

        Raises:
            PassError: An op does not exist, or `ops` names a primitive, or `for` is not a lowering.
        """
        cards = registry.load()
        composite = frozenset(name for name, card in cards.items() if card.composite)
        requested = known_ops(self.ops) if self.ops else composite
        primitive = sorted(requested - composite)
        if primitive:
            raise PassError(f"{self.name}: {', '.join(primitive)} is a primitive: it has no decomposition")
        return requested - claimed_ops(self.for_, self.except_, self.without)

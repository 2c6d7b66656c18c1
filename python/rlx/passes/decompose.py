"""`rlx-decompose`: composite ops out of simpler ones."""

from __future__ import annotations

from dataclasses import dataclass

from rlx import mlir
from rlx.ir import registry
from rlx.ir.errors import PassError
from rlx.ir.graph import module_stage
from rlx.passes.base import Pass, option
from rlx.passes.claims import claimed, known_ops
from rlx.passes.rewrite import decompose_all, has_blocks, set_stage


@dataclass(frozen=True)
class Decompose(Pass, name="rlx-decompose"):
    """Replace composite ops by their decompositions, until only primitives and excepted ops are left.

    A target names the ops that it takes: those of a lowering by `for`, others by `except`. Primitives among them are no
    error: a claim names all that a target can do.
    """

    for_: str | None = option(None, "the pass that comes next: the ops that it lowers are kept")
    ops: tuple[str, ...] = option((), "the ops to decompose; all composite ones when empty")
    except_: tuple[str, ...] = option((), "ops to keep, beside those")
    force: tuple[str, ...] = option((), "ops to decompose although that pass lowers them")

    def run(self, module: mlir.Module) -> None:
        names = self.targets()
        decompose_all(module, names)
        if module_stage(module) == "hir" and not has_blocks(module):
            set_stage(module, "mir")

    def targets(self) -> frozenset[str]:
        """Names of the ops that the pass replaces.

        Raises:
            PassError: An op does not exist, or is a primitive and named in `ops` or `force`; or `for` is no lowering.
        """
        cards = registry.load()
        composite = frozenset(name for name, card in cards.items() if card.composite)
        wanted, forced = known_ops(self.ops) if self.ops else composite, known_ops(self.force)
        primitive = sorted((wanted | forced) - composite)
        if primitive:
            raise PassError(f"{self.name}: {', '.join(primitive)} is a primitive: it has no decomposition")
        return (wanted - claimed(self.for_, self.except_)) | forced

"""A graph at another of its stages."""

from __future__ import annotations

from rlx.ir.errors import StageError
from rlx.ir.graph import Graph
from rlx.ir.signature import STAGES


def at_stage(graph: Graph, stage: str, fusion_policy: str = "direct") -> Graph:
    """A graph at another stage: MIR has no blocks, LIR is what the CPU's lowering takes.

    Args:
        graph: It is not changed.
        stage: `"hir"`, `"mir"` or `"lir"`.
        fusion_policy: `"direct"` fuses ops, `"fusable"` leaves primitives.

    Raises:
        StageError: The graph has passed that stage.
    """
    if STAGES.index(stage) < STAGES.index(graph.stage):
        raise StageError(f"'{graph.name}' is at stage {graph.stage}, so it has no {stage}")
    if stage == graph.stage:
        return graph
    from rlx.backends.stages import legalised, lowered_blocks
    from rlx.lower.linalg import claimed_ops

    if stage == "lir":
        return legalised(graph, claimed_ops(), policy=fusion_policy)
    return lowered_blocks(graph, fusion_policy)

"""Pipelines from HIR to MIR: lowering of blocks, the passes of an optimisation level, and precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlx.passes.base import Pass

# Simplifications that need no target: algebra, constants, loop invariants, dead carries, duplicate and unused ops.
_REGIONS = ("rlx-propagate-constants", "rlx-hoist-invariants", "rlx-prune-regions")
_SCALAR = ("rlx-constant-fold", *_REGIONS, "canonicalize", "cse")


def to_mir(
    level: int = 0, *, fuse: bool = True, precision: Sequence[Pass] = (), target: str = "", fast_math: bool = False
) -> str:
    """Return the pipeline from HIR to MIR.

    Args:
        level: 0 to 3. At every level the results are those of the graph, within the tolerance of its dtypes.
        fuse: Whether to make fused ops, unless the module says otherwise; else primitives stay.
        precision: The passes that lower the dtypes to compute in: `PrecisionPolicy.passes`.
        target: The target whose cost model selects fusions; empty selects all of them.
        fast_math: Whether floats are simplified as if they were real numbers, from level 1 on.
    """
    simplify = "rlx-simplify{fast-math}" if fast_math else "rlx-simplify"
    scalar, fusing = (simplify, *_SCALAR) if level else (), _fusing(level, target, simplify) if fuse else ()
    casts = ("rlx-hoist-invariants",) if level and precision else ()  # casts of weights that loops read
    # Functions with derivative rules hide their computation from fusions.
    plain = ("rlx-decompose{ops=custom_fn,custom_root}",) if fuse else ()
    return ",".join(["rlx-lower-blocks", *plain, *scalar, *fusing, *map(str, precision), *casts])


def _fusing(level: int, target: str, simplify: str) -> tuple[str, ...]:
    """Return the passes that recognise and fuse ops, and remove the views that recognition leaves.

    Recognised ops are computed in another order, with other rounding, so recognition starts at level 2.
    """
    chosen = f"{{target={target}}}" if target else ""
    return (f"rlx-recognize{chosen}", simplify, f"rlx-fuse{chosen}") if level > 1 else (f"rlx-fuse{chosen}",)

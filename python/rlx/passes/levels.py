"""Pipelines from HIR to MIR: lowering of blocks, the passes of an optimisation level, and precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlx.support.errors import Error
from rlx.support.short import shown

if TYPE_CHECKING:
    from rlx.passes.base import Pass

LEVELS = (0, 1, 2, 3)
DEFAULT_LEVEL = 2

# Target-independent simplification: algebra, constants, loop-invariant code, unused loop carries, duplicate and dead
# code.
_REGIONS = ("rlx-propagate-constants", "rlx-hoist-invariants", "rlx-prune-regions")
_SCALAR = ("rlx-constant-fold", *_REGIONS, "canonicalize", "cse")


def check_options(level: Any, fast_math: Any = False) -> None:
    """Check an optimisation level and `fast_math`.

    Raises:
        Error: The level does not exist, or `fast_math` is not True or False.
    """
    if isinstance(level, bool) or not isinstance(level, int) or level not in LEVELS:
        raise Error(f"opt={shown(level)} is not one of the levels {', '.join(map(str, LEVELS))}")
    if not isinstance(fast_math, bool):
        raise Error(f"fast_math={shown(fast_math)} is neither True nor False")


def to_mir(
    level: int = 0, *, fuse: bool = True, precision: Sequence[Pass] = (), target: str = "", fast_math: bool = False
) -> str:
    """Return the pipeline from HIR to MIR.

    Args:
        level: 0 to 3. At every level the results are those of the graph, within the tolerance of its dtypes.
        fuse: Whether to create fused ops, unless the module declares otherwise; else primitives stay.
        precision: The passes that lower compute dtypes: `PrecisionPolicy.passes`.
        target: The target on which fusions must pay off; empty applies all.
        fast_math: Whether floats are simplified as if they were real numbers, from level 1.

    Raises:
        Error: The level does not exist, or `fast_math` is not a bool.
    """
    check_options(level, fast_math)
    simplify = "rlx-simplify{fast-math}" if fast_math else "rlx-simplify"
    scalar, fusing = (simplify, *_SCALAR) if level else (), _fusing(level, target, simplify) if fuse else ()
    casts = ("rlx-hoist-invariants",) if level and precision else ()  # casts of weights that loops read
    # Functions with derivative rules hide their computation from fusions.
    plain = ("rlx-decompose{ops=custom_fn}",) if fuse else ()
    return ",".join(["rlx-lower-blocks", *plain, *scalar, *fusing, *map(str, precision), *casts])


def _fusing(level: int, target: str, simplify: str) -> tuple[str, ...]:
    """Return the passes that recognise and fuse ops, and remove the views that recognition leaves.

    Recognised ops are computed in another order, with other rounding, so recognition starts at level 2.
    """
    chosen = f"{{target={target}}}" if target else ""
    return (f"rlx-recognize{chosen}", simplify, f"rlx-fuse{chosen}") if level > 1 else (f"rlx-fuse{chosen}",)

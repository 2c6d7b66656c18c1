"""The passes from HIR to MIR: blocks lowered, those of a level of optimisation, and the dtype to compute in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlx.support.errors import Error
from rlx.support.short import shown

if TYPE_CHECKING:
    from rlx.passes.base import Pass

LEVELS = (0, 1, 2, 3)
DEFAULT_LEVEL = 2

# What is known without the target: algebra, constants, what loops need not compute or carry, what is there twice or for nobody.
_REGIONS = ("rlx-propagate-constants", "rlx-hoist-invariants", "rlx-prune-regions")
_SCALAR = ("rlx-constant-fold", *_REGIONS, "canonicalize", "cse")


def check_options(level: Any, fast_math: Any = False) -> None:
    """The level is one of those that there are, and `fast_math` is True or False.

    Raises:
        Error: It is not.
    """
    if isinstance(level, bool) or not isinstance(level, int) or level not in LEVELS:
        raise Error(f"opt={shown(level)} is not one of the levels {', '.join(map(str, LEVELS))}")
    if not isinstance(fast_math, bool):
        raise Error(f"fast_math={shown(fast_math)} is neither True nor False")


def to_mir(
    level: int = 0, *, fuse: bool = True, precision: Sequence[Pass] = (), target: str = "", fast_math: bool = False
) -> str:
    """The pipeline from HIR to MIR.

    Args:
        level: 0 to 3. At every level the results are those of the graph, within the tolerance of its dtypes.
        fuse: Whether to make fused ops, unless the module says otherwise; else primitives stay.
        precision: What lowers the dtypes to compute in: `PrecisionPolicy.passes`.
        target: The target, for which it has to pay what is made; empty makes all.
        fast_math: Whether floats are simplified as if they were real numbers, from level 1 on.

    Raises:
        Error: There is no such level, or `fast_math` is not a truth value.
    """
    check_options(level, fast_math)
    simplify = "rlx-simplify{fast-math}" if fast_math else "rlx-simplify"
    scalar, fusing = (simplify, *_SCALAR) if level else (), _fusing(level, target, simplify) if fuse else ()
    casts = ("rlx-hoist-invariants",) if level and precision else ()  # those of weights that loops read
    # Rules of derivatives hide from fusions what a function computes.
    plain = ("rlx-decompose{ops=custom_fn}",) if fuse else ()
    return ",".join(["rlx-lower-blocks", *plain, *scalar, *fusing, *map(str, precision), *casts])


def _fusing(level: int, target: str, simplify: str) -> tuple[str, ...]:
    """Names for what primitives spell out, without the views that this leaves over, and fused ops.

    What is recognised is computed in another order, and rounded otherwise: from level 2 on.
    """
    chosen = f"{{target={target}}}" if target else ""
    return (f"rlx-recognize{chosen}", simplify, f"rlx-fuse{chosen}") if level > 1 else (f"rlx-fuse{chosen}",)

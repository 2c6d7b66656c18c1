"""The passes of each level of optimisation, between blocks and the dtype to compute in."""

from __future__ import annotations

from typing import Any

from rlx.ir.errors import Error

LEVELS = (0, 1, 2, 3)
DEFAULT_LEVEL = 2

# What is known without the target: algebra, constants, what is computed twice, what nobody reads.
_SCALAR = ("rlx-simplify", "rlx-constant-fold", "canonicalize", "cse")


def check_level(level: Any) -> None:
    """The level is one of those that there are.

    Raises:
        Error: It is not.
    """
    if isinstance(level, bool) or not isinstance(level, int) or level not in LEVELS:
        raise Error(f"opt={level!r:.60} is not one of the levels {', '.join(map(str, LEVELS))}")


def passes_of_level(level: int, *, fuse: bool) -> tuple[str, ...]:
    """The passes of a level, for a module whose blocks are lowered.

    Args:
        level: 0 to 3. At every level the results are those of the graph, within the tolerance of its dtypes.
        fuse: Whether to make fused ops.
    """
    check_level(level)
    fusing = ("rlx-fuse",) if fuse else ()
    return fusing if level == 0 else (*_SCALAR, *fusing)

"""What a compiler may not fuse."""

from __future__ import annotations

from typing import Any

from rlx.ir.shape import Shape
from rlx.lower.linalg.control import copied
from rlx.lower.linalg.loops import Loops
from rlx.lower.linalg.rules import Lowered, lowers


@lowers("materialize")
def materialize(low: Loops, results: list[Shape], x: Lowered) -> Any:
    """Of a copy, because IREE takes what comes out of the fence for a value that it may overwrite."""
    if not low.for_iree:
        return x.value
    return low.materialised(copied(low, x), x.shape.dims)

"""Matrix products whose elements go into complex numbers.

IREE's compiler (3.13) computes a product in tiles and leaves it in tiles through the elementwise ops that follow, and all
that they meet is brought into tiles as well. Of complex numbers it cannot read any, and gives up on such a program. So
products that meet one are computed in memory first.
"""

from __future__ import annotations

from typing import Any

from rlx import mlir
from rlx.ir import opview
from rlx.ir.shape import shape_of


def meets_complex_numbers(op: Any) -> bool:
    """Whether an op is a product of real numbers that are used, element by element, together with complex ones."""
    if not opview.has_trait(op, "product") or _is_complex(op.results[0]):
        return False
    users, seen = _elementwise_users(op), set()
    waiting = list(users)  # these, and whatever they are fused with
    while waiting:
        owner = waiting.pop()
        if owner in seen:
            continue
        if any(map(_is_complex, (*owner.operands, *owner.results))):
            return True
        seen.add(owner)
        makers = [v.owner.operation for v in owner.operands if isinstance(v, mlir.ir.OpResult)]
        waiting += filter(_keeps_tiles, makers)
    return False


def _elementwise_users(op: Any) -> set[Any]:
    """The elementwise ops that use what an op gives, and those that use what they give."""
    found: set[Any] = set()
    waiting = [op]
    while waiting:
        users = {use.owner.operation for result in waiting.pop().results for use in result.uses}
        new = set(filter(_keeps_tiles, users)) - found
        found |= new
        waiting += new
    return found


def _keeps_tiles(op: Any) -> bool:
    """Whether the tiles go through an op."""
    return opview.has_trait(op, "elementwise") or opview.has_trait(op, "rearranges")


def _is_complex(value: Any) -> bool:
    return shape_of(value).dtype.is_complex

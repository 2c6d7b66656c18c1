"""Activations that are kept in memory because several products read them.

IREE fuses elementwise ops into the kernels that read them, so that it would compute a GELU, for one, again for each
product: in a feed-forward layer that is trained, for that of the forward pass and for the gradient of its weight.
"""

from __future__ import annotations

from typing import Any

from rlx.ir import opview
from rlx.ir.shape import shape_of


def is_kept(op: Any) -> bool:
    """Whether an op is an elementwise one that is expensive to compute, and that several products read."""
    if not opview.has_trait(op, "elementwise") or opview.has_trait(op, "cheap"):
        return False
    return not shape_of(op.results[0]).dtype.is_complex and len(_products(op.results[0])) > 1


def _products(value: Any) -> set[Any]:
    """The products that read a value, as it is or arranged in another way."""
    found: set[Any] = set()
    for use in value.uses:
        user = use.owner.operation
        if opview.has_trait(user, "product"):
            found.add(user)
        elif opview.has_trait(user, "rearranges"):
            found |= _products(user.results[0])
    return found

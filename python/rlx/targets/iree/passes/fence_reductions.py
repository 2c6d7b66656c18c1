"""`rlx-iree-fence-reductions`: writes the result of every reduction, and what it reads twice, to memory first.

In a Vulkan kernel with a reduction and ops fused after it, the threads that read the result do not wait for the thread that
writes it (seen with Mesa's lavapipe): `x - mean(x)` is sometimes wrong. The code for Metal has the same form. Quirk:
`reduction-races`.

A reduction that reads a computed tensor at two positions, such as the comparison of all pairs in a sort, keeps the tensor in
the memory of a workgroup, and its threads do not wait either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.targets.iree.passes.base import (
    IreePass,
    every,
    in_memory,
    is_fused_with_readers,
    keep_in_memory,
    maker_of,
    replace_uses,
)

_REDUCING = ("linalg.matmul", "linalg.batch_matmul", "linalg.reduce")


@dataclass(frozen=True)
class FenceReductions(IreePass, name="rlx-iree-fence-reductions"):
    """Compute results of reductions, and operands that are read twice, in memory before other ops read them, for some GPUs."""

    def run(self, module: Any) -> None:
        for op in every(module, reduces):
            for result in op.results:
                keep_in_memory(result)
            for value in {v for v in op.operands if list(op.operands).count(v) > 1 and _is_fused(v)}:
                with op.location, mlir.ir.InsertionPoint(op):
                    replace_uses([use for use in value.uses if use.owner == op], in_memory(value))


def _is_fused(value: Any) -> bool:
    """Whether IREE may compute a value in the kernel that reads it."""
    maker = maker_of(value)
    return maker is not None and is_fused_with_readers(maker)


def reduces(op: Any) -> bool:
    """Whether a linalg op iterates over more elements than its result has."""
    if not op.name.startswith("linalg."):
        return False
    if "iterator_types" in op.attributes:
        return "reduction" in str(op.attributes["iterator_types"])
    return op.name in _REDUCING or op.name.startswith(("linalg.conv_", "linalg.depthwise_conv_", "linalg.pooling_"))

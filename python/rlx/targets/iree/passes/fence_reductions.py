"""`rlx-iree-fence-reductions`: writes the result of every reduction to memory before other ops read it.

In a Vulkan kernel with a reduction and ops fused after it, the threads that read the result do not wait for the thread that
writes it (seen with Mesa's lavapipe): `x - mean(x)` is sometimes wrong. The code for Metal has the same form. Quirk:
`reduction-races`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx.targets.iree.passes.base import IreePass, every, keep_in_memory

_REDUCING = ("linalg.matmul", "linalg.batch_matmul", "linalg.reduce")


@dataclass(frozen=True)
class FenceReductions(IreePass, name="rlx-iree-fence-reductions"):
    """Compute the result of every reduction in memory before other ops read it, for IREE on some GPUs."""

    def run(self, module: Any) -> None:
        for op in every(module, reduces):
            for result in op.results:
                keep_in_memory(result)


def reduces(op: Any) -> bool:
    """Whether a linalg op iterates over more elements than its result has."""
    if not op.name.startswith("linalg."):
        return False
    if "iterator_types" in op.attributes:
        return "reduction" in str(op.attributes["iterator_types"])
    return op.name in _REDUCING or op.name.startswith(("linalg.conv_", "linalg.depthwise_conv_", "linalg.pooling_"))

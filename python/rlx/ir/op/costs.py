"""Cost model of a target, used to choose fusions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Costs:
    """The measured rates of a target (`python -m tools.bench_fusion --costs`).

    Attributes:
        flops: Operations per second in products.
        bytes: Bytes per second that kernels read and write.
        kernel_s: Fixed cost of a kernel in seconds, independent of its size.
    """

    flops: float
    bytes: float
    kernel_s: float

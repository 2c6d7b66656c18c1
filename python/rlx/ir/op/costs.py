"""What work costs on a target, as the choice of fusions takes it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Costs:
    """Three numbers of a target, from measurements (`python -m tools.bench_fusion --costs`).

    Attributes:
        flops: Operations a second of products.
        bytes: Bytes a second that kernels read and write.
        kernel_s: Seconds that a kernel costs by itself, however small it is.
    """

    flops: float
    bytes: float
    kernel_s: float

"""The passes from LIR to StableHLO, for XLA, for libtpu and for portable artifacts."""

from __future__ import annotations

from rlx.passes.simplification.float_products import FloatProducts
from rlx.passes.simplification.kernel_layout import KernelLayout
from rlx.passes.simplification.outline_weights import OutlineWeights
from rlx.targets.stablehlo.sharding import Form
from rlx.targets.stablehlo.to_stablehlo import ToStablehlo

# The function that XLA runs.
ENTRY = "main"
OUTLINE = str(OutlineWeights())


def preparation(level: int) -> str:
    """The passes that prepare products, and keep weights in the layouts that XLA reads, from level 1 on; else empty."""
    return f"{FloatProducts()},{KernelLayout()}" if level else ""


def to_stablehlo(shardings: Form | None = None, *, cpu: bool = False) -> str:
    """The pass that lowers a module, with its mesh and shardings in this form, or without them; see `ToStablehlo`."""
    return str(ToStablehlo(shardings or "none", ENTRY, cpu))


def lowering_passes(level: int) -> str:
    """The passes for programs that XLA runs here, as pipeline text.

    Ops that depend on weights only are a separate function, which runs once, when the program is loaded.
    """
    return ",".join(filter(None, (preparation(level), OUTLINE, to_stablehlo(cpu=True))))

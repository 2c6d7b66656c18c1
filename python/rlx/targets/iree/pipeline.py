"""The passes from LIR to the module that IREE compiles."""

from __future__ import annotations

from typing import Any

from rlx import mlir
from rlx.passes.base import Pass
from rlx.passes.pipeline import PassPipeline
from rlx.targets.iree.targets import Target


def lowering_passes(target: Target) -> str:
    """Return the passes that lower rlx ops to linalg, and then prepare linalg for IREE and a target, as pipeline text.

    The order matters. Globals are first, because later passes recognise weights and states by the ops that load and store
    them. Loops become branches last, because the earlier passes work on loop ops.
    """
    from rlx.targets.iree.passes.emulate import Emulate
    from rlx.targets.iree.passes.quantised_products import QuantisedProducts
    from rlx.targets.iree.passes.set_device import SetDevice

    steps: list[str | Pass] = [
        "rlx-outline-weights{growth=1}",  # products with f16 and bf16 weights are faster than with weights cast in advance
        "rlx-to-linalg",
        "rlx-iree-globals",
        *(["rlx-iree-long-sums"] if target.sums_in_order else []),
        "rlx-iree-wide-complex",
        "rlx-iree-scatter",
        "rlx-iree-splats",
        "rlx-iree-materialise",
        "rlx-iree-bindings",
        QuantisedProducts(target.has_byte_products),
        "rlx-iree-loop-slices",
        "rlx-iree-in-place-updates",
        "rlx-iree-branches",
    ]
    if target.emulated:
        steps.append(Emulate(tuple(sorted(target.emulated))))
    if target.wide_registers:
        steps.append("rlx-iree-narrow-integers")
    if target.contracts_products:
        steps.append("rlx-iree-round-products")  # after all passes that create products
    if target.fences_reductions:
        steps.append("rlx-iree-fence-reductions")
    steps.append("rlx-iree-initializers")
    if target.device:
        steps.append(SetDevice(target.device))
    return ",".join(map(str, steps))


def lower(module: Any, target: Target) -> None:
    """Lower a module in place to the module that IREE compiles for a target. All its ops must have rules."""
    with mlir.unregistered_dialects_allowed():
        PassPipeline.parse(lowering_passes(target)).run(module, verify_each=False)

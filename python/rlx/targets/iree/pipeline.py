"""The passes from MIR to the LIR of IREE's targets, and from there to the module that IREE compiles."""

from __future__ import annotations

from functools import cache

from rlx.kernels.cpu_model import cpu_models
from rlx.passes.base import Pass
from rlx.passes.check_lir import CheckLir
from rlx.passes.simplification.constant_fold import ConstantFold
from rlx.passes.simplification.conv_products import ConvProducts
from rlx.targets.iree.targets import Target
from rlx.targets.stages import to_lir


@cache
def passes_to_lir(target: Target) -> str:
    """The passes from MIR to LIR, as pipeline text."""
    from rlx.targets.iree.passes.elementwise_kernels import ElementwiseKernels
    from rlx.targets.iree.passes.kernels import ChooseKernels

    legal = CheckLir(
        "rlx-to-linalg",
        unsupported_dtypes=tuple(sorted(target.unsupported_dtypes)),
        empty=target.takes_empty,
        target=target.name,
        arch=target.arch,
    )
    # Again after decomposition: a recurrent layer becomes a loop and products, for which there are kernels.
    chosen = [ChooseKernels(target.kernel_cpu)] if _has_kernels(target) else []
    regions = [ElementwiseKernels(target.kernel_cpu)] if _has_kernels(target) else []
    # Batch norms with constant weights decompose into computations on constants.
    products = [ConvProducts()] if _has_kernels(target) else []
    return to_lir(legal, before=[*products, *chosen], after=[ConstantFold(), *chosen, *regions])


def _has_kernels(target: Target) -> bool:
    return target.kernel_cpu in cpu_models()


@cache
def lowering_passes(target: Target) -> str:
    """Return the passes that lower rlx ops to linalg, and then prepare linalg for IREE and a target, as pipeline text.

    They are the same at every level of optimisation, which only chooses IREE's flags.

    The order matters. Globals come first, because later passes recognise weights and states by the ops that load and store
    them. Loops become branches last, because the passes before work on loops as ops.
    """
    from rlx.targets.iree.passes.emit_kernels import EmitKernels
    from rlx.targets.iree.passes.emulate import Emulate
    from rlx.targets.iree.passes.quantised_products import QuantisedProducts
    from rlx.targets.iree.passes.set_device import SetDevice

    steps: list[str | Pass] = [
        "rlx-iree-shorten-names",
        "rlx-outline-weights{growth=1}",  # products read f16 and bf16 faster than what casts make of them
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
        steps += ["rlx-iree-fence-reductions", "rlx-iree-fence-loops"]
    steps.append("rlx-iree-initializers")
    if target.kernel_cpu:
        steps.append("rlx-iree-argument-affinity")
        steps += ["rlx-iree-lend-weights", "rlx-iree-unaligned-arguments"]  # in this order
    if _has_kernels(target):
        steps.append(EmitKernels(target.kernel_cpu))  # last, because the other passes would rewrite the code of kernels
    if target.device:
        steps.append(SetDevice(target.device))
    return ",".join(map(str, steps))

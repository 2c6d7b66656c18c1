"""The register of workarounds for IREE: what it does not do right, and where RLX keeps away from it.

A comment that names a quirk (`loop-buffers`) means an entry here. `tests/backends/test_quirks.py` shows those that can be shown
on any machine, and fails when one is gone: then its workaround can go.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Quirk:
    """Something that IREE gets wrong.

    Attributes:
        name: What comments call it.
        what: What happens without the workaround.
        where: The files that work around it, in `python/rlx/`.
        seen: The version of IREE that it was last seen with.
        issue: Where it is reported, if it is.
        not_shown: Why no test shows it; None for those that one does.
    """

    name: str
    what: str
    where: tuple[str, ...]
    seen: str = "3.13"
    issue: str | None = None
    not_shown: str | None = None


_PASSES = "backends/iree/passes"
_SLOW = "it costs time or memory, and changes no result"
_LOWERED = "the form of the lowering avoids it for every compiler"

QUIRKS = (
    # --- loops and states -----------------------------------------------------------------------
    Quirk(
        "loop-buffers",
        "values that live equally long share a buffer; a loop passes that on several times, and the VM may have moved the "
        "reference away before the last time: the program fails when it runs",
        (f"{_PASSES}/loop_buffers.py",),
        issue="https://github.com/iree-org/iree/issues/24753",
    ),
    Quirk(
        "loop-slices",
        "the slice of a computed tensor that a step of a loop reads is computed in that step: a product before the loop "
        "becomes many inside",
        (f"{_PASSES}/loop_buffers.py",),
        not_shown=_SLOW,
    ),
    Quirk(
        "scf-outside-kernels",
        "the offset of a carry in a shared buffer is taken from another step than the first, and the sizes of what a choice "
        "inside a loop gives are not known",
        (f"{_PASSES}/branches.py",),
    ),
    Quirk(
        "stacks-copied",
        "all that a loop stacks is copied in every step",
        ("lower/linalg/control.py",),
        not_shown=_SLOW,
    ),
    Quirk(
        "new-states",
        "a state that is computed from itself goes into a new buffer",
        (f"{_PASSES}/in_place_updates.py", f"{_PASSES}/workgroups.py"),
        not_shown=_SLOW,
    ),
    Quirk(
        "fences-overtaken",
        "what an optimization barrier reads is executed by itself, and a kernel that overwrites a state does not wait until "
        "that has read the state: results differ from run to run",
        (f"{_PASSES}/in_place_updates.py",),
        not_shown="it depends on the threads' timing; examples/digits_cnn.py showed it",
    ),
    Quirk(
        "equal-globals",
        "globals of equal initial values share their memory, which a kernel that overwrites one then changes for all",
        (f"{_PASSES}/in_place_updates.py",),
        not_shown="the states of tests/backends/test_iree_updates.py, which are overwritten, have always been filled apart",
    ),
    Quirk(
        "arguments-overwritten",
        "an argument's buffer is updated in place, though the caller did not give it away and other results read it",
        ("backends/iree/backend.py", "backends/iree/transfer.py"),
    ),
    # --- fusion ---------------------------------------------------------------------------------
    Quirk(
        "complex-tiles",
        "a product leaves its tiles only behind the elementwise ops that follow, and complex numbers cannot be read in tiles: "
        "the program does not compile",
        (f"{_PASSES}/materialise.py",),
    ),
    Quirk(
        "thin-slices",
        "a kernel that looks up single elements of a slice with strides, or of one element of the innermost axis, is no valid "
        "code",
        (f"{_PASSES}/materialise.py",),
    ),
    Quirk(
        "batched-rows",
        "the rows of all batches of a product are computed as one axis, and split while they are packed: the first rows of the "
        "next batch stand in place of the padding",
        (f"{_PASSES}/materialise.py",),
    ),
    Quirk(
        "dynamic-packing",
        "whatever makes an operand of a batched product with dynamic sizes does not compile once it is fused into its packing",
        (f"{_PASSES}/materialise.py",),
        not_shown="it depends on what else is in the program",
    ),
    Quirk(
        "activations-repeated",
        "an activation is computed again in each product that reads it",
        (f"{_PASSES}/materialise.py",),
        not_shown=_SLOW,
    ),
    Quirk(
        "sums-of-products",
        "a sum over several axes of a product is taken for a contraction, which is no valid code where a factor lacks some",
        ("lower/linalg/reduce.py",),
    ),
    Quirk(
        "transposes-propagated",
        "transposes move into the contractions before them, which then do not run on packed tiles; for GPUs, the compiler "
        "crashes on a weight that is a transposed parameter",
        ("backends/iree/targets.py",),
        not_shown=_SLOW,
    ),
    # --- single ops -----------------------------------------------------------------------------
    Quirk("complex-padding", "`tensor.pad` of complex numbers crashes the compiler", ("lower/linalg/loops.py",)),
    Quirk(
        "empty-contraction",
        "a contraction of size 0 crashes the compiler with SIGFPE",
        ("lower/linalg/contraction.py",),
    ),
    Quirk(
        "wide-multiplication",
        "`arith.mului_extended` on vectors of two axes cannot be unrolled",
        ("lower/libm/words.py",),
        not_shown="it depends on how a kernel is tiled",
    ),
    Quirk(
        "constant-tables",
        "a table that is made of nothing is computed once, and two scatters write into it",
        ("lower/linalg/scatter.py",),
        not_shown=_LOWERED,
    ),
    Quirk(
        "single-windows",
        "a loop over one position of a window goes away, and the image must be of the size that the others read",
        ("lower/linalg/convolution.py",),
        not_shown=_LOWERED,
    ),
    Quirk(
        "library-functions",
        "functions of f64, and some of f16, are calls of a library that is not linked",
        ("lower/libm/functions.py", "lower/libm/trigonometry.py", "lower/libm/powers.py", "lower/libm/scalars.py"),
    ),
    Quirk("small-halves", "without F16C, an f32 below the normal f16 is rounded to 0", (f"{_PASSES}/emulate.py",)),
    Quirk("unfused-fma", "without FMA, f64's fused multiply-add rounds the product", (f"{_PASSES}/emulate.py",)),
    Quirk(
        "constants-evaluated",
        "constants are computed by running the program inside the compiler, which hangs if that writes out of bounds",
        ("backends/iree/targets.py",),
        not_shown="a test that shows it would hang",
    ),
    # --- GPUs -----------------------------------------------------------------------------------
    Quirk(
        "reduction-races",
        "in a kernel of a reduction and what is fused behind it, threads do not wait for the one that writes the result",
        (f"{_PASSES}/fence_reductions.py",),
        not_shown="it needs a Vulkan device, and comes and goes",
    ),
    Quirk(
        "storage-of-bytes",
        "bytes that a Vulkan target emulates in words lose the last word of a tensor",
        (f"{_PASSES}/set_device.py", "backends/iree/targets.py"),
        not_shown="it needs a Vulkan device",
    ),
    Quirk(
        "empty-tensors",
        "tensors without elements fail on Vulkan when the program runs",
        ("backends/iree/backend.py",),
        not_shown="it needs a Vulkan device",
    ),
    Quirk(
        "computed-kernels",
        "training a convolution gives NaN on Vulkan from the second step on",
        ("backends/iree/targets.py",),
        not_shown="it needs a Vulkan device",
    ),
    Quirk(
        "long-blocks",
        "sorted blocks of 64 do not compile for Metal",
        ("lower/linalg/sorting.py",),
        not_shown="it needs another form of the lowering",
    ),
)

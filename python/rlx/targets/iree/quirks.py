"""The register of workarounds for IREE: what IREE does wrong, and where RLX avoids it.

A comment that names a quirk (`loop-slices`) refers to an entry here. `tests/targets/iree/test_quirks.py` has a program for
each quirk that any machine can show. It fails when IREE no longer has the quirk: then the workaround can be removed.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Quirk:
    """Something that IREE gets wrong.

    Attributes:
        name: The name that comments use.
        what: What happens without the workaround.
        where: The files that work around it, in `python/rlx/`.
        seen: The version of IREE that it was last seen with.
        issue: Where it is reported, if it is.
        not_shown: Why no test shows it; None if a test does.
    """

    name: str
    what: str
    where: tuple[str, ...]
    seen: str = "3.13"
    issue: str | None = None
    not_shown: str | None = None


_PASSES = "targets/iree/passes"
_SLOW = "it costs time or memory, and changes no result"
_LOWERED = "the form of the lowering avoids it for every compiler"

QUIRKS = (
    # --- loops and states -----------------------------------------------------------------------
    Quirk(
        "moved-away",
        "a branch that passes on a buffer or a fence several times keeps it in place for one of them, and moves it away for "
        "the last: the program fails, or does not wait for what it reads",
        (f"{_PASSES}/branches.py",),
        issue="https://github.com/iree-org/iree/issues/24753",
    ),
    Quirk(
        "numbers-overwritten",
        "a branch that passes on numbers of 32 and of 64 bits may overwrite one of them before it is read",
        (f"{_PASSES}/branches.py", "targets/linalg/control.py"),
        not_shown="it depends on the registers of the VM: `norms` of tests/importers/jax_functions.py showed it",
    ),
    Quirk(
        "loop-slices",
        "if a step of a loop reads a slice of a computed tensor, the slice is computed in that step: a product before the "
        "loop becomes many products inside of it",
        (f"{_PASSES}/loop_slices.py",),
        not_shown=_SLOW,
    ),
    Quirk(
        "scf-outside-kernels",
        "for a carry in a shared buffer, the first step uses the offset of a later step; and the sizes of the results of a "
        "choice inside of a loop are not known",
        (f"{_PASSES}/branches.py",),
    ),
    Quirk(
        "stacks-copied",
        "all stacked results of a loop are copied in every step",
        ("targets/linalg/control.py",),
        not_shown=_SLOW,
    ),
    Quirk(
        "new-states",
        "the new value of a state that is computed from the old value is written to a new buffer",
        (f"{_PASSES}/in_place_updates.py", f"{_PASSES}/workgroups.py"),
        not_shown=_SLOW,
    ),
    Quirk(
        "tables-of-constants",
        "ops that overwrite a tensor which a kernel computes from constants alone, or a view of it, get the buffer of all that "
        "read it: the second adds to what the first has written, and a result that is the table is changed",
        (f"{_PASSES}/scatter.py",),
    ),
    Quirk(
        "kernels-overtaken",
        "a kernel that overwrites a state does not wait for the ops and the other such kernels that read it: groups of kernels "
        "that may run at the same time are sorted by the values that they pass on alone",
        (f"{_PASSES}/in_place_updates.py", f"{_PASSES}/execution_order.py"),
        issue="https://github.com/iree-org/iree/pull/14893",
    ),
    Quirk(
        "fences-overtaken",
        "the operand of an optimization barrier is executed separately, and a kernel that overwrites a state does not wait "
        "until this has read the state: results differ from run to run",
        (f"{_PASSES}/execution_order.py",),
        not_shown="it depends on the threads' timing; examples/digits_cnn.py showed it",
    ),
    Quirk(
        "equal-globals",
        "globals of equal initial values share their memory: a kernel that overwrites one of them changes all",
        (f"{_PASSES}/in_place_updates.py",),
        not_shown="the overwritten states of tests/targets/iree/test_updates.py have always been filled separately",
    ),
    Quirk(
        "half-numbers",
        "the VM has no floats of 16 bits: what fills a tensor with such a number, which the compiler does not know, does not "
        "compile",
        (f"{_PASSES}/in_place_updates.py",),
    ),
    Quirk(
        "stored-results",
        "a constant, an argument or a part of a parameter that a state gets and that is a result, too, may not compile: the "
        "state is given what was made for the caller",
        (f"{_PASSES}/globals.py",),
        not_shown="it depends on what else is in the program: tests/targets/iree/test_states.py has one that did not compile",
    ),
    Quirk(
        "parts-in-branches",
        "a part of a parameter that a choice gives may not compile, for a circular dependency of copies",
        (f"{_PASSES}/branches.py",),
        not_shown="it depends on what else is in the program: tests/targets/iree/test_states.py has one that did not compile",
    ),
    Quirk(
        "arguments-overwritten",
        "the buffer of an argument is updated in place, although the caller has not donated it and other results read it",
        ("targets/iree/backend.py", "targets/iree/transfer.py"),
    ),
    Quirk(
        "returned-tables",
        "a scatter overwrites the buffer of an argument that the program returns as well",
        (f"{_PASSES}/scatter.py",),
    ),
    # --- fusion ---------------------------------------------------------------------------------
    Quirk(
        "complex-tiles",
        "the result of a product stays in tiles through the elementwise ops that follow, and complex numbers cannot be read "
        "in tiles: the program does not compile",
        (f"{_PASSES}/materialise.py",),
    ),
    Quirk(
        "splats-reduced",
        "the sum or the product of a tensor that is one constant everywhere is taken for that constant; a running sum of it "
        "does not compile",
        (f"{_PASSES}/splats.py",),
    ),
    Quirk(
        "thin-slices",
        "for a kernel that looks up single elements of a slice with strides, or of one element of the innermost axis, the "
        "generated code is not valid",
        (f"{_PASSES}/materialise.py",),
    ),
    Quirk(
        "several-elements",
        "the compiler does not end where several single elements of a computed tensor, which itself is computed from slices of "
        "widened numbers, are broadcast in one kernel",
        (f"{_PASSES}/materialise.py",),
    ),
    Quirk(
        "batched-rows",
        "the rows of all batches of a product are computed as one axis, which is split while it is packed: the first rows of "
        "the next batch are used instead of the padding",
        (f"{_PASSES}/materialise.py",),
    ),
    Quirk(
        "dynamic-packing",
        "the op that computes an operand of a batched product with dynamic sizes does not compile after it was fused into the "
        "packing of the operand",
        (f"{_PASSES}/materialise.py",),
        not_shown="it depends on what else is in the program",
    ),
    Quirk(
        "rounding-packed",
        "what rounds numbers to bytes is fused into the packing of a product, whose code takes two to three times as long",
        (f"{_PASSES}/quantised_products.py",),
        not_shown=_SLOW,
    ),
    Quirk(
        "unsigned-layouts",
        "a vector that is broadcast against a product of unsigned by signed bytes does not get its layout: the program does "
        "not compile",
        (f"{_PASSES}/quantised_products.py",),
        not_shown="only code for a CPU with AVX-512 VNNI has that layout",
    ),
    Quirk(
        "activations-repeated",
        "an activation is computed again in each product that uses it",
        (f"{_PASSES}/materialise.py",),
        not_shown=_SLOW,
    ),
    Quirk(
        "sums-of-products",
        "a sum over several axes of a product is treated as a contraction, for which the generated code is not valid if a "
        "factor does not have all of these axes",
        ("targets/linalg/reduce.py",),
    ),
    Quirk(
        "transposes-propagated",
        "transposes are moved into the contractions before them, which then do not run on packed tiles; for GPUs, the "
        "compiler crashes on a weight that is a transposed parameter",
        ("targets/iree/targets.py",),
        not_shown=_SLOW,
    ),
    Quirk(
        "contracted-products",
        "a product and what it is added to are rounded once where the CPU can: numbers depend on the CPU, and no flag changes "
        "that",
        (f"{_PASSES}/round_products.py", "targets/iree/targets.py"),
    ),
    Quirk(
        "sums-in-order",
        "the elements of a sum are added one after the other, so that the error of a long sum of f32 grows with its length",
        (f"{_PASSES}/long_sums.py", "targets/iree/targets.py"),
    ),
    Quirk(
        "many-bindings",
        "elementwise ops become one kernel however many tensors they read and write, and a program of which a kernel has more "
        "than 32 cannot be loaded",
        (f"{_PASSES}/bindings.py",),
    ),
    # --- single ops -----------------------------------------------------------------------------
    Quirk("complex-padding", "`tensor.pad` of complex numbers crashes the compiler", ("targets/linalg/loops.py",)),
    Quirk(
        "empty-contraction",
        "a contraction of size 0 crashes the compiler with SIGFPE",
        ("targets/linalg/contraction.py",),
    ),
    Quirk(
        "wide-multiplication",
        "`arith.mului_extended` on vectors of two axes cannot be unrolled",
        ("numerics/words.py",),
        not_shown="it depends on how a kernel is tiled",
    ),
    Quirk(
        "constant-tables",
        "two tables that are computed from constants become one, and two scatters write to it",
        ("targets/linalg/scatter.py",),
        not_shown=_LOWERED,
    ),
    Quirk(
        "single-windows",
        "a loop over a window of one position is removed, and then the image must have the size that the other loops give",
        ("targets/linalg/convolution.py",),
        not_shown=_LOWERED,
    ),
    Quirk(
        "library-functions",
        "functions of f64, and some of f16, become calls of a library that is not linked",
        (
            "numerics/functions.py",
            "targets/linalg/elementwise.py",
            "numerics/trigonometry.py",
            "numerics/powers.py",
            "numerics/scalars.py",
        ),
    ),
    Quirk(
        "slow-rounding",
        "`math.roundeven` becomes some twenty operations on bits, where `math.floor` is one instruction",
        ("numerics/scalars.py", "targets/linalg/elementwise.py"),
        not_shown=_SLOW,
    ),
    Quirk(
        "small-halves",
        "without F16C, an f32 that is smaller than the normal numbers of f16 is rounded to 0",
        (f"{_PASSES}/emulate.py",),
    ),
    Quirk(
        "dropped-rounding",
        "a rounding to bf16 is dropped if the next op of the same kernel widens the result again",
        (f"{_PASSES}/emulate.py", "targets/iree/targets.py"),
    ),
    Quirk("unfused-fma", "without FMA, f64's fused multiply-add rounds the product", (f"{_PASSES}/emulate.py",)),
    Quirk(
        "nearest-integers",
        "on vmvx, f32 becomes the nearest integer where it should lose its digits",
        (f"{_PASSES}/emulate.py", "targets/iree/targets.py"),
    ),
    Quirk(
        "constants-evaluated",
        "constants are computed by running the program inside of the compiler, which hangs if the program writes out of bounds",
        ("targets/iree/targets.py",),
        not_shown="a test that shows it would hang",
    ),
    # --- GPUs -----------------------------------------------------------------------------------
    Quirk(
        "reduction-races",
        "in a kernel with a reduction and ops fused after it, threads do not wait for the thread that writes the result",
        (f"{_PASSES}/fence_reductions.py",),
        not_shown="it needs a Vulkan device, and does not happen in every run",
    ),
    Quirk(
        "storage-of-bytes",
        "if a Vulkan target stores bytes in words, the last word of a tensor is lost",
        (f"{_PASSES}/set_device.py", "targets/iree/targets.py"),
        not_shown="it needs a Vulkan device",
    ),
    Quirk(
        "empty-tensors",
        "tensors without elements fail on Vulkan when the program runs",
        ("targets/iree/program.py",),
        not_shown="it needs a Vulkan device",
    ),
    Quirk(
        "computed-kernels",
        "training a convolution gives NaN on Vulkan from the second step on",
        ("targets/iree/targets.py",),
        not_shown="it needs a Vulkan device",
    ),
    Quirk(
        "wide-elements",
        "constants and parameters whose elements have 128 bits crash the compiler, and it has no fill for them",
        (f"{_PASSES}/wide_complex.py",),
    ),
    Quirk(
        "wide-registers",
        "on vmvx, comparisons, maxima, quotients, shifts to the right and indices read the upper bits of integers of 8 and 16 "
        "bits, which are not defined; bits cannot be counted",
        (f"{_PASSES}/narrow_integers.py", "targets/iree/targets.py"),
    ),
    Quirk(
        "long-blocks",
        "sorted blocks of 64 do not compile for Metal",
        ("targets/linalg/sorting.py",),
        not_shown="it needs another form of the lowering",
    ),
)

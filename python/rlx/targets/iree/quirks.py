"""The register of IREE's defects, with the files that work around them.

A comment that names a quirk (`loop-slices`) refers to an entry here. `tests/targets/iree/test_quirks.py` has a program for
each quirk that can be reproduced on any machine. It fails when IREE no longer has the quirk, so that the workaround can be
removed.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Quirk:
    """A defect of IREE.

    Attributes:
        name: The name in comments.
        what: The behaviour without the workaround.
        where: The files that work around it, in `python/rlx/`.
        seen: The last version of IREE in which it was observed.
        issue: The address of the report, or None.
        not_shown: The reason why no test reproduces it; None if a test does.
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
        "a branch that forwards a buffer or a fence several times keeps it in place for one block argument, and moves it away "
        "for the last: the program fails, or does not wait for its operands",
        (f"{_PASSES}/branches.py",),
        issue="https://github.com/iree-org/iree/issues/24753",
    ),
    Quirk(
        "numbers-overwritten",
        "a branch that forwards 32-bit and 64-bit numbers may overwrite one of them before it is read",
        (f"{_PASSES}/branches.py", "targets/linalg/control.py"),
        not_shown="it depends on the registers of the VM: `norms` of tests/importers/jax_functions.py showed it",
    ),
    Quirk(
        "carries-copied",
        "the device of a block argument is unknown, so each step of a loop copies the carries that it reads",
        (f"{_PASSES}/argument_affinity.py",),
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
        "for a carry in a shared buffer, the first step uses the offset of a later step; and the sizes of the results of an "
        "`scf.if` inside a loop are unknown",
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
        "ops that overwrite a tensor computed from constants alone, or a view of it, share one buffer with all readers of the "
        "tensor: the second op adds to the results of the first, and the tensor itself changes if it is a result",
        (f"{_PASSES}/scatter.py",),
    ),
    Quirk(
        "kernels-overtaken",
        "a kernel that overwrites a state does not wait for other readers of the state: groups of concurrent kernels are "
        "ordered only by the values that they pass to each other",
        (f"{_PASSES}/in_place_updates.py", f"{_PASSES}/execution_order.py"),
        issue="https://github.com/iree-org/iree/pull/14893",
    ),
    Quirk(
        "fences-overtaken",
        "the operand of an optimization barrier is executed separately, and a kernel that overwrites a state does not wait "
        "until the operand has read the state: results differ from run to run",
        (f"{_PASSES}/execution_order.py",),
        not_shown="it depends on the threads' timing; examples/digits_cnn.py showed it",
    ),
    Quirk(
        "equal-globals",
        "globals with equal initial values share memory: a kernel that overwrites one of them changes all of them",
        (f"{_PASSES}/in_place_updates.py",),
        not_shown="the overwritten states of tests/targets/iree/test_updates.py have always been filled separately",
    ),
    Quirk(
        "half-numbers",
        "the VM has no 16-bit floats: an op that fills a tensor with a 16-bit float that is not a constant does not compile",
        (f"{_PASSES}/in_place_updates.py",),
    ),
    Quirk(
        "stored-results",
        "a constant, an argument or a part of a parameter that is both a result and the new value of a state may not compile: "
        "the state gets the value exported for the caller",
        (f"{_PASSES}/globals.py",),
        not_shown="it depends on what else is in the program: tests/targets/iree/test_states.py has one that did not compile",
    ),
    Quirk(
        "parts-in-branches",
        "a part of a parameter that is a result of `scf.if` may not compile, because of a circular dependency of copies",
        (f"{_PASSES}/branches.py",),
        not_shown="it depends on what else is in the program: tests/targets/iree/test_states.py has one that did not compile",
    ),
    Quirk(
        "arguments-overwritten",
        "the buffer of an argument is updated in place, although the caller has not donated it and other results read it",
        ("targets/iree/backend.py", "targets/iree/transfer.py"),
    ),
    Quirk(
        "parameters-released",
        "the object with the memory of a parameter is released by a thread that does not hold the lock of the interpreter",
        ("targets/iree/lent_memory.py",),
        not_shown="it ends the process: tests/targets/iree/test_lent_memory.py fails without the workaround",
    ),
    Quirk(
        "returned-tables",
        "a scatter overwrites the buffer of an argument that the program returns as well",
        (f"{_PASSES}/scatter.py",),
    ),
    Quirk(
        "scattered-gathers",
        "a gather of numbers is fused into the scatter of them, and written to the stack as a whole: the program does not "
        "compile",
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
        "the sum or product of a tensor whose elements are one constant becomes that constant; a running sum of it does not "
        "compile",
        (f"{_PASSES}/splats.py",),
    ),
    Quirk(
        "two-positions",
        "an op that reads the result of a reduction at two positions, such as `s[i] + s[j]`, gets one of them for both if IREE "
        "computes both ops in one kernel: elements off the diagonal are wrong",
        (f"{_PASSES}/repeated_reads.py",),
    ),
    Quirk(
        "thin-slices",
        "a kernel that looks up single elements of a strided slice, or of a slice of size 1 along the innermost axis, gets "
        "invalid code",
        (f"{_PASSES}/materialise.py",),
    ),
    Quirk(
        "several-elements",
        "the compiler does not terminate if one kernel broadcasts several single elements of a tensor that is computed from "
        "slices of widened numbers",
        (f"{_PASSES}/materialise.py",),
    ),
    Quirk(
        "batched-rows",
        "the rows of all batches of a product are computed as one axis, which is split during packing: the first rows of the "
        "next batch are used instead of the padding",
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
        "an op that rounds numbers to bytes is fused into the packing of a product, which makes its code 2 to 3 times slower",
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
        "a sum over several axes of a product is treated as a contraction, which gets invalid code if a factor lacks some of "
        "these axes",
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
        "a product and a sum are rounded only once if the CPU can: results depend on the CPU, and no flag changes this",
        (f"{_PASSES}/round_products.py", "targets/iree/targets.py"),
    ),
    Quirk(
        "sums-in-order",
        "the elements of a sum are added sequentially, so the error of a long f32 sum grows with its length",
        (f"{_PASSES}/long_sums.py", "targets/iree/targets.py"),
    ),
    Quirk(
        "many-bindings",
        "elementwise ops become one kernel regardless of the number of tensors that they read and write, and a program with a "
        "kernel of more than 32 tensors cannot be loaded",
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
        not_shown="it depends on the tiling of a kernel",
    ),
    Quirk(
        "constant-tables",
        "two tables that are computed from constants are merged, and two scatters write to the same table",
        ("targets/linalg/scatter.py",),
        not_shown=_LOWERED,
    ),
    Quirk(
        "single-windows",
        "a loop over a window of size 1 is removed, and the size of the image must then match the other loops",
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
        "`math.roundeven` becomes about twenty bit operations, while `math.floor` is one instruction",
        ("numerics/scalars.py", "targets/linalg/elementwise.py"),
        not_shown=_SLOW,
    ),
    Quirk(
        "small-halves",
        "without F16C, an f32 below the smallest normal f16 is rounded to 0",
        (f"{_PASSES}/emulate.py",),
    ),
    Quirk(
        "dropped-rounding",
        "a rounding to bf16 is dropped if the next op of the same kernel widens the result again",
        (f"{_PASSES}/emulate.py", "targets/iree/cpu_operations.py"),
    ),
    Quirk("unfused-fma", "without FMA, f64's fused multiply-add rounds the product", (f"{_PASSES}/emulate.py",)),
    Quirk(
        "nearest-integers",
        "on vmvx, a conversion of f32 to integers rounds to nearest instead of truncating",
        (f"{_PASSES}/emulate.py", "targets/iree/targets.py"),
    ),
    Quirk(
        "constants-evaluated",
        "constants are computed by running the program inside the compiler, which hangs if the program writes out of bounds",
        ("targets/iree/targets.py",),
        not_shown="a test that shows it would hang",
    ),
    Quirk(
        "indirect-calls",
        "a kernel that calls a pointer does not compile: the pass that resolves the number of workgroups fails",
        ("kernels/routines.py",),
    ),
    # --- GPUs -----------------------------------------------------------------------------------
    Quirk(
        "reduction-races",
        "in a kernel with a reduction and ops fused after it, threads do not wait for the thread that writes the result, and "
        "in one with a reduction that reads a computed tensor at two positions, not for those that write the tensor",
        (f"{_PASSES}/fence_reductions.py",),
        not_shown="it needs a Vulkan device, and does not happen in every run",
    ),
    Quirk(
        "reassociated-arithmetic",
        "SPIR-V is emitted without the decoration NoContraction, so that drivers may compute `(x + c) - c` as `x`, and Mesa "
        "does: `round` returned its operand",
        ("targets/iree/exact_arithmetic.py", "targets/iree/targets.py"),
        not_shown="it needs a Vulkan device: tests/targets/iree/test_vulkan.py has the cases",
    ),
    Quirk(
        "imprecise-functions",
        "`exp`, `log`, `tanh` and the fused multiply-add become instructions of Vulkan, which has wide bounds for their "
        "errors: 27 ulp of `exp` and a rounded product of the multiply-add were observed",
        (f"{_PASSES}/emulate.py", "targets/iree/targets.py"),
        not_shown="it needs a Vulkan device: tests/targets/iree/test_vulkan.py has the cases",
    ),
    Quirk(
        "storage-of-bytes",
        "if a Vulkan target stores bytes in words, the last word of a tensor is lost",
        (f"{_PASSES}/set_device.py", "targets/iree/architectures.py"),
        not_shown="it needs a Vulkan device",
    ),
    Quirk(
        "narrow-remainders",
        "on Mesa's lavapipe, some remainders of negative integers of 8 and 64 bits have the wrong sign",
        (f"{_PASSES}/narrow_integers.py", f"{_PASSES}/emulate.py", "targets/iree/targets.py"),
        not_shown="it needs a Vulkan device",
    ),
    Quirk(
        "replayed-buffers",
        "the runtime's Vulkan driver records command buffers with the addresses of their buffers, and replays them with the "
        "addresses of an earlier call: programs with states, branches, loops or an update in place are wrong from the second "
        "call on",
        ("targets/iree/devices.py",),
        not_shown="it needs a Vulkan device: tests/targets/iree/test_vulkan.py has the cases",
    ),
    Quirk(
        "steps-overtaken",
        "the steps of a loop are submitted without waiting, and semaphores are signalled out of order, which Mesa reports as a "
        "lost device",
        (f"{_PASSES}/fence_loops.py",),
        not_shown="it needs a Vulkan device, and does not happen in every run",
    ),
    Quirk(
        "empty-tensors",
        "tensors without elements fail on Vulkan when the program runs",
        ("targets/iree/program.py",),
        not_shown="it needs a Vulkan device",
    ),
    Quirk(
        "wide-elements",
        "constants and parameters with 128-bit elements crash the compiler, and it cannot fill tensors of this type",
        (f"{_PASSES}/wide_complex.py",),
    ),
    Quirk(
        "wide-registers",
        "on vmvx, comparisons, maxima, quotients, right shifts and indices read the undefined upper bits of 8-bit and 16-bit "
        "integers; popcount is not supported",
        (f"{_PASSES}/narrow_integers.py", "targets/iree/targets.py"),
    ),
    Quirk(
        "long-blocks",
        "sorted blocks of 64 do not compile for Metal",
        ("targets/linalg/sorting.py",),
        not_shown="it needs another version of the lowering",
    ),
)

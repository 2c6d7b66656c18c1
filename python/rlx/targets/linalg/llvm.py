"""The pipeline from linalg to LLVM with MLIR's own passes, for targets that generate native code themselves."""

from __future__ import annotations

_STEPS = (
    # `_mlir_ciface_f` takes the addresses of memrefs, and of the memory for its results.
    "func.func(llvm-request-c-wrappers)",
    # Tensors to memory.
    "one-shot-bufferize{bufferize-function-boundaries=true function-boundary-type-conversion=identity-layout-map "
    "allow-return-allocs-from-loops=true}",
    "canonicalize",
    "rlx-copies-to-loops",
    # Ops on memory to loops, and loops to branches.
    "convert-linalg-to-loops",
    "convert-scf-to-cf",
    # Views to addresses.
    "expand-strided-metadata",
    "lower-affine",
    # Math ops to calls of the C math library first, then to instructions: the expansions of `expm1` and `log1p` to instructions
    # lose digits near 0.
    "convert-complex-to-standard",
    "arith-expand",
    "convert-math-to-libm",
    "convert-math-to-llvm",
    "convert-complex-to-llvm",
    "convert-arith-to-llvm",
    "convert-index-to-llvm",
    "finalize-memref-to-llvm",
    "convert-func-to-llvm",
    "convert-cf-to-llvm",
    "reconcile-unrealized-casts",
)
# The pipeline from the result of `rlx-to-linalg` to the LLVM dialect. Arguments are pointers to row-major memory, which
# functions may overwrite, so the caller must copy arguments that it needs again. Results are allocated by `malloc`, or are the
# memory of an argument.
TO_LLVM = f"builtin.module({','.join(_STEPS)})"

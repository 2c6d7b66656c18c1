"""The way from linalg to LLVM with MLIR's own passes: where targets that generate native code themselves start from."""

from __future__ import annotations

_STEPS = (
    # `_mlir_ciface_f` will take addresses of memory references, and of the place for its results.
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
    # Arithmetic to calls of the C library of mathematics, then to instructions: what the latter make of `expm1` and `log1p`
    # loses digits near 0.
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
# What `rlx-to-linalg` gives, to the LLVM dialect. Arguments are pointers to memory in row-major order, which functions may
# overwrite: the caller copies what it needs again. Results are allocated by `malloc`, or are the memory of an argument.
TO_LLVM = f"builtin.module({','.join(_STEPS)})"

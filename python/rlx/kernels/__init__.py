"""CPU kernels, written in Python and emitted as MLIR.

A kernel is another implementation of an op, besides the op's lowering: `library/` has those of RLX, and `rlx.kernel` declares
more. The pass `rlx-iree-kernels` chooses the kernels of a program. docs/kernels.md describes the language.
"""

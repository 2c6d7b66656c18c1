"""Elementary functions of scalars, emitted as arithmetic where compilers expand a `math` op inexactly or not at all.

`arithmetic` has protocols of arithmetic. `division`, `complex_formulas` and `series` are written over them, so that scalars of
MLIR, tensors of StableHLO and arrays use the same formulas. `scalars` emits arithmetic by dtype, and `words` operates on the
bits of floats. The other files are functions of MLIR scalars. This package does not depend on tensors.
"""

"""Elementary functions of scalars, emitted as arithmetic where compilers expand a `math` op inexactly or not at all.

`scalars` emits arithmetic by dtype, `words` operates on the bits of floats, and `series` computes polynomials. The other files
are the functions. This package does not depend on tensors.
"""

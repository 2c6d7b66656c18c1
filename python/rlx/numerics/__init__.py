"""Elementary functions of scalars, out of arithmetic where compilers expand an op of `math` inexactly or not at all.

`scalars` emits arithmetic by dtype, `words` looks at the bits of a float, `series` makes polynomials; the other files are the
functions. Nothing here knows of tensors.
"""

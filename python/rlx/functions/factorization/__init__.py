"""Functions of matrices: determinants, inverses, powers."""

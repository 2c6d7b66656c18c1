"""Products of matrices, and linear systems."""

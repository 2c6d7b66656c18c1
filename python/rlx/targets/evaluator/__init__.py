"""The target `numpy`: programs that the NumPy evaluator runs, op by op."""

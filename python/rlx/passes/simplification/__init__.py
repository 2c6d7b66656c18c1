"""Simplification: less computation for the same results."""

"""Simplification: less to compute for the same results."""

"""Fused ops: names for the results of fusion passes."""

"""Fusion: creation of fused ops, their decomposition, and explanations of missed fusions."""

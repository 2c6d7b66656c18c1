"""Fusion: what makes fused ops, takes them apart again, and says why it did or did not."""

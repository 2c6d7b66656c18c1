"""Functions that make, join, split and reorder tensors."""

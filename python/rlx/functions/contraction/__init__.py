"""Products of tensors: einsum, outer and inner products."""

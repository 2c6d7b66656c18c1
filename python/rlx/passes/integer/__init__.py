"""Integer-only graphs: affine steps folded into weights, values rounded to i8, and ops on integers."""

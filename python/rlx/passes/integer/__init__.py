"""Graphs of integers alone: affine steps folded into weights, values rounded to i8, and ops on these."""

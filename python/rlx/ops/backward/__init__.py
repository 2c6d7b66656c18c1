"""Gradient ops: names for the results of the rules of forward ops."""

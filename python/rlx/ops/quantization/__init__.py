"""Quantisation, and arithmetic on quantised values."""

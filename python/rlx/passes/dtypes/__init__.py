"""Compute dtypes: precision and quantisation."""

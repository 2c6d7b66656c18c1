"""Factorisations of matrices, and what is computed by them."""

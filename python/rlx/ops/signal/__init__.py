"""Fourier transforms and functions based on them."""

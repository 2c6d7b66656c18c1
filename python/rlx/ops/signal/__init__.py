"""Fourier transforms and what is built on them."""

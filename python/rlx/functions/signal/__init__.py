"""Functions based on Fourier transforms."""

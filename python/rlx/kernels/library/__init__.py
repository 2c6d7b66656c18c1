"""The kernels of RLX, one file for each family of ops."""
